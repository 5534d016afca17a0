"""``python -m bench.chaos_dask --runs 20``: random histories of a Dask cluster, each compared with the serial bytes.

Workers join, end, are killed or stand still; Dask's scheduler is killed and started again, and the coordinator is killed, at
random moments of a run. Workers see no file of the run but the database.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import harness  # noqa: E402
from dask_site import DaskSite  # noqa: E402

#: What may happen, and how often beside the others.
EVENTS = {
    "join": 4,
    "leave": 2,
    "kill": 4,
    "stop": 2,
    "go on": 3,
    "scheduler": 1,
    "freeze scheduler": 1,
    "freeze coordinator": 1,
    "coordinator": 2,
}


class History:
    """One run, and what happens to it."""

    def __init__(self, site: DaskSite, case: harness.Case, seed: int) -> None:
        self._site, self._case, self._random = site, case, random.Random(seed)
        self.events: Counter[str] = Counter()
        self.starts = 0
        self._stopped: list[subprocess.Popen[bytes]] = []

    def run(self) -> str:
        """Let it happen; return what is wrong at the end, in words."""
        self._site.start_scheduler()
        for _ in range(self._random.randint(1, 3)):
            self._site.start_worker()
        process = self._start()
        while process.poll() is None and self.events.total() < 8:
            time.sleep(self._random.uniform(0.1, 1.5))
            if process.poll() is None:
                process = self._cause_event(process)
        self._calm_down()
        code, said = self._site.finish(process)
        if code:
            self.events["more starts"] += 1
            print(f"exit code {code}: {said}", flush=True)
            code, said = self._site.finish(self._start())
        wrong = self._case.differing()
        return f"exit code {code}, {wrong}: {said}\n{self._site.logs()}" if code or wrong else ""

    def _start(self) -> subprocess.Popen[str]:
        self.starts += 1
        return self._site.start_run(self._case, "--patience", "120")

    def _living(self) -> list[subprocess.Popen[bytes]]:
        return [worker for worker in self._site.workers if worker.poll() is None and worker not in self._stopped]

    def _cause_event(self, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
        event = self._random.choices([*EVENTS], [*EVENTS.values()])[0]
        if event == "coordinator" and self.events[event]:
            return process
        living = self._living()
        if event in ("leave", "kill", "stop") and not living:
            event = "join"
        self.events[event] += 1
        if event == "join":
            self._site.start_worker()
        elif event == "leave":
            self._random.choice(living).terminate()
        elif event == "kill":
            self._random.choice(living).kill()
        elif event == "stop":
            victim = self._random.choice(living)
            victim.send_signal(signal.SIGSTOP)
            self._stopped.append(victim)
        elif event == "go on":
            self._wake_one()
        elif event == "scheduler":
            self._restart_scheduler()
        elif event.startswith("freeze"):
            self._freeze(process if event.endswith("coordinator") else self._site.scheduler)
        else:
            process.kill()
            process.communicate()
            return self._start()
        return process

    def _wake_one(self) -> None:
        if self._stopped:
            victim = self._stopped.pop(self._random.randrange(len(self._stopped)))
            with suppress(ProcessLookupError):
                victim.send_signal(signal.SIGCONT)

    def _freeze(self, process: subprocess.Popen[Any] | None) -> None:
        """Let a process stand still, at times longer than a worker may be silent."""
        assert process
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)
            time.sleep(self._random.choice((0.5, 3.0, 12.0)))
            process.send_signal(signal.SIGCONT)

    def _restart_scheduler(self) -> None:
        assert self._site.scheduler
        self._site.end(self._site.scheduler)
        time.sleep(self._random.uniform(0.0, 3.0))
        self._site.start_scheduler()
        self._site.start_worker()

    def _calm_down(self) -> None:
        """From now on a worker is there."""
        if self._random.random() < 0.5:
            self._wake_one()
        self._site.start_worker()


def run_history(case: harness.Case, folder: Path, seed: int) -> tuple[History, str]:
    """Run one history; return it, and what is wrong."""
    shown = [path.name for path in case.folder.iterdir() if path.name.startswith("db.p")]
    with DaskSite(folder, case.folder, shown) as site:
        history = History(site, case, seed)
        wrong = history.run()
    left = harness.left_over(site.mark, seconds=90)
    for name in case.outputs:
        (case.folder / name).unlink(missing_ok=True)
    return history, wrong or left


def main() -> int:
    """Run the histories, and print what happened; the exit code says whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="number of histories (20)")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin none after this time (60)")
    parser.add_argument("--seed", type=int, default=1, help="of the first history (1)")
    arguments = parser.parse_args()
    data = Path(os.environ.get("MILLRACE_TEST_DATA") or REPO / ".tools" / "data")
    events: Counter[str] = Counter()
    done = problems = 0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mr-dask-") as folder:
        case = replace(harness.blastp(Path(folder, "case"), data, n_queries=40), options=("--batch", "1"))
        case.serial()
        for seed in range(arguments.seed, arguments.seed + arguments.runs):
            if time.monotonic() - begun > 60 * arguments.minutes:
                break
            history, wrong = run_history(case, Path(folder, f"site-{seed}"), seed)
            events += history.events
            done += 1
            problems += bool(wrong)
            print(
                f"seed {seed}: {dict(history.events)}, {history.starts} starts: {wrong or 'serial bytes'}", flush=True
            )
    print(f"{done} histories, {problems} wrong, {time.monotonic() - begun:.0f} s: {dict(events)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
