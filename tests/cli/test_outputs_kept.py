"""What others do to the outputs: nothing of an earlier run goes before a run begins, and a run ends with what it wrote."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator

import pytest
from parameter_choice import again
from shell import RECORDS, Shell

N = 40

#: Passes its input on; at one record it waits for what somebody does in the user's folder, which is not the tool's own.
TOOL = r"""
text=$(cat "$1"); name=$(printf %s "$text" | sed -n '1s/^>//p')
if mv "$MARK/do.$name" "$MARK/asked.$name" 2> /dev/null; then while [ -e "$MARK/asked.$name" ]; do sleep 0.01; done; fi
cp "$1" "$2"
"""

#: Stops a run at once, and waits for its end.
STOP = "kill $(cat pid); sleep 0.5; kill $(cat pid); while kill -0 $(cat pid) 2> /dev/null; do sleep 0.05; done"

#: What somebody does to ``out``, once there is something in it.
DEEDS = {
    "deleted": "rm out",
    "moved": "mv out elsewhere",
    "emptied": ": > out",
    "written over": "printf XXXX | dd of=out conv=notrunc bs=1 seek=2 2> /dev/null",
    "another in its place": "cp out x; mv x out",
}


@pytest.fixture
def site(shell: Shell) -> Iterator[Shell]:
    shell.tool("passon", TOOL)
    (shell.work / "in.fa").write_text("".join(f">r{k}\n{'MKV' * 40}\n" for k in range(N)))
    is_over = threading.Event()

    def somebody() -> None:
        while not is_over.wait(0.01):
            for asked in shell.root.glob("asked.*"):
                subprocess.run(["sh", str(asked)], cwd=shell.work, check=True, timeout=300)
                asked.unlink()

    other = threading.Thread(target=somebody)
    other.start()
    yield shell
    is_over.set()
    other.join()


RUN = "millrace run --slots 1 --batch 1 --sync 0 --verify 0"


@pytest.mark.parametrize("deed", DEEDS)
def test_output_changed_by_others_is_written_again(site: Shell, deed: str) -> None:
    # At the last record all but the last results are there to be spoilt; at the end nothing of ours hides it.
    (site.root / f"do.r{N - 1}").write_text(f"while [ ! -s out ]; do sleep 0.01; done; {DEEDS[deed]}\n")
    ended = site.run(f"{RUN} --input in.fa --output out -- passon in.fa out")
    assert ended.code == 0 and "out: " in ended.err and "written again" in ended.err, ended.shown
    assert (site.work / "out").read_bytes() == (site.work / "in.fa").read_bytes()


def test_resumed_standard_output_is_not_appended(site: Shell) -> None:
    """A resumed run writes standard output from its beginning, which ``>`` empties and ``>>`` keeps."""
    site.tool(
        "halts",
        'cat "$1"; if grep -q "^>r20$" "$1" && [ -e "$MARK/work/halt" ]; then '
        'while [ ! -s "$MARK/work/out" ]; do sleep 0.01; done; exit 7; fi',
    )
    (site.work / "halt").touch()
    line = f"{RUN} --on-failure stop --input in.fa -- halts in.fa"
    stopped = site.run(f"{line} >> out")
    assert stopped.code not in (0, 2), stopped.shown
    there = (site.work / "out").read_bytes()
    assert there and (site.work / "in.fa").read_bytes().startswith(there)
    refused = site.run(f"{line} >> out")
    assert refused.code == 2 and "would stand twice" in refused.err and "type the same command with >" in refused.err, (
        refused.shown
    )
    assert (site.work / "out").read_bytes() == there
    (site.work / "halt").unlink()
    ended = site.run(f"{line} > all && cat all >> joined")
    assert ended.code == 0 and (site.work / "joined").read_bytes() == (site.work / "in.fa").read_bytes(), ended.shown


def test_missing_files_of_an_output_folder_are_rewritten(site: Shell) -> None:
    """Those of a complete run are written again, too."""
    (site.work / "d").mkdir()
    for k in range(9):
        (site.work / f"d/{k}.fa").write_text(f">f{k}\nMKV\n")
    # In input order with one slot: the first is there long before the last begins.
    (site.root / "do.f8").write_text(
        "while [ ! -s o/3.txt ]; do sleep 0.01; done; rm o/0.txt; mkdir x; mv o/1.txt x; sed -i s/MKV/MKW/ o/2.txt\n"
    )
    line = f"mkdir -p o; {RUN} --keep-run-dir --input d --output 'o/{{stem}}.txt' -- passon d 'o/{{stem}}.txt'"
    ended = site.run(line)
    assert ended.code == 0 and "written again" in ended.err, ended.shown

    def whole() -> bool:
        return all((site.work / f"o/{k}.txt").read_text() == f">f{k}\nMKV\n" for k in range(9))

    assert whole()
    for deed in ("rm o/3.txt", "sed -i s/MKV/MKW/ o/4.txt"):
        site.run(deed)
        again = site.run(line)
        assert again.code == 0 and whole(), again.shown
    assert "already done" in site.run(line).err


@pytest.mark.parametrize(
    "line",
    [
        "ln in.fa out; millrace run --input in.fa --output out -- copy in.fa -o out",
        "ln in.fa out; millrace run --format fasta --output out -- copy -o out < in.fa",
        "millrace run --format fasta -- copy < in.fa >> in.fa",
        "ln db out; millrace run --input in.fa --shared db --output out -- copy in.fa db -o out",
        "ln ../bin/copy out; millrace run --input in.fa --output out -- copy in.fa -o out",
        ": > a; ln a b; millrace run --input in.fa --output a --output b -- copy in.fa a b",
    ],
)
def test_output_that_is_also_an_input_is_refused(shell: Shell, line: str) -> None:
    """The same file under another name is refused as well."""
    (shell.work / "db").write_text("old\n")
    program = (shell.root / "bin/copy").read_text()
    ended = shell.run(line)
    assert ended.code == 2 and ("both" in ended.err or "two outputs" in ended.err), ended.shown
    assert (shell.work / "in.fa").read_text() == RECORDS
    assert (shell.work / "db").read_text() == "old\n" and (shell.root / "bin/copy").read_text() == program


@pytest.mark.parametrize("deed", [again("echo mine >> out"), "sed -i s/MKV/mkv/ out"])
def test_output_changed_after_a_complete_run_is_named(site: Shell, deed: str) -> None:
    """The run is not reported as already done."""
    line = f"{RUN} --keep-run-dir --input in.fa --output out -- passon in.fa out"
    assert site.run(line).code == 0
    assert "already done" in site.run(f"chmod 600 out; {line}").err
    site.run(deed)
    changed = (site.work / "out").read_bytes()
    for _ in range(2):
        ended = site.run(line)
        assert ended.code == 2 and "out: somebody has changed it since this run had written it" in ended.err, (
            ended.shown
        )
        assert (site.work / "out").read_bytes() == changed
    ended = site.run(f"mv out out.changed; {line}")
    assert ended.code == 0, ended.shown
    assert (site.work / "out").read_bytes() == (site.work / "in.fa").read_bytes()
    assert "already done" in site.run(line).err


@pytest.mark.parametrize("deed", ["echo mine >> out", again("sed -i s/MKV/mkv/ out"), "rm out", again(": nothing")])
def test_resume_keeps_an_output_changed_by_others(site: Shell, deed: str) -> None:
    """The run was stopped with part of its output written."""
    # The run is stopped at its last record, when there is something in the output.
    (site.root / f"do.r{N - 1}").write_text(f"while [ ! -s out ]; do sleep 0.01; done; {STOP}\n")
    line = f"{RUN} --input in.fa --output out -- passon in.fa out"
    stopped = site.run(f"sh -c 'echo $$ > pid; exec {line}'")
    assert stopped.code == 143 and (site.work / "out").stat().st_size, stopped.shown
    site.run(deed)
    changed = (site.work / "out").read_bytes() if (site.work / "out").exists() else b""
    if deed.startswith(("echo", "sed")):
        for _ in range(2):
            ended = site.run(line)
            assert ended.code == 2 and "out: somebody has changed it since this run was stopped" in ended.err, (
                ended.shown
            )
            assert "mv out out.changed" in ended.err and (site.work / "out").read_bytes() == changed
        site.run("mv out out.changed")
    ended = site.run(line)
    assert ended.code == 0 and f"{N - 1} of them by earlier runs" in ended.err, ended.shown
    assert (site.work / "out").read_bytes() == (site.work / "in.fa").read_bytes()


@pytest.mark.slow
def test_resume_keeps_an_output_created_by_others(
    site: Shell,
) -> None:
    """The run was stopped before it had written to the output."""
    # The run is stopped at its first record.
    (site.root / "do.r0").write_text(f"{STOP}\n")
    line = f"{RUN} --input in.fa --output out -- passon in.fa out"
    stopped = site.run(f"sh -c 'echo $$ > pid; exec {line}'")
    assert stopped.code == 143 and not (site.work / "out").exists(), stopped.shown
    site.run("echo mine >> out")
    for _ in range(2):
        ended = site.run(line)
        assert ended.code == 2 and "out: somebody has changed it since this run was stopped" in ended.err, ended.shown
        assert (site.work / "out").read_bytes() == b"mine\n"
    assert site.run(f": > out; {line}").code == 0
    assert (site.work / "out").read_bytes() == (site.work / "in.fa").read_bytes()


@pytest.mark.parametrize("way", ["< in.fa", "< <(cat in.fa)"], ids=["file", "pipe"])
def test_complete_run_is_not_reused_for_another_stdin(site: Shell, way: str) -> None:
    run = f"bash -c 'millrace run -q --keep-run-dir --batch 10 --verify 0 --format fasta --output out -- passon - out {way}'"
    site.tool("passon", 'echo >> "$COUNT"; cat > "$2"')
    first = (site.work / "in.fa").read_bytes()
    assert site.run(run).code == 0
    n_tasks = (site.root / "count").read_text()
    again = site.run(run)
    assert again.code == 0 and (site.root / "count").read_text() == n_tasks, again.shown
    (site.work / "in.fa").write_bytes(first.replace(b">r7\n", b">R7\n"))
    other = site.run(run)
    words = "input on standard input: was" if "(" not in way else "records 1 to 10 are not what they were"
    assert other.code == (5 if "(" in way else 2) and words in other.err and "--fresh" in other.err, other.shown
    assert (site.work / "out").read_bytes() == first


def test_shorter_pipe_is_refused_on_resume(site: Shell) -> None:
    """What was done lies behind a gap, before which the new input ends."""
    site.tool(
        "late",
        'cat > part; if grep -q "^>r0$" part && [ -e "$MARK/work/halt" ]; then '
        'until [ "$(wc -l < "$COUNT")" -ge 3 ]; do sleep 0.01; done; exit 7; fi; cat part; rm part; echo >> "$COUNT"',
    )
    (site.work / "halt").touch()
    (site.root / "count").touch()
    run = "millrace run -q --slots 2 --batch 10 --verify 0 --on-failure stop --format fasta -- late"
    assert site.run(f"bash -c 'cat in.fa | {run} > said'").code not in (0, 5)
    (site.work / "halt").unlink()
    for other in ("head -n 6 in.fa", ":"):
        ended = site.run(f"bash -c '{other} | {run} > said'")
        assert ended.code == 5 and "are not what they were when this run began" in ended.err, ended.shown
    n_tasks = len((site.root / "count").read_text())
    again = site.run(f"bash -c 'cat in.fa | {run} > said'")
    assert again.code == 0 and len((site.root / "count").read_text()) < n_tasks + 4, again.shown


def test_kept_run_of_an_empty_pipe_is_not_reused(site: Shell) -> None:
    run = "millrace run -q --keep-run-dir --verify 0 --format fasta -- cat"
    for _ in range(2):
        assert site.run(f"bash -c ': | {run} > out'").code == 0
    ended = site.run(f"bash -c 'cat in.fa | {run} > out'")
    assert ended.code == 5 and "has records, and had none when this run began" in ended.err, ended.shown
