"""SIGKILL in the first moments of a run, between any two things that it does: the next starts leave nothing of it."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest

#: Calls before and after which the world is another.
CALLS = "mkdir,mkdirat,rename,renameat,renameat2,link,unlink,unlinkat,rmdir,flock,fsync,fdatasync,clone,vfork,write,pwrite64"

#: What there is after a run to the end: what was there before it, and what is remembered of the tool.
LEFT = {"in", "in/in.fa", "work", "tmp", "home", "home/state", "home/state/millrace", "home/state/millrace/learnt.json",
        "home/cache", "home/cache/millrace", "home/cache/millrace/versions"}  # fmt: skip

KEPT = re.compile(r"home/state/millrace/runs(/[0-9a-f]+(/run.json|/events.jsonl)?)?")

MARK = f"start-{os.getpid()}"


@dataclass
class Starts:
    folder: Path

    def __post_init__(self) -> None:
        for name in ("in", "work", "tmp", "home"):
            (self.folder / name).mkdir()
        (self.folder / "in/in.fa").write_text("".join(f">r{k}\nMKV\n" for k in range(6)))

    def run(self, *before: str, spares_helpers: bool = False) -> int:
        """Start the run, and if it is killed, kill all that is left of it, also what would clean up: as where a job is killed.

        Args:
            spares_helpers: Only the run itself is killed.
        """
        words = [
            "run",
            "--slots",
            "1",
            "--batch",
            "2",
            "--verify",
            "0",
            "--progress",
            "none",
            "--input",
            "in.fa",
            "--output",
            "out",
        ]
        environ = {
            "MILLRACE_WORK": "work",
            "TMPDIR": "tmp",
            "HOME": "home",
            "XDG_STATE_HOME": "home/state",
            "XDG_CACHE_HOME": "home/cache",
        }
        done = subprocess.run(
            [*before, sys.executable, "-m", "millrace", *words, "--", "sh", "-c", "cat in.fa > out"], cwd=self.folder / "in",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env={**os.environ, **{name: str(self.folder / path) for name, path in environ.items()}, harness.MARK: MARK},
        )  # fmt: skip
        self.said = done.stdout
        deadline = time.monotonic() + harness.LONGEST_SECONDS
        while left := harness.marked(MARK):
            assert time.monotonic() < deadline, [harness.describe(pid) for pid in left]
            for pid in left if done.returncode and not spares_helpers else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        return done.returncode

    def calls(self) -> list[tuple[str, int]]:
        """Calls that a run makes, in the thread that does all of this: which, and the how manyeth of its name."""
        log = self.folder / "calls"
        assert self.run("strace", "-qq", "-o", str(log), "-e", f"trace={CALLS}", "-e", "signal=none") == 0, self.said
        (self.folder / "in/out").unlink()
        names = re.findall(r"^(\w+)\(", log.read_text(), re.MULTILINE)
        log.unlink()
        return [(name, names[: at + 1].count(name)) for at, name in enumerate(names)]

    def kill_at(self, name: str, n: int) -> None:
        """Kill it as it is about to make the ``n``-th of its calls of this name."""
        log = str(self.folder / "calls")
        code = self.run("strace", "-qq", "-o", log, "-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={n}")
        assert code in (-signal.SIGKILL, 0), self.said  # 0: what was done before need not be done again
        Path(log).unlink()

    def left(self) -> set[str]:
        """All that there is after a run to the end, and one from the start, which writes anew what is remembered of its cost."""
        for path in [*(self.folder / "work").iterdir(), *(self.folder / "home").rglob(".new-*")]:
            os.utime(path, (0, 0))  # what was just begun is given some time
        for _ in range(2):
            assert self.run() == 0, self.said
            assert (self.folder / "in/out").read_bytes() == (self.folder / "in/in.fa").read_bytes()
            (self.folder / "in/out").unlink()
        found = {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}
        return {path for path in found if not KEPT.fullmatch(path)}


@pytest.fixture
def starts(tmp_path: Path) -> Starts:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")
    return Starts(tmp_path)


def check(starts: Starts, moments: Sequence[tuple[str, int]]) -> None:
    for name, n in moments:
        starts.kill_at(name, n)
    assert starts.left() <= LEFT, f"after kills at {moments}"


def test_start_killed_at_random_moments_leaves_nothing(starts: Starts) -> None:
    calls = starts.calls()
    assert {"mkdir", "rename", "unlink"} <= {name for name, _ in calls}
    check(starts, random.Random(7).choices(calls, k=4))


@pytest.mark.slow
def test_start_killed_at_any_moment_leaves_nothing(starts: Starts) -> None:
    for moment in starts.calls():
        check(starts, [moment])


@pytest.mark.slow
def test_start_killed_while_its_view_is_tried_leaves_nothing(starts: Starts) -> None:
    log = starts.folder / "calls"
    assert starts.run("strace", "-qq", "-o", str(log), "-e", "trace=mkdir") == 0, starts.said
    made = re.findall(r'^mkdir\("([^"]*)"', log.read_text(), re.MULTILINE)
    moments = [
        n for n, path in enumerate(made, 1) if path.startswith(f"{starts.folder}/work/") and "/slot-" not in path
    ]
    assert any("/mask-" in made[n - 1] for n in moments), made
    for n in moments:
        words = ["-qq", "-o", str(log), "-e", "trace=mkdir", "-e", f"inject=mkdir:signal=KILL:when={n}"]
        (starts.folder / "in/out").unlink(missing_ok=True)
        shutil.rmtree(starts.folder / "in/sh.millrace", ignore_errors=True)
        starts.run("strace", *words, spares_helpers=True)
        assert not list((starts.folder / "work").iterdir()), (made[n - 1], starts.said)
