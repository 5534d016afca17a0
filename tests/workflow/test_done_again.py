"""A job in phases that is done, typed again; and a phase that reads one of two folders of another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from parameter_choice import some
from shell import Shell

JOB = """
[phase.some]
python = "some.py:each"
input = "in.fa"
output = "some/"
[phase.sizes]
command = ["sh", "-c", 'wc -c < "$1" > "$2"', "sizes", "some/", "sizes/{stem}.txt"]
input = "some/"
output = "sizes/{stem}.txt"
[phase.join]
filter = "cat"
input = "sizes/"
output = "all.txt"
"""


@pytest.fixture
def state(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """With a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(shell.root / "state"))
    return shell


def finish_job(shell: Shell) -> None:
    """Do a job whose phases fill folders; not in a fixture, during which the environment is another one."""
    (shell.work / "some.py").write_text(
        "def each(records):\n    for number, record in enumerate(records):\n        yield f'{number}.fa', record\n"
    )
    (shell.work / "job.toml").write_text(JOB)
    (shell.work / "sizes").mkdir()
    ended = shell.run("millrace run job.toml")
    assert (ended.code, ended.err) == (0, "millrace: 3 phases done\n"), ended.shown


def times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_job_in_phases_says_that_it_uses_no_store(state: Shell) -> None:
    (state.work / "job.toml").write_text('[phase.copy]\nfilter = "cat"\ninput = "in.fa"\noutput = "all.txt"\n')
    told = state.run("millrace run --store runs job.toml")
    assert told.code == 0 and "store: not used: a job in phases" in told.err, told.shown
    planned = state.run("millrace plan --store runs job.toml")
    assert planned.code == 0 and "note:      store: not used: a job in phases" in planned.out, planned.shown


def test_repeated_finished_job_reports_that_it_is_done(state: Shell) -> None:
    finish_job(state)
    before = times(state.work)
    again = state.run("millrace run job.toml")
    assert (again.code, again.out) == (0, ""), again.shown
    assert again.err == "millrace: already done: an earlier start wrote everything, 3 phases\n", again.shown
    assert times(state.work) == before
    planned = state.run("millrace plan job.toml")
    assert planned.code == 0, planned.shown
    assert times(state.work) == before


@pytest.mark.parametrize(
    "change",
    some([
        "printf '>r4\\nMWW\\n' >> in.fa", "touch some/1.fa", "rm -f sizes/2.txt", "echo >> all.txt", "touch some/other",
        "export OTHER=1", "sed -i 's/filter = \"cat\"/filter = \"cat -u\"/' job.toml", "echo >> some.py", "rm -rf $MARK/state",
    ], "rm -f sizes/2.txt", "echo >> some.py"),
)  # fmt: skip
def test_changed_job_is_not_reported_as_done(state: Shell, change: str) -> None:
    finish_job(state)
    again = state.run(f"{change}; millrace run job.toml")
    assert again.code == 2 and "there are files in it already" in again.err and "rm -r" in again.err, again.shown
    anew = state.run(f"{change}; rm -rf some/* sizes/*; millrace run job.toml")
    assert anew.code == 0 and anew.err == "millrace: 3 phases done\n", anew.shown


def test_job_that_prints_runs_again(state: Shell) -> None:
    (state.work / "job.toml").write_text('[phase.a]\ncommand = "cat"\nstdin = "in.fa"\nformat = "fasta"\n')
    for _ in range(2):
        ended = state.run("millrace run job.toml")
        assert ended.code == 0 and ended.out == (state.work / "in.fa").read_text(), ended.shown


TWO_FOLDERS = """
[phase.two]
command = ["sh", "-c", 'cp "$1" "$2"; wc -c < "$1" > "$3"', "two", "in/", "a/{stem}.fa", "b/{stem}.txt"]
input = "in/"
output = ["a/{stem}.fa", "b/{stem}.txt"]
[phase.first]
command = ["sh", "-c", 'cat "$@"', "first", "a/"]
input = "a/"
stdout = "first.txt"
[phase.second]
filter = "cat"
input = "b/"
output = "second.txt"
"""


def test_phase_reads_one_of_two_output_folders(shell: Shell) -> None:
    for name in ("in", "a", "b"):
        (shell.work / name).mkdir()
    for number in range(30):
        (shell.work / "in" / f"{number:03}.fa").write_text(f">r{number}\n{'MKV' * number}\n")
    (shell.work / "job.toml").write_text(TWO_FOLDERS)
    planned = shell.run("millrace plan job.toml")
    assert planned.code == 0 and "<-- a from [two], record by record" in planned.out, planned.shown
    ended = shell.run("millrace run job.toml")
    assert ended.code == 0, ended.shown
    files = sorted((shell.work / "in").iterdir())
    assert (shell.work / "first.txt").read_text() == "".join(file.read_text() for file in files)
    assert (shell.work / "second.txt").read_text() == "".join(f"{os.stat(file).st_size}\n" for file in files)
