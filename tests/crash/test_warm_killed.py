"""Kills while a tool is warm: the tool that waits, a fork of it, Millrace; nothing lost, nothing left behind."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
from parameter_choice import again

N = 20
FASTA = "".join(f">r{k}\nM\n" for k in range(N))

#: Stops at record r9 until it may go on.
TOOL = """
import os, sys, time
me = os.getpid()
text = open(sys.argv[1]).read()
held = os.environ["HELD"]
if ">r9\\n" in text and os.getpid() != me and not os.path.exists(held + ".go"):
    open(held, "w").write(f"{me} {os.getpid()}\\n")
    while not os.path.exists(held + ".go"):
        time.sleep(0.01)
open(sys.argv[2], "w").write(text)
"""


class Held:
    """A run that has come to the record at which the tool stops."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, folder.with_name("held")
        folder.mkdir()
        (folder / "tool.py").write_text(TOOL)
        (folder / "q.fa").write_text(FASTA)
        self.process = self.start()
        assert harness.wait_until(lambda: harness.size(self.place) > 0, self.process), self.process.poll()
        #: The tool that waits, and its fork.
        self.server, self.fork = map(int, self.place.read_text().split())

    def start(self, how: str = "--warm") -> subprocess.Popen[str]:
        words = f"{how} --slots 1 --batch 1 --retries 0 --input q.fa --output out.fa"
        return subprocess.Popen(
            [sys.executable, "-m", "millrace", "run", *shlex.split(words), "--", sys.executable, "tool.py", "q.fa", "out.fa"],
            cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, harness.MARK: str(self.folder), "HELD": str(self.place)},
        )  # fmt: skip

    @property
    def run_dir(self) -> Path:
        return self.folder / "out.fa.millrace"

    def release(self) -> None:
        self.place.with_name(f"{self.place.name}.go").touch()

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        self.release()
        said = process.communicate(timeout=harness.LONGEST_SECONDS)[1]
        return process.returncode, said

    def whole(self) -> bool:
        return (self.folder / "out.fa").read_text() == FASTA


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    before = harness.dead_work()
    made = Held(tmp_path / "work")
    yield made
    made.process.kill()
    assert not harness.left_over(str(made.folder), before)


def test_fork_is_a_child_in_its_own_process_group(held: Held) -> None:
    stat = Path(f"/proc/{held.fork}/stat").read_text().rpartition(")")[2].split()
    assert int(stat[1]) == held.process.pid and int(stat[2]) == held.fork, "parent and process group"
    code, said = held.end(held.process)
    assert code == 0 and held.whole(), said


def test_killed_warm_tool_is_started_again(held: Held) -> None:
    os.kill(held.server, signal.SIGKILL)
    code, said = held.end(held.process)
    assert code == 0 and "in forks of" in said and held.whole(), said


def test_a_killed_fork_runs_again_by_itself(held: Held) -> None:
    os.kill(held.fork, signal.SIGKILL)
    code, said = held.end(held.process)
    assert code == 0 and "in forks of" in said and held.whole(), said


@pytest.mark.slow
def test_both_killed(held: Held) -> None:
    os.kill(held.server, signal.SIGKILL)
    os.kill(held.fork, signal.SIGKILL)
    code, said = held.end(held.process)
    assert code == 0 and held.whole(), said


def test_killed_run_with_all_forks_leaves_nothing(held: Held) -> None:
    """The same command resumes it."""
    held.process.kill()
    held.process.communicate()
    assert not harness.left_over(str(held.folder))
    code, said = held.end(held.start())
    assert code == 0 and held.whole(), said


@pytest.mark.parametrize("how", ["", again("--warm")])
def test_interrupted_warm_run_resumes_with_or_without_forks(held: Held, how: str) -> None:
    for _ in range(2):
        held.process.send_signal(signal.SIGINT)
    held.process.communicate(timeout=harness.LONGEST_SECONDS)
    assert held.process.returncode == 130 and held.run_dir.exists()
    code, said = held.end(held.start(how))
    assert code == 0 and ("in forks" in said) == bool(how) and held.whole(), said


def test_an_interrupted_run_keeps_the_fork_that_runs_and_resumes(held: Held) -> None:
    held.process.send_signal(signal.SIGINT)
    harness.heard(held.process)
    code, said = held.end(held.process)
    assert code == 130, said
    assert not harness.left_over(str(held.folder))
    code, said = held.end(held.start())
    assert code == 0 and held.whole(), said


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(held: Held) -> None:
    held.process.send_signal(signal.SIGTERM)
    harness.heard(held.process)
    held.process.send_signal(signal.SIGTERM)
    said = held.process.communicate(timeout=harness.LONGEST_SECONDS)[1]
    assert held.process.returncode == 143, said
    assert not harness.left_over(str(held.folder))
    code, said = held.end(held.start())
    assert code == 0 and held.whole(), said
