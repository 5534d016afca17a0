"""What shared storage is spared: small writes, writes across its stripes, and folders of many names."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from shell import Shell
from traced_writes import check, extents, traced

RUN = "millrace run --slots 2 --batch 1 --verify 0 --keep-run-dir --input in.fa"


def large_records(shell: Shell, *sizes: int) -> bytes:
    """An input whose records become results of these sizes."""
    content = b"".join(b">r%d\n%s\n" % (k, b"A" * size) for k, size in enumerate(sizes))
    (shell.work / "in.fa").write_bytes(content)
    return content


def test_outputs_are_written_in_stripe_aligned_pieces(shell: Shell) -> None:
    content = large_records(shell, 2_500_000, 700_000, 99, 1_600_000)
    log, out = shell.root / "log", shell.work / "out"
    done = shell.run(f"{shlex.join(traced(log))} {RUN} --output out -- tee2 in.fa out")
    assert done.code == 0 and out.read_bytes() == content, done.shown
    check(extents(log, out), len(content), most=4)  # one more where a result was shown at once
    again = shell.root / "again"
    done = shell.run(f"{shlex.join(traced(log))} millrace gather out.millrace --stream out -o {again}")
    assert done.code == 0 and again.read_bytes() == content, done.shown
    check(extents(log, again), len(content), most=0)


def test_files_of_their_own_are_written_in_large_pieces(shell: Shell) -> None:
    (shell.work / "in").mkdir()
    (shell.work / "in" / "a.fa").write_bytes(b">r\n" + b"A" * 2_500_000)
    log, out = shell.root / "log", shell.work / "out" / "a.fa"
    out.parent.mkdir()
    shell.tool("moves", 'cat "$1" > part && mv part "$2"')  # writes its output, at the same path, under another name
    line = "millrace run --slots 1 --input in:files --output out/{stem}.fa -- moves in out/{stem}.fa"
    done = shell.run(f"{shlex.join(traced(log))} {line}")
    assert done.code == 0 and out.stat().st_size == 2_500_003, done.shown
    check(extents(log, out), 2_500_003, most=0)


def names(run_dir: Path) -> set[str]:
    return {str(path.relative_to(run_dir)) for path in run_dir.rglob("*")}


@pytest.mark.parametrize("n", [100, pytest.param(3000, marks=pytest.mark.slow)])
def test_run_folders_do_not_grow_with_tasks(shell: Shell, n: int) -> None:
    found = []
    for n_records in (5, n):
        (shell.work / "in.fa").write_text("".join(f">r{k}\nMKV\n" for k in range(n_records)))
        done = shell.run(f"{RUN} --fresh --output out -- tee2 in.fa out")
        assert done.code == 0 and f"{n_records:,} records" in done.err, done.shown
        found.append(names(shell.work / "out.millrace"))
    assert found[0] == found[1]


def test_quarantined_records_are_kept_a_thousand_per_folder(shell: Shell) -> None:
    (shell.work / "in.fa").write_text("".join(f">r{k}\nMKV\n" for k in range(1, 2002)))
    shell.tool("picky", 'if grep -qx ">r\\(7\\|1000\\|1001\\|2001\\)" "$1"; then exit 9; fi; cat "$1" > "$2"')
    line = "millrace run --slots 2 --batch 2001 --retries 0 --verify 0 --input in.fa --output out -- picky in.fa out"
    done = shell.run(line)
    assert done.code == 3, done.shown
    kept = {name for name in names(shell.work / "out.millrace" / "quarantine") if name.endswith("/stderr.txt")}
    places = ("record-7", "record-1000", "records-1001-2000/record-1001", "records-2001-3000/record-2001")
    assert kept == {f"{place}/stderr.txt" for place in places}
    script = shell.work / "out.millrace" / "quarantine" / places[-1] / "command.sh"
    assert shell.run(f"sh {script}").code == 9
