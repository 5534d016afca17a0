"""Jobs of several phases: the bytes of a shell, whatever fails or is killed in between."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from harness import wait_until
from shell import Shell

JOB = """
[phase.lower]
command = "tr A-Z a-z"
stdin = "long.fa"
stdout = "lower.fa"
format = "fasta"
batch = "40"
[phase.keep]
filter = "grep -v x"
input = "lower.fa"
output = "kept.fa"
[phase.some]
python = "some.py:every"
input = "kept.fa"
output = "some/"
options = { n = 20 }
[phase.sizes]
command = ["sh", "-c", 'wc -c < "$1" > "$2"; echo "$1"', "sizes", "some/", "sizes/{stem}.txt"]
input = "some/"
output = "sizes/{stem}.txt"
"""

SOME = """
def every(records, n):
    for number, record in enumerate(records):
        if number % n == 0:
            yield f"{number:06}.fa", record
"""


@pytest.fixture
def job(shell: Shell) -> Shell:
    """A job of four phases, and a folder ``serial`` with what a shell makes of the same steps."""
    records = "".join(f">r{n}\nMKV{'A' * (n % 90)}\n" for n in range(240))
    (shell.work / "long.fa").write_text(records)
    (shell.work / "job.toml").write_text(JOB)
    (shell.work / "some.py").write_text(SOME)
    (shell.work / "sizes").mkdir()
    return shell


def serial(shell: Shell) -> dict[str, bytes]:
    folder = shell.root / "serial"
    for name in ("", "some", "sizes"):
        (folder / name).mkdir()
    line = """tr A-Z a-z < $FROM/long.fa > lower.fa; grep -v x lower.fa > kept.fa
    python3 -c "import sys; sys.path.insert(0, '$FROM'); import some
