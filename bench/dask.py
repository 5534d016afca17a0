"""``python -m bench.dask``: what Dask's workers cost beside MPI, and how much of the slots that are there is used as they come and go.

The tool sleeps, so that a busy machine changes little. *Overhead*: the same command on four workers with one slot each, and
in four MPI processes with one slot each, in turn. *Use*: a third of the workers is killed, others join; the seconds of all
tasks that counted over the seconds in which each worker was at Dask's scheduler. *Start*: from the moment at which a worker
is at Dask's scheduler until its first task begins.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

from dask_site import DaskSite  # noqa: E402
from mpi_jobs import find  # noqa: E402

from bench.results import keep_figures, show_table  # noqa: E402
from millrace.report.events import TaskEvent, read_events  # noqa: E402

#: The tool: it finds the worker above it, and notes its start.
TOOL = """#!/bin/sh
p=$PPID; w=
while [ -z "$w" ] && [ "$p" -gt 1 ]; do
    w=$(tr '\\0' '\\n' < /proc/$p/environ | sed -n 's/^BENCH_WORKER=//p')
    p=$(awk '{print $4}' /proc/$p/stat)
done 2>/dev/null
echo "$w $(date +%s.%N)" >> MARKS
sleep SECONDS
sed 's/^>/>seen /' "$1" > "$2"
"""

SLOTS = 4


class SleepCase:
    """A folder with the tool and its input."""

    def __init__(self, folder: Path, n_records: int, seconds: float) -> None:
        self.folder, self.marks = folder, folder.with_name(f"{folder.name}-marks")
        folder.mkdir()
        (folder / "in.fa").write_text("".join(f">r{k}\n{'A' * 60}\n" for k in range(n_records)))
        tool = folder / "tool"
        tool.write_text(TOOL.replace("MARKS", str(self.marks)).replace("SECONDS", str(seconds)))
        tool.chmod(0o755)
        self.marks.touch()

    def words(self, *options: str) -> list[str]:
        return ["run", *options, "--batch", "1", "--verify", "0", "--progress", "none", "--keep-run-dir", "--fresh", "--input", "in.fa",
                "--output", "out.fa", "--", "./tool", "in.fa", "out.fa"]  # fmt: skip

    def check(self) -> None:
        serial = (self.folder / "in.fa").read_text().replace(">", ">seen ")
        assert (self.folder / "out.fa").read_text() == serial

    def tasks(self) -> list[TaskEvent]:
        """The tasks that counted."""
        events = read_events(self.folder / "out.fa.millrace" / "events.jsonl")
        return [event for event in events if isinstance(event, TaskEvent) and event.status == "done"]


def measure_tasks(tasks: list[TaskEvent]) -> tuple[float, float]:
    """Return the seconds from the first start of a task to the last end, and the part of the slots' time that tasks ran."""
    seconds = max(task.t for task in tasks) - min(task.start for task in tasks)
    return seconds, sum(task.t - task.start for task in tasks) / (SLOTS * seconds)


def compare_with_mpi(folder: Path, n_records: int, seconds: float, repeats: int) -> None:
    """Measure the overhead."""
    case, mpi = SleepCase(folder / "steady", n_records, seconds), find("openmpi")
    found: dict[str, list[tuple[float, float, float]]] = {"Dask": [], "MPI": []}
    with DaskSite(folder / "dask") as site:
        site.start_scheduler()
        for _ in range(SLOTS):
            site.start_worker()
        time.sleep(5)
        for _ in range(repeats):
            for name in found:
                (case.folder / "out.fa").unlink(missing_ok=True)
                begun = time.monotonic()
                if name == "MPI":
                    assert mpi.start(SLOTS, case.words("--slots", "1"), case.folder).wait() == 0
                else:
                    command = [sys.executable, "-m", "millrace", *case.words("--dask", site.address)]
                    subprocess.run(command, cwd=case.folder, check=True, stderr=subprocess.DEVNULL)
                wall = time.monotonic() - begun
                case.check()
                found[name].append((wall, *measure_tasks(case.tasks())))
    rows = []
    for name, runs in found.items():
        wall, inner, share = (statistics.median(column) for column in zip(*runs, strict=True))
        rows.append([name, f"{wall:.2f} s", f"{inner:.2f} s", f"{share:.1%}"])
    show_table(
        "dask", ["executor", "whole command", "first start to last end of a task", "slots busy"], rows, "overhead"
    )
    medians = {name: [statistics.median(column) for column in zip(*runs, strict=True)] for name, runs in found.items()}
    ratio = [ours / theirs for ours, theirs in zip(medians["Dask"], medians["MPI"], strict=True)]
    print(f"Dask over MPI: whole command {ratio[0]:.3f}, tasks {ratio[1]:.3f}")
    keep_figures("dask", ratios={"command": ratio[0], "tasks": ratio[1]}, runs=found)


