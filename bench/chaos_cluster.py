"""``python -m bench.chaos_cluster --runs 20``: kill or freeze a part of a supervised run on several nodes, again and again.

Each run has 4 to 8 nodes (``--nodes``), which are namespaces of this machine (root only), and is hit once: agent, coordinator, daemon,
launcher, or a whole node. It must come to its end by itself, with the serial bytes, and leave nothing. ``--log FILE``
keeps what was seen, so that a long series can be done in parts: the table is of all that is in it. ``--job``: ``plain``,
results one after the other; ``framed``, with a header and a footer that counts, so that nodes join what they write;
``hmmscan``, HMMER's report and table, in which two runs differ; ``mmseqs``, for which each node makes an index.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import namespace_nodes  # noqa: E402
import process_lookup  # noqa: E402
from cluster_site import find_millrace  # noqa: E402

from bench.results import show_table  # noqa: E402
from millrace import _core  # noqa: E402
from millrace.execution.resume import select_tasks  # noqa: E402
from millrace.host import work_places  # noqa: E402
from millrace.launch import sweep  # noqa: E402
from millrace.rundir.paths import RunDir  # noqa: E402

HEAD = "head"
NAMES = tuple(f"node{number}" for number in range(1, 9))

#: What is hit, by words in the arguments of its process; a whole node has none.
TARGETS = {"agent": "millrace run", "coordinator": "millrace run", "daemon": "prted", "launcher": "prterun", "node": ""}

#: Share of the hits that freeze; a whole node can only be killed.
FROZEN = 0.2

#: Seconds lost beyond which it is kept what the run said.
MUCH = 8.0

#: Large results, with a header and a footer that counts them.
FRAMED = """#!/bin/sh
sleep {seconds}
awk 'BEGIN {{ print "# results" }} /^>/ {{ n++ }} {{ for (k = 0; k < 50; k++) print k, $0 }} END {{ print "# " n " records" }}' "$1" > "$2"
"""

#: What differs between two runs of HMMER.
TIMES = re.compile(rb"^# (CPU time|Mc/sec|Date): .*$", re.MULTILINE)

#: Sleeps as a tool that computes would run: this machine's cores are few.
TOOL = '#!/bin/sh\nsleep {seconds}\nsed "s/^>/>seen /" "$1" > "$2"\n'


@dataclass
class Hit:
    """One run and what became of it."""

    target: str
    signal: str
    n_nodes: int
    #: Seconds from start to hit, to the end, and of a run that nobody disturbs.
    at: float
    took: float
    undisturbed: float
    #: Seconds of a task: those in flight are lost, whatever is done.
    task: float
    problems: list[str] = field(default_factory=list)
    #: What the run said, if much was lost.
    said: str = ""

    @property
    def lost(self) -> float:
        """Seconds lost beyond the tasks in flight; that a node fewer computes the rest is not counted."""
        fewer = self.n_nodes - (self.target == "node")
        return self.took - self.at - (self.undisturbed - self.at) * self.n_nodes / fewer - self.task


class PlainJob:
    """Records, each as it is but for its name."""

    script, options = TOOL, ""

    def __init__(self, folder: Path, n_records: int, seconds: float) -> None:
        self.folder = folder
        self.command = f"{self.options} --input in.fa --output out.fa -- ./tool in.fa out.fa"
        self.outputs: tuple[str, ...] = ("out.fa",)
        (folder / "in.fa").write_text("".join(f">record{k}\n{'ACDEFGHIKL' * 9}\n" for k in range(n_records)))
        self.write_tool("tool", self.script.format(seconds=seconds))
        self.expected = self.make_expected()

    def write_tool(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def make_expected(self) -> list[bytes]:
        """Run the tool serially; return its outputs."""
        subprocess.run(self.command.rpartition("-- ")[2].split(), cwd=self.folder, check=True)
        return self.read_outputs()

    def read_outputs(self) -> list[bytes]:
        """Return the outputs without what differs between two runs of the tool."""
        return [TIMES.sub(b"", (self.folder / name).read_bytes()) for name in self.outputs]


class FramedJob(PlainJob):
    """The same with a header and a footer that counts."""

    script, options = FRAMED, "--join header --join 'totals:^# (\\d+) records$'"


class HmmscanJob(PlainJob):
    """HMMER's report and table."""

    def __init__(self, folder: Path, n_records: int, seconds: float) -> None:
        self.folder, self.outputs = folder, ("out.fa", "table")
        self.command = "--run-dir out.fa.millrace -- ./hmmscan -o out.fa --tblout table p.hmm in.fa"
        data = Path(os.environ.get("MILLRACE_TEST_DATA", REPO / ".tools" / "data"))
        profiles = (data / "profiles.hmm").read_bytes().split(b"//\n")
        (folder / "p.hmm").write_bytes(b"".join(part + b"//\n" for part in profiles[:5]))
        proteins = (data / "proteins_db.faa").read_text().split("\n>")[1 : n_records + 1]
        (folder / "in.fa").write_text("".join(f">{protein}\n" for protein in proteins))
        subprocess.run(["hmmpress", "p.hmm"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        self.write_tool("hmmscan", f'#!/bin/sh\nsleep {seconds}\nexec {shutil.which("hmmscan")} "$@"\n')
        self.expected = self.make_expected()


class MmseqsJob(PlainJob):
    """MMseqs2's table; each node makes an index of the target first."""

    def __init__(self, folder: Path, n_records: int, seconds: float) -> None:
        self.folder, self.outputs = folder, ("out.fa",)
        self.command = "--run-dir out.fa.millrace -- mmseqs easy-search in.fa target.faa out.fa tmp -k 5 -e 1000 -v 1"
        data = Path(os.environ.get("MILLRACE_TEST_DATA", REPO / ".tools" / "data"))
        proteins = (data / "proteins_db.faa").read_text().split("\n>")[1:400]
        (folder / "target.faa").write_text("".join(f">{protein}\n" for protein in proteins))
        (folder / "in.fa").write_text("".join(f">{protein}\n" for protein in proteins[:n_records]))
        self.expected = self.make_expected()

    def make_expected(self) -> list[bytes]:
        """Run MMseqs2 with one thread: with more, its rows have another order in each run."""
        subprocess.run([*self.command.rpartition("-- ")[2].split(), "--threads", "1"], cwd=self.folder, check=True)
        return self.read_outputs()


JOBS = {"plain": PlainJob, "framed": FramedJob, "hmmscan": HmmscanJob, "mmseqs": MmseqsJob}


@dataclass
class Chaos:
    """Runs one command on some of ``cluster``'s nodes, and hits it."""

    cluster: namespace_nodes.Nodes
    folder: Path
    program: str
    random: random.Random
    n_records: int
    task_seconds: float
    #: Fewest and most nodes of a run.
    n_nodes: tuple[int, int] = (4, 8)
    kind: str = "plain"
    undisturbed: dict[int, float] = field(default_factory=dict)
    #: What the processes of the last run carried: other runs on this machine have others.
    tokens: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.job = JOBS[self.kind](self.folder, self.n_records, self.task_seconds)

    @property
    def run_dir(self) -> Path:
        return self.folder / "out.fa.millrace"

    def start(self, hosts: tuple[str, ...]) -> subprocess.Popen[bytes]:
        shutil.rmtree(self.run_dir, ignore_errors=True)
        for name in self.job.outputs:
            (self.folder / name).unlink(missing_ok=True)
        command = (
            f"cd {self.folder}; exec env MILLRACE_RSH={self.cluster.rsh} {self.program} run --hosts {','.join(hosts)} --slots 2 --batch 2 "
            f"--keep-run-dir --progress none {self.job.command}"
        )
        with (self.folder / "said.txt").open("wb") as said:
            return subprocess.Popen(
                self.cluster.command(HEAD, command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
            )

    def calm(self, n_nodes: int) -> float:
        """Seconds of a run on so many nodes that nobody disturbs."""
        if n_nodes not in self.undisturbed:
            begun = time.monotonic()
            code = self.start(NAMES[:n_nodes]).wait()
            self.undisturbed[n_nodes] = time.monotonic() - begun
            if problems := self.problems(code):
                raise SystemExit(f"the undisturbed run: {problems}")
        return self.undisturbed[n_nodes]

    def once(self) -> Hit | None:
        """One run; None if there was nothing to hit at that moment."""
        n_nodes = self.random.randint(*self.n_nodes)
        hosts = tuple(self.random.sample(NAMES[: self.n_nodes[1]], n_nodes))
        calm = self.calm(n_nodes)
        target = self.random.choice(list(TARGETS))
        number = signal.SIGSTOP if target != "node" and self.random.random() < FROZEN * 1.25 else signal.SIGKILL
        moment = self.random.uniform(0.2, calm)
        begun = time.monotonic()
        process = self.start(hosts)
        time.sleep(moment)
        self.tokens = {token for name in (HEAD, *hosts) for pid in self.cluster.pids(name) if (token := token_of(pid))}
        hit = process.poll() is None and self.hit(target, hosts, number)
        at = time.monotonic() - begun
        try:
            code = process.wait(timeout=300)
        except subprocess.TimeoutExpired:
            code = -1
        took = time.monotonic() - begun
        result = Hit(target, number.name, n_nodes, at, took, calm, self.task_seconds, self.problems(code))
        if result.lost > MUCH or result.problems:
            result.said = self.said
        for name in self.cluster.names:
            if not self.cluster.is_on(name):
                self.cluster.start(name)
        return result if hit else None

    def hit(self, target: str, hosts: tuple[str, ...], number: signal.Signals) -> bool:
        """Hit one process of a kind, or a node; whether there was one."""
        if target == "node":
            self.cluster.kill(self.random.choice(hosts))
            return True
        where = {"coordinator": hosts[:1], "launcher": (HEAD,), "agent": hosts[1:], "daemon": hosts}[target]
        found = [pid for name in where for pid in process_lookup.with_words(self.cluster.pids(name), TARGETS[target])]
        if not found:
            return False
        try:
            os.kill(self.random.choice(found), number)
        except ProcessLookupError:
            return False
        return True

    def problems(self, code: int) -> list[str]:
        """What is wrong after a run."""
        found = []
        if code:
            found.append(f"exit code {code}: {self.said[-1500:]}")
        elif self.job.read_outputs() != self.job.expected:
            found.append("not the serial bytes")
        else:
            tasks = [
                task for path in RunDir(self.run_dir).list_journals() for task in _core.scan(str(path), True).tasks
            ]
            if sum(task.last - task.first for task in select_tasks(tasks, False)) != self.n_records:
                found.append("the journals hold records twice, or not at all")
        deadline = time.monotonic() + 15
        while left := self.left():
            if time.monotonic() > deadline:
                found.append(f"left over: {left}")
                break
            time.sleep(0.05)
        return found

    @property
    def said(self) -> str:
        return (self.folder / "said.txt").read_text(errors="replace")

    def left(self) -> list[str]:
        """Processes and files that should be gone."""
        found = [
            f"{name}: {process_lookup.arguments(pid)}"
            for name in self.cluster.names
            for pid in self.cluster.inhabitants(name)
        ]
        found += [str(path) for path in self.folder.glob("*.launch")]
        found += [path for token in self.tokens for path in glob.glob(f"{work_places.make_path_prefix(token)}*")]
        if not found:
            for name in self.cluster.names:
                if self.cluster.is_on(name):
                    listed = subprocess.run(self.cluster.command(name, "ls /dev/shm"), capture_output=True, text=True)
                    found += [f"{name}: /dev/shm/{line}" for line in listed.stdout.split()]
        return found


def token_of(pid: int) -> str:
    """What tells the processes of one run; empty if this one carries none."""
    return str(process_lookup.environment(pid).get(sweep.NAME.encode(), b""), "ascii")


def main() -> int:
    """Hit, and print a table; the exit code says whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="runs that are hit, those in the log included (20)")
    parser.add_argument("--seconds-in-all", type=float, default=1e9, help="begin no run after so long")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="file of the runs so far, to carry on from")
    parser.add_argument("--seed", type=int, default=1, help="decides nodes, moments and targets (1)")
    parser.add_argument("--job", choices=JOBS, default="plain", help="what is written (plain)")
    parser.add_argument("--records", type=int, default=240, help="records of each run (240)")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds of a task of two records (0.3)")
    parser.add_argument("--nodes", type=int, nargs=2, default=(4, 8), help="fewest and most nodes of a run (4 8)")
    parser.add_argument("--number", type=int, default=9, help="number of the nodes' network, 0 to 255 (9)")
    arguments = parser.parse_args()
    if reason := namespace_nodes.reason_not():
        raise SystemExit(reason)
    hits = (
        [Hit(**json.loads(line)) for line in arguments.log.read_text().splitlines()] if arguments.log.exists() else []
    )
    program = find_millrace()
    begun = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mr-")))
        cluster = stack.enter_context(namespace_nodes.Nodes(folder / "n", (HEAD, *NAMES), arguments.number))
        log = stack.enter_context(arguments.log.open("a"))
        dice = random.Random(arguments.seed + len(hits))
        chaos = Chaos(
            cluster,
            folder / "work",
            program,
            dice,
            arguments.records,
            arguments.seconds,
            tuple(arguments.nodes),
            arguments.job,
        )
        while len(hits) < arguments.runs and time.monotonic() - begun < arguments.seconds_in_all:
            if hit := chaos.once():
                hits.append(hit)
                log.write(json.dumps(hit.__dict__) + "\n")
                log.flush()
                print(f"{len(hits):3} {hit.target:12} {hit.signal:8} {hit.n_nodes} nodes, hit at {hit.at:5.1f} s of {hit.undisturbed:5.1f}, took {hit.took:5.1f}, lost {hit.lost:5.1f} s {hit.problems or ''}", flush=True)  # fmt: skip
    report(hits)
    return 1 if any(hit.problems for hit in hits) else 0


def report(hits: list[Hit]) -> None:
    """The table."""
    groups: dict[tuple[str, str], list[Hit]] = defaultdict(list)
    for hit in hits:
        groups[(hit.target, hit.signal)].append(hit)
        groups[("all", hit.signal)].append(hit)
        groups[("all", "")].append(hit)
    rows = []
    for (target, number), some in sorted(groups.items()):
        lost = [hit.lost for hit in some]
        wrong = sum(bool(hit.problems) for hit in some)
        rows.append((target, number, str(len(some)), str(wrong), f"{statistics.median(lost):.1f}", f"{max(lost):.1f}"))
    print("\nSeconds beyond the tasks in flight:\n")
    show_table("chaos_cluster", ("hit", "signal", "runs", "wrong", "median s lost", "longest"), rows)


if __name__ == "__main__":
    sys.exit(main())