records = [('>' + each).encode() for each in open('kept.fa').read().split('>')[1:]]
for name, content in some.every(records, 20): open('some/' + name, 'wb').write(content)"
    for f in some/*; do wc -c < $f > sizes/$(basename $f .fa).txt; echo $f; done > out"""
    subprocess.run(["bash", "-ec", line], cwd=folder, env={**os.environ, "FROM": str(shell.work)}, check=True)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    wanted = [*folder.glob("*.fa"), *folder.glob("some/*"), *folder.glob("sizes/*"), *folder.glob("out")]
    names = {str(path.relative_to(folder)): path.read_bytes() for path in wanted}
    return {name: content for name, content in names.items() if name not in ("in.fa", "long.fa")}


NAMES = ["keep", "lower", "sizes", "some"]


def test_progress_reports_each_phase(job: Shell) -> None:
    done = job.run("millrace run --progress plain job.toml > out")
    assert done.code == 0 and done.err.endswith("\nmillrace: 4 phases done\n"), done.shown
    assert sorted(re.findall(r"^millrace: (\w+): done\b", done.err, re.MULTILINE)) == NAMES, done.shown
    assert job.run("rm -r lower.fa kept.fa some sizes").code == 0
    done = job.run("millrace run --progress json job.toml > out")
    *objects, last = done.err.splitlines()
    assert done.code == 0 and last == "millrace: 4 phases done", done.shown
    phases = json.loads(objects[-1])["phases"]
    assert sorted(each["name"] for each in phases) == NAMES and {each["state"] for each in phases} == {"done"}


def test_phases_write_the_bytes_of_a_shell(job: Shell) -> None:
    done = job.run("millrace run job.toml > out")
    assert (done.code, done.err) == (0, "millrace: 4 phases done\n"), done.shown
    assert contents(job.work) == serial(job)
    assert not job.run_dirs(), "a folder is left"


def test_plan_reports_data_flow_and_leaves_nothing(job: Shell) -> None:
    before = sorted(job.work.rglob("*"))
    done = job.run("millrace plan job.toml")
    assert done.code == 0, done.shown
    for words in ("<-- lower.fa from [lower]", "<-- some from [some], record by record", "--> sizes/"):
        assert words in done.out
    assert sorted(job.work.rglob("*")) == before


@pytest.mark.parametrize(
    "table",
    [
        'command = "cat"\nstdin = "{0}"\nstdout = "{1}"\nformat = "lines"',
        'filter = "cat"\ninput = "{0}"\noutput = "{1}"',
    ],
)
def test_cyclic_phases_are_refused(shell: Shell, table: str) -> None:
    (shell.work / "job.toml").write_text(f"[phase.a]\n{table.format('y', 'x')}\n[phase.b]\n{table.format('x', 'y')}\n")
    done = shell.run("millrace run job.toml")
    assert done.code == 2, done.shown
    assert "phase a: y is not there, and phase b, which writes it, comes later in the file" in done.err
    assert not shell.run_dirs()


def test_phase_that_reads_a_whole_file_waits(shell: Shell) -> None:
    (shell.work / "job.toml").write_text(
        '[phase.a]\ncommand = "cat"\nstdin = "in.fa"\nstdout = "a.fa"\nformat = "fasta"\n'
        '[phase.b]\ncommand = "sh -c \'cat $0; cat\' a.fa"\nstdin = "in.fa"\nstdout = "b.fa"\nformat = "fasta"\nbatch = "9"\n'
    )
    plan = shell.run("millrace plan job.toml")
    assert "waits for the end of [a]: reads a.fa whole" in plan.out, plan.shown
    done = shell.run("millrace run job.toml")
    text = (shell.work / "in.fa").read_text()
    assert (done.code, (shell.work / "b.fa").read_text()) == (0, text + text), done.shown


def test_killed_job_resumes_when_repeated(job: Shell) -> None:
    """Killed once while the third phase waits for a file, so that all are in the middle of their work."""
    hold = job.work / "hold"
    (job.work / "some.py").write_text(
        "import os, time\n"
        + SOME.replace(
            "        if ", "        while number == 60 and os.path.exists('hold'): time.sleep(0.01)\n        if "
        )
    )
    hold.touch()
    environ = {**os.environ, "PATH": f"{job.root / 'bin'}:{os.environ['PATH']}", "MARK": str(job.root)}
    with subprocess.Popen(
        ["millrace", "run", "-q", "job.toml"], cwd=job.work, env=environ, stdin=subprocess.DEVNULL, process_group=0
    ) as process:  # fmt: skip
        assert wait_until(lambda: (job.work / "sizes" / "000040.txt").exists())
        process.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not job.processes())
    hold.unlink()
    done = job.run("millrace run job.toml > out")
    assert done.code == 0, done.shown
    assert contents(job.work) == serial(job)


def test_a_signal_stops_all_phases_and_the_same_command_resumes(job: Shell) -> None:
    (job.work / "hold").touch()
    body = SOME.replace(
        "        if ", "        while number == 60 and os.path.exists('hold'): time.sleep(0.01)\n        if "
    )
    (job.work / "some.py").write_text("import os, time\n" + body)
    environ = {**os.environ, "PATH": f"{job.root / 'bin'}:{os.environ['PATH']}", "MARK": str(job.root)}
    with subprocess.Popen(
        ["millrace", "run", "job.toml"], cwd=job.work, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert wait_until(lambda: (job.work / "sizes" / "000040.txt").exists())
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert b"type the same command again" in said
    (job.work / "hold").unlink()
    done = job.run("millrace run job.toml > out")
    assert (done.code, contents(job.work)) == (0, serial(job)), done.shown


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "def every(records, n):\n    for record in records:\n        yield 'a', int(record)",
            "ValueError: invalid literal",
        ),
        ("def every(records, n):\n    yield b'x'", "for a folder"),
        ("def every(records, n):\n    yield 'a', b''\n    yield 'a', b''", "gave the file a twice"),
        ("def every(records, n):\n    yield '../a', b''", "no name for a file"),
        ("def every(records, n):\n    open('/no/such/file')", "No such file or directory: '/no/such/file'"),
    ],
)
def test_failing_function_is_reported_to_the_user(job: Shell, body: str, words: str) -> None:
    (job.work / "some.py").write_text(body)
    done = job.run("millrace run job.toml")
    assert done.code == 4, done.shown
    assert "phase some: some.py:every" in done.err and words in done.err
    assert "hint:" in done.err


def test_files_in_another_order_than_the_shell_are_refused(job: Shell) -> None:
    """A shell pattern lists files by name."""
    (job.work / "some.py").write_text("def every(records, n):\n    yield 'b.fa', b'1'\n    yield 'a.fa', b'2'")
    done = job.run("millrace run job.toml")
    assert done.code == 5, done.shown
    assert "a.fa was written after b.fa" in done.err


def test_a_filter_that_fails_ends_the_job(job: Shell) -> None:
    (job.work / "job.toml").write_text((job.work / "job.toml").read_text().replace("grep -v x", "cat; exit 7"))
    done = job.run("millrace run job.toml")
    assert done.code == 4, done.shown
    assert "phase keep: cat; exit 7: ended with exit status 7" in done.err


def test_changed_function_is_another_job(job: Shell) -> None:
    (job.work / "some.py").write_text("def every(records, n):\n    raise SystemExit(9)")
    assert job.run("millrace run job.toml").code != 0
    (job.work / "some.py").write_text(SOME)
    done = job.run("millrace run job.toml")
    assert done.code == 2, done.shown
    assert "was begun otherwise: phase some: some.py has changed" in done.err and "--fresh" in done.err, done.shown
    done = job.run("rm -r some; millrace run --fresh job.toml > out")
    assert (done.code, contents(job.work)) == (0, serial(job)), done.shown


def test_unreadable_input_is_not_reported_as_function_error(tmp_path: Path) -> None:
    from millrace.extensions.workflow.filter_execution import FileOutput, apply_function

    def broken():  # type: ignore[no-untyped-def]
        yield b"one"
        raise OSError(5, "Input/output error", "hits.tsv")

    def user(records):  # type: ignore[no-untyped-def]
        try:
            yield from records
        except OSError as error:
            raise ValueError("of the user") from error

    output = FileOutput(tmp_path / "out")
    with pytest.raises(OSError, match=r"hits\.tsv"):
        apply_function(user, broken(), {}, output, "phase x")
    output.finish()


def test_ranks_started_by_others_are_refused(job: Shell) -> None:
    said = job.run("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 millrace run job.toml")
    assert said.code == 2
    assert "a job in phases starts its own ranks\n\nhint: leave mpirun or srun out: millrace run --hosts" in said.err
    assert not job.run_dirs()


def test_filter_reruns_when_an_earlier_phase_has_new_results(shell: Shell) -> None:
    shell.tool("picky", 'text=$(cat); case $text in *bad*) [ -e $MARK/ok ] || exit 1;; esac; printf "%s\\n" "$text"')
    (shell.work / "in.fa").write_text(">A\nMKV\n>B bad\nMAA\n>C\nMLL\n")
    (shell.work / "job.toml").write_text(
        """
        [phase.pick]
        command = "picky"
        stdin = "in.fa"
        stdout = "mid.fa"
        format = "fasta"
        batch = "1"
        [phase.low]
        filter = "tr A-Z a-z"
        input = "mid.fa"
        output = "end.fa"
        """
    )
    assert shell.run("millrace run job.toml").code == 3
    assert (shell.work / "end.fa").read_text() == ">a\nmkv\n>c\nmll\n"
    ended = shell.run("touch $MARK/ok; millrace run --retry-quarantined job.toml")
    assert ended.code == 0, ended.shown
    assert (shell.work / "end.fa").read_text() == (shell.work / "in.fa").read_text().lower()