class ComingAndGoing:
    """A run in which workers are killed and others join."""

    def __init__(self, folder: Path, n_records: int, seconds: float) -> None:
        self._case = SleepCase(folder / "moving", n_records, seconds)
        self._site = DaskSite(folder / "moving-dask", environ={})
        self._gone: dict[str, float] = {}
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def _start_worker(self) -> None:
        name = f"w{len(self._workers) + 1}"
        self._site.environ["BENCH_WORKER"] = name
        self._workers[name] = self._site.start_worker()

    def run(self) -> None:
        """Run it, and keep the figures."""
        with self._site:
            self._site.start_scheduler()
            for _ in range(6):
                self._start_worker()
            self._site.environ.pop("BENCH_WORKER")
            command = [sys.executable, "-m", "millrace", *self._case.words("--dask", self._site.address)]
            run = subprocess.Popen(command, cwd=self._case.folder, stderr=subprocess.DEVNULL)
            changes = threading.Thread(target=self._change_workers, args=(run,), daemon=True)
            changes.start()
            assert run.wait() == 0
            ended = time.time()
            changes.join()
            self._case.check()
            self._keep(ended)

    def _change_workers(self, run: subprocess.Popen[bytes]) -> None:
        """Kill a third of the first workers one by one, and let as many join, from the first task on."""
        while not self._case.marks.stat().st_size and run.poll() is None:
            time.sleep(0.1)
        for k in range(4):
            deadline = time.monotonic() + 8
            while time.monotonic() < deadline and run.poll() is None:
                time.sleep(0.1)
            if run.poll() is None:
                if k % 2 == 0:
                    name = f"w{k // 2 + 1}"
                    self._gone[name] = time.time()
                    self._workers[name].kill()
                else:
                    self._start_worker()

    def _keep(self, ended: float) -> None:
        starts: dict[str, float] = {}
        for line in self._case.marks.read_text().splitlines():
            name, _, at = line.partition(" ")
            starts.setdefault(name, float(at))
        there = {name: self._find_registration(name) for name in self._workers}
        begun = min(starts.values())
        # Before the first task of all, workers wait for the run to be typed.
        slot_seconds = sum(self._gone.get(name, ended) - max(at, begun) for name, at in there.items())
        used = sum(task.t - task.start for task in self._case.tasks())
        joined = [starts[name] - at for name, at in there.items() if at > begun and name in starts]
        head = [
            "workers",
            "killed",
            "joined",
            "seconds of slots",
            "of tasks that counted",
            "used",
            "join to first task",
        ]
        row = [str(len(there)), str(len(self._gone)), str(len(joined)), f"{slot_seconds:.1f}", f"{used:.1f}",
               f"{used / slot_seconds:.1%}", ", ".join(f"{each:.2f} s" for each in joined)]  # fmt: skip
        show_table("dask", head, [row], "use")
        keep_figures("dask", workers={
            name: {"registered": at - begun, "first_task": starts.get(name, ended) - begun, "gone": self._gone.get(name, ended) - begun}
            for name, at in there.items()
        })  # fmt: skip

    def _find_registration(self, name: str) -> float:
        """Return when a worker was at Dask's scheduler, from its log."""
        text = (self._site.folder / f"{name}.log").read_text()
        found = re.search(r"^(\S+ \S+),(\d+) .*Registered to", text, re.MULTILINE)
        assert found, text
        return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").timestamp() + int(found[2]) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--records", type=int, default=160, help="of the overhead (160); the other part has four times as many"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="of a task (0.5)")
    parser.add_argument("--repeats", type=int, default=3, help="of each executor (3); 0: only the other part")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mr-dask-bench-") as name:
        if arguments.repeats:
            compare_with_mpi(Path(name), arguments.records, arguments.seconds, arguments.repeats)
        ComingAndGoing(Path(name), 4 * arguments.records, arguments.seconds).run()


if __name__ == "__main__":
    main()
