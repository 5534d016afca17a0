"""Filters and functions that end in another way than at the end of their input."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import wait_until
from shell import Shell

#: A function that gives files, and a filter that reads them.
FILES = """
[phase.some]
python = "some.py:files"
input = "in.fa"
output = "some/"
[phase.all]
filter = "{line}"
input = "some/"
output = "all.fa"
"""


@pytest.mark.parametrize("line", ["cat", "cat | tr a-z A-Z", "exec 3<&0; cat <&3 & wait"])
def test_filter_over_reordered_files_ends_its_processes(shell: Shell, line: str) -> None:
    (shell.work / "some.py").write_text("def files(records):\n    yield 'b.fa', b'1'\n    yield 'a.fa', b'2'")
    (shell.work / "job.toml").write_text(FILES.format(line=line))
    done = shell.run("millrace run job.toml")
    assert done.code == 5, done.shown
    assert "phase all: some: a.fa was written after b.fa" in done.err
    assert wait_until(lambda: not shell.processes())


def test_filter_over_files_waits_for_their_folder(tmp_path: Path) -> None:
    """Whichever process is the first to run."""
    from millrace.core.job import JobSpec
    from millrace.extensions.workflow.filter_input import FilterInput, locate_file_list
    from millrace.extensions.workflow.phase_chain import WorkflowLink, open_link_pair
    from millrace.extensions.workflow.planned_phases import PlannedPhase, WorkflowContext
    from millrace.extensions.workflow.workflow_description import PhaseDescription

    here = WorkflowContext(tmp_path, {}, tmp_path)

    class Begins(WorkflowLink):
        def wait_until_begun(self, output: str) -> None:
            """The other phase begins just now."""
            (tmp_path / "some").mkdir(exist_ok=True)
            (tmp_path / "some/a.fa").write_text(">a\nACGT\n")
            locate_file_list(here, "first").write_text("a.fa\n")
            super().wait_until_begun(output)

    ours, theirs = open_link_pair()
    with ours, theirs:
        phase = PhaseDescription("second", "filter", text="cat", job=JobSpec(command=(), input=("some/",)))
        source = FilterInput(PlannedPhase(phase, streams={"some": "first"}), here, Begins(theirs, (), ("some",)))
        assert [*source.read_blocks()] == [b">a\nACGT\n"]


def test_a_filter_may_end_before_its_input(tmp_path: Path) -> None:
    """What comes once it is gone is written nowhere."""
    from millrace.extensions.workflow.filter_execution import FileOutput, run_shell_line

    ended = threading.Event()

    def late() -> Iterator[bytes]:
        yield b"one\n"
        ended.wait()
        yield b"two\n"

    known = {*threading.enumerate()}
    run_shell_line("head -n 1", late(), FileOutput(tmp_path / "out"), tmp_path, "phase x")
    ended.set()
    for thread in {*threading.enumerate()} - known:
        thread.join()  # an error in it is one of the test
    assert (tmp_path / "out").read_bytes() == b"one\n"


#: What ends the process of a phase without a word, as a library may; and what is said of it.
ENDS = {
    "python": ("some.py:ends", "some.py:ends: its process ended with exit status 0"),
    "filter": (
        "head -n 2; kill -SEGV $PPID; cat",
        "head -n 2; kill -SEGV $PPID; cat: its process was killed by SIGSEGV",
    ),
}


@pytest.mark.parametrize("kind", ENDS)
def test_phase_that_exits_silently_is_not_done(shell: Shell, kind: str) -> None:
    text, words = ENDS[kind]
    (shell.work / "some.py").write_text(
        "import os\ndef ends(records):\n    yield next(records)\n    yield next(records)\n    os._exit(0)\n"
    )
    (shell.work / "job.toml").write_text(
        f'[phase.a]\n{kind} = "{text}"\ninput = "in.fa:lines"\noutput = "a.fa"\n'
        '[phase.b]\nfilter = "cat"\ninput = "a.fa"\noutput = "b.fa"\n'
    )
    for _ in range(2):
        done = shell.run("millrace run job.toml")
        assert done.code == 4, done.shown
        assert f"phase a: {words} before it was done\n\nhint: " in done.err
        assert shell.run_dirs() == ["job.millrace"], "no trace is left of what was not done"


@pytest.mark.parametrize("status", ["", "0", "'no more'"])
def test_function_that_calls_exit_fails(shell: Shell, status: str) -> None:
    text = f"import sys\ndef ends(records):\n    yield next(records)\n    sys.exit({status})\n"
    (shell.work / "some.py").write_text(text)
    (shell.work / "job.toml").write_text('[phase.a]\npython = "some.py:ends"\ninput = "in.fa"\noutput = "a.fa"\n')
    done = shell.run("millrace run job.toml")
    assert done.code == 4, done.shown
    assert "phase a: some.py:ends: SystemExit" in done.err and f"    sys.exit({status})" in done.err
    assert "millrace/" not in done.err, "lines of code that is not the user's"


def test_a_file_that_calls_exit_is_refused(shell: Shell) -> None:
    (shell.work / "some.py").write_text("raise SystemExit('not here')")
    (shell.work / "job.toml").write_text('[phase.a]\npython = "some.py:ends"\ninput = "in.fa"\noutput = "a.fa"\n')
    done = shell.run("millrace run job.toml")
    assert done.code == 2, done.shown
    assert "phase a: some.py: cannot be loaded: SystemExit: not here" in done.err
    assert not shell.run_dirs()
