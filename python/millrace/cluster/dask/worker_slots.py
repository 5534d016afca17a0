"""The slots of all workers of a Dask cluster, as one executor.

Workers come and go while the run lasts. The coordinator has no slots of its own. A result counts when its blocks are in the
coordinator's journal.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.dask.dask_link import (
    NOT_THE_TASKS,
    DaskLink,
    LinkEvent,
    LinkFailed,
    TaskAnswered,
    WorkerGone,
    WorkerJoined,
    WorkerRefused,
)
from millrace.cluster.node_info import OWN
from millrace.core.errors import MillraceError
from millrace.core.journal_blocks import append_contents, map_blocks
from millrace.core.tasks import (
    PoolWoken,
    SlotEvent,
    SlotId,
    SlotsChanged,
    SlotTask,
    TaskEnded,
    TaskEnding,
    TaskId,
    TaskStarted,
)
from millrace.core.text_format import format_count
from millrace.core.tool_use import ProgressSnapshot
from millrace.host.signals import StopSignals
from millrace.node.batch_files import SpooledBatch
from millrace.node.execution_builder import ExecutionBuilder
from millrace.node.slot_view import lay_out_overlays
from millrace.node.task_slots import FAREWELL_SECONDS
from millrace.planning import result_fingerprint
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.dispatcher import TaskDispatcher
from millrace.scheduler.worker_demand import RemainingWorkMeter

#: Interval at which the wait for the first worker looks for signals, in seconds; and seconds before it says what it waits for.
LOOK_SECONDS, SAY_SECONDS = 0.2, 2.0


class DaskPool:
    """The connection to a Dask cluster for one start of a run, and the workers that have joined.

    Args:
        plan: Says what the workers have to set up.
    """

    def __init__(self, plan: RunPlan, interrupt: StopSignals) -> None:
        self._plan, self._interrupt = plan, interrupt
        use, cwd = plan.use, plan.command.cwd
        self._contents = {"": result_fingerprint.fingerprint_content(plan.command.exe)}
        view = plan.command.view
        here = [path for path in use.databases if not (view and view.find_file(cwd / path))]
        self._contents |= {str(path): result_fingerprint.fingerprint_content(cwd / path) for path in here}
        paths = [*(item.path for item in use.inputs), *(output.path for output in use.outputs)]
        places = [cwd, *((cwd / path).parent for path in paths if "{" not in path and "\0" not in path)]
        self._folders = sorted({os.path.abspath(place) for place in places if place.is_dir()})
        self._environ = {name: value for name, value in plan.command.environ.items() if name not in OWN}
        self.link = DaskLink(plan.job.dask, os.urandom(8).hex(), plan.job.patience, self._make_setup)
        #: Workers that joined before the engine's loop.
        self.joined: list[WorkerJoined] = []
        self.meter = RemainingWorkMeter()

    def _make_setup(self, name: str, threads: int) -> say.SetUpWorker:
        plan = self._plan
        slots = max(1, threads // max(1, plan.use.threads))
        return say.SetUpWorker(
            use=plan.use, cwd=str(plan.command.cwd), program=plan.command.argv[0], environ=self._environ, nice=plan.job.nice, run_dir=str(plan.run_dir),
            slots=min(slots, plan.job.slots) if plan.job.slots else slots, name=name, machine=os.uname().machine, contents=self._contents, folders=self._folders, view=plan.command.view,
        )  # fmt: skip

    def wait_for_workers(self, report: Callable[[str], None]) -> int:
        """Wait until a worker has slots; return their number.

        Raises:
            MillraceError: Dask's scheduler does not answer, or all workers that are there are refused, or a signal came.
        """
        refused: MillraceError | None = None
        begun, has_reported = time.monotonic(), False
        while not self.joined:
            if self._interrupt.count:
                raise self._interrupt.make_error(self._plan.run_dir)
            if not has_reported and time.monotonic() - begun > SAY_SECONDS:
                has_reported = True
                report(f"waiting for a Dask worker at {self._plan.job.dask}")
            match self._get_event():
                case WorkerJoined() as joined:
                    self.joined.append(joined)
                case WorkerRefused(_, error):
                    refused = refused or error
                    report(error.message)
                case LinkFailed(error):
                    raise error
            if refused and not self.joined and self.link.are_all_refused:
                raise refused
        slots = sum(joined.slots for joined in self.joined)
        report(f"slots: {slots} on {self.joined[0].name}; more as workers join")
        return slots

    def publish_progress(self, snapshot: ProgressSnapshot) -> None:
        """Publish what is left."""
        self.link.publish_work(self.meter.estimate_rest(snapshot))

    def _get_event(self) -> LinkEvent:
        try:
            return self.link.events.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            return None

    def close(self) -> None:
        """End the slots of all workers, and the connection."""
        self.link.close()


class _WorkerNode(msgspec.Struct):
    """A worker with slots, from its join to its end."""

    address: str
    name: str
    slots: int
    #: Number of its first slot among all.
    first_slot: int
    #: Tasks that were sent there, by the number of the send, in order.
    sent: dict[int, SlotTask] = msgspec.field(default_factory=dict)


class WorkerSlots:
    """The slots of all workers; see ``millrace.node.task_slots.Executor``.

    Args:
        journal: The coordinator's, which gets the results.
    """

    n_nodes = 1

    def __init__(self, pool: DaskPool, plan: RunPlan, journal: _core.Journal) -> None:
        self._link, self._use, self._cwd, self._journal = pool.link, plan.use, plan.command.cwd, journal
        self._meter = pool.meter
        self._builder = ExecutionBuilder(plan.use, lay_out_overlays(plan.use, plan.command.cwd))
        self._dispatcher: TaskDispatcher[tuple[SlotTask, SpooledBatch]] = TaskDispatcher(plan.use.n_fragments)
        self._nodes: dict[int, _WorkerNode] = {}
        self._node_of: dict[str, int] = {}
        self._n_joined = self._n_sends = 0
        self._found: list[SlotEvent] = []
        self._refused: set[str] = set()
        for joined in pool.joined:
            self._add_worker(joined)
        self._found.clear()  # the plan has these slots

    def build_argv(self, batch: SpooledBatch) -> list[bytes]:
        """See ``Executor``."""
        return self._builder.build_argv(batch)

    def wake_waiter(self) -> None:
        """Let ``wait_for_events`` return now; from any thread."""
        self._link.events.put(None)

    def end_input(self) -> None:
        """See ``Executor``: from now on stragglers may be run twice."""
        self._dispatcher.end_submission()

    def end_served_programs(self, patience_seconds: float = FAREWELL_SECONDS, look: Callable[[], object] = bool) -> str:
        """See ``Executor``; there are none (``millrace.planning.dask_checks``)."""
        return ""

    def submit_task(self, task: SlotTask, batch: SpooledBatch) -> None:
        """See ``Executor``."""
        self._dispatcher.submit_task(task, (task, batch), batch.weight, time.monotonic())
        self._send_dispatched_tasks()

    def _send_dispatched_tasks(self) -> None:
        for send, (task, batch) in self._dispatcher.pop_sends():
            node = self._nodes[send.node]
            self._n_sends += 1
            node.sent[self._n_sends] = task
            self._link.submit_task(node.address, self._n_sends, self._make_message(task, batch))
            self._report_starts(node)

    def _make_message(self, task: SlotTask, batch: SpooledBatch) -> say.RunWorkerTask:
        """Make the message that brings a task with all that it reads but program and databases.

        Raises:
            CorruptError: What other tasks have found for it is damaged in the journal.
        """
        spooled = zip(self._use.inputs, batch.spooled, strict=True)
        contents = [b"" if item.format == "files" else path.read_bytes() for item, path in spooled]
        files = [(self._cwd / name).read_bytes() for name in batch.files]
        with map_blocks(task.found) as blocks:
            found = [bytes(block) for block in blocks]
        # A number of its own: the same task may be sent twice to a worker that was silent in between.
        numbered = msgspec.structs.replace(task, id=TaskId(self._n_sends), found=())
        return say.RunWorkerTask(
            say.TaskAssignment(numbered, msgspec.structs.replace(batch, spooled=()), contents), files, found
        )

    def _report_starts(self, node: _WorkerNode) -> None:
        """Report the tasks that have a slot now: a worker starts them in the order in which they were sent."""
        for task in [*node.sent.values()][: node.slots]:
            self._report_start(node, task.id)

    def _report_start(self, node: _WorkerNode, task: TaskId) -> None:
        if self._dispatcher.mark_started(task):
            self._found.append(TaskStarted(task, SlotId(node.first_slot), 0.0))

    # Events

    def wait_for_events(self, timeout_seconds: float) -> list[SlotEvent]:
        """See ``Executor``.

        Raises:
            LostError: Dask's scheduler does not answer any more.
        """
        if not self._found:
            with suppress(queue.Empty):
                self._handle_event(self._link.events.get(timeout=timeout_seconds))
        while not self._link.events.empty():
            self._handle_event(self._link.events.get())
        self._dispatcher.send_waiting(time.monotonic())
        self._send_dispatched_tasks()
        found, self._found = self._found, []
        return found

    def _handle_event(self, event: LinkEvent) -> None:
        match event:
            case WorkerJoined():
                self._add_worker(event)
            case WorkerGone(address, why):
                self._remove_worker(address, why)
            case WorkerRefused(_, error):
                self._report_refusal(error)
            case TaskAnswered(address, number, answer):
                self._handle_answer(address, number, answer)
            case LinkFailed(error):
                raise error
            case None:
                self._found.append(PoolWoken())

    def _add_worker(self, joined: WorkerJoined) -> None:
        self._n_joined += 1
        number = self._n_joined
        node = _WorkerNode(joined.address, joined.name, joined.slots, self._find_free_slots(joined.slots))
        self._nodes[number], self._node_of[joined.address] = node, number
        self._dispatcher.add_node(number, joined.slots, time.monotonic())
        self._send_dispatched_tasks()
        self._report_slots(f"{joined.name} has joined with {format_count(joined.slots, 'slot')}")

    def _find_free_slots(self, slots: int) -> int:
        """Return the lowest number from which on so many slots belong to no worker."""
        first = 0
        for node in sorted(self._nodes.values(), key=lambda node: node.first_slot):
            if node.first_slot - first >= slots:
                break
            first = node.first_slot + node.slots
        return first

    def _report_slots(self, why: str) -> None:
        total = sum(node.slots for node in self._nodes.values())
        self._found.append(SlotsChanged(max(1, total), f"{why}; {format_count(total, 'slot')} now"))

    def _remove_worker(self, address: str, why: str) -> None:
        """Drop a worker; its tasks go to others."""
        number = self._node_of.pop(address, 0)
        if not number:
            return
        node = self._nodes.pop(number)
        n_tasks = self._dispatcher.remove_node(number, time.monotonic())
        self._send_dispatched_tasks()
        self._report_slots(f"{node.name} is lost: {why}; {format_count(n_tasks, 'task')} of its own go to others")

    def _report_refusal(self, error: MillraceError) -> None:
        if error.message not in self._refused:
            self._refused.add(error.message)
            self._report_slots(f"{error.message}; it gets no tasks")

    def _handle_answer(self, address: str, number: int, answer: say.WorkerTaskEnded) -> None:
        node_number = self._node_of.get(address, 0)
        node = self._nodes.get(node_number)
        task = node.sent.pop(number, None) if node else None
        if node is None or task is None:
            return  # it was taken for lost, and others have its task
        ended = msgspec.structs.replace(answer.ended, task=task.id, slot=SlotId(node.first_slot + answer.ended.slot))
        if ended.ending in NOT_THE_TASKS:
            self._link.renew_worker(address, f"its slots do not work: {ended.detail or ended.ending.value}")
            self._remove_worker(address, f"its slots do not work: {ended.detail or ended.ending.value}")
            return
        if answer.why:
            node.slots = answer.slots
            self._dispatcher.add_node(node_number, answer.slots, time.monotonic())
            self._report_slots(f"{node.name}: {answer.why}")
        self._report_start(node, task.id)
        self._report_starts(node)
        is_news = self._dispatcher.mark_ended(
            node_number, task.id, ended.wall_seconds, time.monotonic(), counts=ended.is_done
        )
        if is_news:
            self._meter.add_task(ended.wall_seconds)
            self._found.append(append_contents(ended, self._journal, task.attempt, node.name))
        self._send_dispatched_tasks()

    # The end

    def withdraw_tasks(self) -> list[TaskId]:
        """See ``Executor``."""
        back = self._dispatcher.withdraw_tasks()
        now = time.monotonic()
        for number, node in self._nodes.items():
            for send in [*node.sent][node.slots :]:
                task = node.sent.pop(send)
                self._link.cancel_task(node.address, send)
                if self._dispatcher.mark_returned(number, task.id, now):
                    back.append(task.id)
        return back

    def kill_all(self) -> None:
        """See ``Executor``: Dask drops the tasks, and so the workers kill their tools."""
        for number, node in self._nodes.items():
            for send, task in [*node.sent.items()]:
                self._link.cancel_task(node.address, send)
                del node.sent[send]
                self._report_start(node, task.id)
                if self._dispatcher.mark_returned(number, task.id, time.monotonic()):
                    self._found.append(
                        TaskEnded(task=task.id, slot=SlotId(node.first_slot), ago_seconds=0.0, ending=TaskEnding.KILLED)
                    )
