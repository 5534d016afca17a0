"""What every executor owes, as ``millrace.node.task_slots.Executor`` says: seen in the log of its calls in real runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import harness
import pytest
from crash_site import Site
from dask_site import DaskSite
from mpi_jobs import find

pytestmark = pytest.mark.process


class Slots(NamedTuple):
    """An executor: words before ``millrace``, options of ``run``, and variables."""

    before: tuple[str, ...]
    options: tuple[str, ...]
    environ: dict[str, str]


class ExecutorCalls:
    """The calls of an executor, and its events, from a debug log."""

    def __init__(self, log: str) -> None:
        lines = [line.partition("millrace.slots: ")[2] for line in log.splitlines() if "millrace.slots: " in line]
        self.events = [
            (found[1], int(found[2]), line) for line in lines if (found := re.match(r"(Task\w+)\(task=(\d+)", line))
        ]
        self.submitted = [
            int(found[1]) for line in lines if (found := re.match(r"submit_task\(SlotTask\(id=(\d+)", line))
        ]
        self.withdrawn = [
            int(number)
            for line in lines
            if (found := re.match(r"withdraw_tasks\(\) -> \[(.*)\]", line))
            for number in found[1].split(", ")
        ] + [task for name, task, _ in self.events if name == "TaskWithdrawn"]

    def check(self) -> None:
        ended = [task for name, task, _ in self.events if name == "TaskEnded"]
        started = [task for name, task, _ in self.events if name == "TaskStarted"]
        assert max(Counter(self.submitted).values()) == 1
        assert sorted(ended + self.withdrawn) == sorted(self.submitted), "each task ends once"
        assert set(Counter(started).values()) <= {1} and set(started) >= set(ended)
        for name, task, line in self.events:
            if name == "TaskEnded":
                assert task in started
                started.remove(task)
                assert ("ending=DONE" in line) == ("committed=<TaskRef>" in line or "committed=TaskRef" in line), line


@pytest.fixture(params=["local", "mpi", "dask"], scope="module")
def slots(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slots]:
    """Two slots of each kind."""
    if request.param == "local":
        yield Slots((), ("--slots", "2"), {})
    elif request.param == "mpi":
        mpi = find("openmpi")
        yield Slots((*mpi.mpirun, "-n", "2"), ("--slots", "1"), {**mpi.environ, "MILLRACE": mpi.millrace})
    else:
        pytest.importorskip("distributed")
        with DaskSite(tmp_path_factory.mktemp("dask")) as made:
            made.start_scheduler()
            made.start_worker(2)
            yield Slots((), ("--dask", made.address), {})


def commands(slots: Slots, site: Site) -> list[str]:
    own = site.command()
    millrace = [slots.environ["MILLRACE"]] if "MILLRACE" in slots.environ else own[:3]
    return [
        *slots.before,
        *millrace,
        "run",
        *slots.options,
        "--batch",
        "2",
        "--retries",
        "0",
        *own[own.index("--input") :],
    ]


def read_log(folder: Path) -> str:
    return next(path for name in ("log", "log.0") if (path := folder / name).exists()).read_text()


def start(slots: Slots, site: Site, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        commands(slots, site), cwd=site.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, start_new_session=True,
        env={
            **os.environ, **slots.environ, **environ, "LOG": str(site.log), "MILLRACE_LOG": "log", "MILLRACE_RUN_VERIFY": "0",
            harness.MARK: str(site.folder),
        },
    )  # fmt: skip


def test_executor_failing_record_each_task_ends_once(slots: Slots, tmp_path: Path) -> None:
    site = Site(tmp_path, n=12)
    process = start(slots, site, BAD="record5$")
    _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == 3, said
    ExecutorCalls(read_log(tmp_path)).check()
    assert site.output.read_bytes() == site.expected.replace(b">seen record5\n" + b"A" * site.letters + b"\n", b"")


def test_executor_stopped_run_ends_or_withdraws_tasks(slots: Slots, tmp_path: Path) -> None:
    site = Site(tmp_path, n=16)  # the log shortens longer lists of tasks
    process = start(slots, site, HOLD="3")
    site.wait_for_work(process, 4)
    process.send_signal(signal.SIGUSR1)
    assert harness.wait_until(lambda: "RunInterrupted" in read_log(tmp_path), process)
    site.release()
    _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM, said
    ExecutorCalls(read_log(tmp_path)).check()
