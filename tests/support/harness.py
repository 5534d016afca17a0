"""Kills Millrace at chosen moments, and looks at what is left. Used by tests and ``bench.chaos``."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace import _core
from millrace.host import work_places
from millrace.node import work_dir

#: How long a test waits for what must come, as a last resort: no machine is as slow as that.
LONGEST_SECONDS = 300.0

#: Names every process that descends from a run of ours, tools and their children included.
MARK = "MILLRACE_CRASH_TEST"

#: When to kill: at a random time, or as soon as something can be seen on the disk.
MOMENTS = ("random", "begin", "manifest", "journal", "output", "complete", "cleanup")

#: What to kill.
TARGETS = ("millrace", "stopped", "group", "watchdog", "again", "tool")


@dataclass(frozen=True)
class Case:
    """One command with small real input, and what it gives when it is run by itself."""

    name: str
    folder: Path
    #: Options of ``millrace run``.
    options: tuple[str, ...]
    tool: tuple[str, ...]
    #: In the order of the arguments: the run directory has the name of the first.
    outputs: tuple[str, ...]
    #: What differs between two serial runs.
    volatile: tuple[bytes, ...] = ()
    verb: str = "run"
    expected: dict[str, bytes] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        return self.folder / f"{self.outputs[0]}.millrace"

    @property
    def journal(self) -> Path:
        return self.run_dir / "journal.mrj"

    def mask(self, content: bytes) -> bytes:
        """``content`` without what differs between two serial runs."""
        for pattern in self.volatile:
            content = re.sub(pattern, b"", content, flags=re.MULTILINE)
        return content

    def serial(self) -> None:
        """Run the tool by itself, and keep what it writes as what is expected."""
        subprocess.run(self.tool, cwd=self.folder, check=True, capture_output=True)
        for name in self.outputs:
            self.expected[name] = self.mask((self.folder / name).read_bytes())
            (self.folder / name).unlink()

    def differing(self) -> list[str]:
        """Names of outputs that are not what the serial run gave."""
        found = []
        for name in self.outputs:
            path = self.folder / name
            if not path.exists() or self.mask(path.read_bytes()) != self.expected[name]:
                found.append(name)
        return found

    def start(self, mark: str, *more: str, **popen: object) -> subprocess.Popen[bytes]:
        """Start Millrace in a session of its own."""
        command = [
            sys.executable,
            "-m",
            "millrace",
            self.verb,
            "--slots",
            "2",
            *self.options,
            *more,
            "--",
            *self.tool,
        ]
        with (self.folder / "stderr.txt").open("ab") as said:
            return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
                command,
                cwd=self.folder,
                env={**os.environ, MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
                **popen,
            )


def blastp(folder: Path, data: Path, n_queries: int = 24, n_targets: int = 2500) -> Case:
    """Protein search in its generic form, each record by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    take(data / "proteins_db.faa", folder / "db.faa", n_targets)
    take(data / "proteins_queries.faa", folder / "q.faa", n_queries)
    subprocess.run(
        ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    tool = ("blastp", "-query", "q.faa", "-db", "db", "-outfmt", "6", "-out", "out.tsv")
    options = ("--batch", "2", "--input", "q.faa", "--output", "out.tsv")
    return Case("blastp", folder, options, tool, ("out.tsv",))


def blastp_fragments(folder: Path, data: Path) -> Case:
    """The same with each query searched in three fragments of the database, and then in its candidates."""
    whole = blastp(folder, data, 12, 1500)
    tool = (*whole.tool[:5], "-outfmt", "7", *whole.tool[7:])
    return Case("blastp_fragments", folder, ("--batch", "3", "--fragments", "3"), tool, whole.outputs)


def mmseqs(folder: Path, data: Path) -> Case:
    """Protein search in a database that each start makes, of queries in another order than that of the input."""
    folder.mkdir(parents=True, exist_ok=True)
    take(data / "proteins_db.faa", folder / "db.faa", 1500)
    take(data / "proteins_queries.faa", folder / "q.faa", 150)
    tool = ("mmseqs", "easy-search", "q.faa", "db.faa", "out.m8", "tmp", "-k", "5", "--threads", "1", "-v", "1")
    return Case("mmseqs", folder, ("--batch", "8"), tool, ("out.m8",))


def hmmscan(folder: Path, data: Path, n_queries: int = 240) -> Case:
    """Profile search with two joined outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in data.glob("profiles.hmm*"):
        shutil.copyfile(path, folder / path.name)
    subprocess.run(["hmmpress", "-f", "profiles.hmm"], cwd=folder, check=True, capture_output=True)
    take(data / "proteins_queries.faa", folder / "q.faa", n_queries)
    tool = ("hmmscan", "--cpu", "1", "--tblout", "t.txt", "-o", "o.txt", "profiles.hmm", "q.faa")
    return Case("hmmscan", folder, ("--batch", "12"), tool, ("t.txt", "o.txt"), volatile_of(tool, folder))


def volatile_of(tool: tuple[str, ...], folder: Path) -> tuple[bytes, ...]:
    """What the adapter says may differ between two serial runs."""
    from millrace.adapters import registry
    from millrace.core.tool_use import UserCommand

    command = UserCommand(argv=tool, cwd=folder, environ=dict(os.environ), exe=Path(shutil.which(tool[0]) or tool[0]))
    use = registry.find_adapter(tool[0]).understand_command(command)
    return tuple(dict.fromkeys(os.fsencode(each) for output in use.outputs for each in output.volatile))


def take(source: Path, dest: Path, n_records: int) -> None:
    """Copy the first records of a FASTA file."""
    records = source.read_bytes().split(b"\n>")[:n_records]
    dest.write_bytes(b"\n>".join(records).rstrip(b"\n") + b"\n")


# What is left


def marked(mark: str) -> list[int]:
    """Processes, not counting zombies, that descend from the runs of ``mark``."""
    found = []
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if needle in (entry / "environ").read_bytes().split(b"\0") and b") Z " not in (entry / "stat").read_bytes():
                found.append(int(entry.name))
    return found


def dead_work() -> frozenset[Path]:
    """Work directories whose run is dead: nobody holds their lock, and nobody is about to.

    Looked up where the kernel lists locks: who tried them would be taken for the owner of a new one.
    """
    held = {line.split("->")[-1].split()[5].rpartition(":")[2] for line in Path("/proc/locks").read_text().splitlines()}
    found = set()
    for place in {place.resolve() for place in work_places.list_work_places()}:
        for path in place.glob(f"{work_dir.build_name_prefix()}*"):
            with contextlib.suppress(OSError):
                if str(path.stat().st_ino) not in held and not _is_begun(path):
                    found.add(path)
    return frozenset(found)


def _is_begun(path: Path) -> bool:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return work_dir.is_being_made(folder)
    finally:
        os.close(folder)


def left_over(mark: str, known: frozenset[Path] = frozenset(), seconds: float = LONGEST_SECONDS) -> str:
    """Wait until nothing is left of the runs of ``mark`` but ``known``; what still is then, in words."""
    if wait_until(lambda: not marked(mark) and not dead_work() - known, seconds=seconds):
        return ""
    return f"processes {[describe(pid) for pid in marked(mark)]}, folders {dead_work() - known}"


def describe(pid: int) -> str:
    """A process for a message."""
    try:
        return f"{pid} {(Path('/proc') / str(pid) / 'comm').read_text().strip()}"
    except OSError:
        return f"{pid} (gone)"


def journal_problem(path: Path) -> str:
    """What is wrong with a journal: damage, or an extent that it holds twice; empty if nothing is."""
    try:
        scan = _core.scan(str(path), True)
    except FileNotFoundError:
        return ""
    except _core.CorruptJournal as error:
        return str(error)
    if scan.damage:
        return str(scan.damage)
    for fragment in {task.fragment for task in scan.tasks}:
        reached = 0
        for first, last in sorted((task.first, task.last) for task in scan.tasks if task.fragment == fragment):
            if first < reached:
                return f"records {first + 1} to {last} are there twice (fragment {fragment})"
            reached = last
    return ""


def children(pid: int) -> list[tuple[int, str]]:
    """(number, name) of the processes that ``pid`` has started: watchdog and tools."""
    found = []
    with contextlib.suppress(OSError):
        for task in (Path("/proc") / str(pid) / "task").iterdir():
            for child in (task / "children").read_text().split():
                with contextlib.suppress(OSError):
                    found.append((int(child), (Path("/proc") / child / "comm").read_text().strip()))
    return found


def tools(pid: int) -> list[int]:
    """The tools that ``pid`` has started, not counting its questions for a version."""
    found = []
    for child, _ in children(pid):
        with contextlib.suppress(OSError):
            if f"{work_dir.TOKEN_NAME}=".encode() in (Path("/proc") / str(child) / "environ").read_bytes():
                found.append(child)
    return found


def work_of(pid: int) -> Path:
    """The work directory of a running Millrace, which it holds open."""
    opened = (link.readlink() for link in (Path("/proc") / str(pid) / "fd").iterdir())
    return next(path for path in opened if path.name.startswith(work_dir.build_name_prefix()))


# Killing


@dataclass
class Chaos:
    """Kills one case again and again; every complete run is compared with the serial one.

    Args:
        case: What is run.
        seed: Decides all moments and targets.
    """

    case: Case
    seed: int
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    complete: int = 0
    started: int = 0
    missed: int = 0
    #: Starts that found results of an earlier one.
    resumed: int = 0
    problems: list[str] = field(default_factory=list)
    #: Seconds that a run takes, about.
    longest: float = 1.0
    #: Work directories whose watchdog we killed: they stay until the next run has begun.
    unswept: frozenset[Path] = frozenset()

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.mark = f"{self.case.name}-{self.seed}-{os.getpid()}"

    @property
    def n_kills(self) -> int:
        return sum(self.kills.values())

    def until(self, n_kills: int) -> None:
        """Kill so many times, then let the last run come to its end."""
        while self.n_kills < n_kills:
            self.once(self.random.choice(MOMENTS), self.random.choice(TARGETS))
        self.finish()

    def once(self, moment: str, target: str) -> None:
        """Start, wait for the moment, kill; compare if the run came to its end before."""
        process = self._start()
        begun = time.monotonic()
        seen = self._wait_for(process, moment)
        if process.poll() is None and self._kill(process, target):
            self.kills[(moment if seen else "random", target)] += 1
        if target == "tool":
            # The run goes on: what it lost is tried again.
            process.wait()
        if process.poll() is None:
            process.wait()
        if process.returncode == -signal.SIGKILL:
            self._look(swept=target != "watchdog")
        else:
            self.missed += target != "tool"
            self._ended(process.returncode, begun)

    def finish(self) -> None:
        """Let it run to its end."""
        begun = time.monotonic()
        self._ended(self._start().wait(), begun)

    def _start(self) -> subprocess.Popen[bytes]:
        self.started += 1
        if self.case.journal.exists() and _core.scan(str(self.case.journal), False).tasks:
            self.resumed += 1
        return self.case.start(self.mark)

    def _kill(self, process: subprocess.Popen[bytes], target: str) -> bool:
        if target == "tool":
            for pid in tools(process.pid)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    return True
            return False
        if target == "stopped":
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.02)
        if target == "watchdog":
            for pid, name in children(process.pid):
                if name == "millrace-watch":
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        if target == "group":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        if target == "again" and process.returncode == -signal.SIGKILL:
            # Another one starts while the first is being cleaned up, and dies too.
            other = self._start()
            time.sleep(self.random.uniform(0.0, 0.5))
            other.kill()
            if other.wait() == -signal.SIGKILL:
                self.kills[("cleanup of a kill", "again")] += 1
            else:
                self._ended(other.returncode, time.monotonic())
        return process.returncode == -signal.SIGKILL

    def _wait_for(self, process: subprocess.Popen[bytes], moment: str) -> bool:
        case = self.case
        share = self.random.random()
        if moment == "random":
            deadline = time.monotonic() + share * self.longest
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            return True
        total = sum(len(content) for content in case.expected.values())
        output, run_dir = case.folder / case.outputs[0], case.run_dir
        tests: dict[str, Callable[[], bool]] = {
            "begin": lambda: (run_dir / "lock").exists(),
            "manifest": lambda: (run_dir / "job.json").exists(),
            "journal": lambda: size(case.journal) > share * total,
            "output": lambda: size(output) > share * len(case.expected[case.outputs[0]]),
            "complete": lambda: any((run_dir / name).exists() for name in ("complete.json", "complete.json.new")),
            "cleanup": lambda: self._had_journal and not case.journal.exists(),
        }  # fmt: skip
        self._had_journal = False
        while process.poll() is None:
            self._had_journal = self._had_journal or case.journal.exists()
            if tests[moment]():
                return True
            time.sleep(0.0002)
        return False

    def _look(self, *, swept: bool) -> None:
        if swept and (left := left_over(self.mark, self.unswept)):
            self.problems.append(f"left over: {left}")
        if not swept:
            if not wait_until(lambda: not marked(self.mark)):
                self.problems.append(f"left over: {marked(self.mark)}")
            self.unswept |= dead_work()
        if problem := journal_problem(self.case.journal):
            self.problems.append(f"journal: {problem}")

    def _ended(self, code: int, begun: float) -> None:
        self.longest = 0.5 * self.longest + 0.5 * (time.monotonic() - begun)
        if code:
            said = (self.case.folder / "stderr.txt").read_text(errors="replace")[-2000:]
            self.problems.append(f"exit code {code}: {said}")
            return
        self.complete += 1
        self.unswept = frozenset()
        if differing := self.case.differing():
            self.problems.append(f"not the serial bytes: {differing}")
        if self.case.run_dir.exists():
            self.problems.append(f"run directory left: {list(self.case.run_dir.iterdir())}")
        if left := left_over(self.mark):
            self.problems.append(f"left over: {left}")
        # One time in two the next run finds the old outputs, and writes over them.
        if self.random.random() < 0.5:
            for name in self.case.outputs:
                (self.case.folder / name).unlink(missing_ok=True)


def size(path: Path) -> int:
    """Size of a file, 0 if it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def heard(process: subprocess.Popen[str]) -> str:
    """What a run says until it has heard the first signal."""
    said = ""
    while "no more work is handed out" not in said:
        assert process.stderr
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def wait_until(
    condition: Callable[[], bool], process: subprocess.Popen[Any] | None = None, seconds: float = LONGEST_SECONDS
) -> bool:
    """Wait for a condition; whether it came true in time.

    Args:
        process: What is to bring it about: there is nothing to wait for once it has ended.
    """
    deadline = time.monotonic() + seconds
    while True:
        ended = process is not None and process.poll() is not None
        begun = time.monotonic()
        if condition():
            return True
        if ended or time.monotonic() > deadline:
            return False
        # What is dear to look at, such as all processes, is looked at seldom: what is waited for needs the cores.
        time.sleep(min(max(0.005, 4 * (time.monotonic() - begun)), 0.2))


#: Lines of bash: ``watched PROCESS FILE`` notes how often each of its threads has rested, and waits until one of them has
#: done so fifty times more. Who looks around at short intervals has looked by then, however slow the machine is.
WATCHED = """
rests() { grep -H ^voluntary /proc/$1/task/*/status; }
watched() {
    rests $1 > $2
    until rests $1 | awk 'NR == FNR { was[$1] = $2; next } $2 - was[$1] > 50 { n++ } END { exit !n }' $2 -; do sleep 0.05; done
}
"""


def grid() -> Iterator[tuple[str, str]]:
    """Every moment with every target."""
    return ((moment, target) for moment in MOMENTS for target in TARGETS)
