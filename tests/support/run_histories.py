"""Made-up lives of a run, from its first start to its last: the scheduler, and nodes that are lost, around a made-up tool.

Real: the scheduler, `OutputVerification`, `TaskDispatcher` and `TaskPlacement`, what counts of journals (`select_effective_tasks`, `begun`), and the order of the output.
Made up, from one source of random choices: the input, the tool, its failures, nodes, signals, crashes and when tasks end.
As script: ``python tests/support/run_histories.py 50000``.
"""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

from millrace.core.tasks import (
    BatchId,
    CommittedRecords,
    CompareTask,
    FinishTask,
    RankTask,
    SearchTask,
    SliceTask,
    SlotId,
    SlotsChanged,
    SlotTask,
    TaskEnded,
    TaskEnding,
    TaskId,
    TaskWithdrawn,
    WholeTask,
    encode_task_kind,
)
from millrace.core.tool_use import CostHint, DatabaseFragment, FragmentPlan, OutputUse, RankColumns
from millrace.execution.resume import find_partial_searches
from millrace.output.output_parts import ReorderBuffer, select_effective_tasks
from millrace.scheduler.dispatcher import TaskDispatcher
from millrace.scheduler.finish_strategies import MIN_SEARCH_BYTES
from millrace.scheduler.limits import QuarantineLimit
from millrace.scheduler.output_differences import MismatchedOutput, find_first_difference
from millrace.scheduler.protocol import (
    AttemptResult,
    BatchCut,
    BatchDivided,
    BatchExtent,
    BatchQuarantined,
    BatchSplit,
    CutBatches,
    DivideBatch,
    InputEnded,
    KillTasks,
    OutputBatch,
    QuarantineBatch,
    ReleaseBatch,
    ReportRetry,
    RunBegun,
    RunInterrupted,
    SchedulerAction,
    SchedulerEvent,
    SplitBatch,
    StopReason,
    StopRun,
    SubmitTask,
    TaskFailed,
    TaskFailure,
    TickEnded,
    VerificationDone,
    VerificationRequested,
    WithdrawTasks,
)
from millrace.scheduler.scheduler import BatchScheduler, SchedulerSettings
from millrace.scheduler.verification import (
    MAX_PIECE_ATTEMPTS,
    CompareOutputs,
    OutputVerification,
    RecutStretch,
    ReleasePieces,
    ReportJointFailure,
    ReportMismatch,
    ReportOverwrite,
    RerunId,
    RunPiece,
    VerificationAction,
)
from millrace.scheduler.verification_stretches import VerificationStretches

#: Starts of one run at most; then nothing is lost or stopped any more, and it has to end.
MOST_STARTS = 4

Extent = tuple[int, int]


class Broken(AssertionError):
    """A rule of the house does not hold."""


def rule(holds: object, what: str) -> None:
    if not holds:
        raise Broken(what)


@dataclass(frozen=True)
class Block:
    """Bytes in a journal: what they are of."""

    of: tuple[int, int, int]
    length: int


@dataclass(frozen=True)
class Ref:
    """What was committed, as a `millrace._core.TaskRef` tells it."""

    first: int
    last: int
    fragment: int
    blocks: list[Block]
    quarantined: bool = False
    inputs: list[tuple[int, int]] = field(default_factory=list)


def fragmented(choose: random.Random, n: int) -> FragmentPlan:
    way = choose.choice(["whole", "divisible", "slices", "ranks"])
    rank = RankColumns(subject=1, bits=2, evalue=None, most=9, argv=("rank",) if way == "ranks" else ())
    return FragmentPlan(
        fragments=tuple(DatabaseFragment(first=k, last=k + 1, size=1, argv=()) for k in range(n)),
        found=OutputUse(name="found", path=""), finish=(), database="", divisible=way == "divisible" or choose.random() < 0.3,
        ranked=rank if way in ("slices", "ranks") else None, is_for_tail=choose.random() < 0.4,
    )  # fmt: skip


class Job:
    """What is the same in all starts of a run: input, tool, and journals."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.n = choose.choice([0, 1, 1, 2, 3, 5, 8, 12])
        self.units = [choose.choice([1, 2, 5, 200]) for _ in range(self.n)]
        #: Records that belong together with the one before.
        self.glued = {record for record in range(1, self.n) if choose.random() < 0.05}
        self.retries = choose.choice([0, 1, 1, 2])
        share = choose.choice([0.0, 0.0, 0.2, 0.6])
        results = [
            AttemptResult.FAILED,
            AttemptResult.FAILED,
            AttemptResult.TIMED_OUT,
            AttemptResult.OUT_OF_MEMORY_ALONE,
            AttemptResult.STALLED,
        ]
        #: Records that the tool cannot do, and how it fails.
        self.bad = {record: choose.choice(results) for record in range(self.n) if choose.random() < share}
        self.in_search = choose.random() < 0.3
        #: How often what would be done fails by chance, or memory runs out beside others, or slices are of no use.
        self.flaky, self.crowded = (choose.choice([0.0, 0.0, 0.1]) for _ in range(2))
        self.misplaced = choose.choice([0.0, 0.0, 0.1, 1.0])
        self.fatal = choose.random() < 0.02
        n_fragments = choose.choice([0, 0, 1, 2, 3])
        self.fragmented = fragmented(choose, n_fragments) if n_fragments else None
        self.found_bytes = choose.choice([0, MIN_SEARCH_BYTES, 8 * MIN_SEARCH_BYTES, 70 * MIN_SEARCH_BYTES])
        self.batch_size = choose.choice([(0, 0), (1, 0), (3, 0), (5, 0)])
        self.stop_on_failure = choose.random() < 0.1
        self.verify = choose.choice([0.0, None, 0.3, 1.0])
        #: How often the tool gives other bytes when it runs again.
        self.inexact = choose.choice([0.0, 0.0, 0.02, 0.5])
        #: Whether there are outputs from before, and nothing is written yet.
        self.has_outputs = choose.random() < 0.2
        #: All that is committed, in order.
        self.journal: list[Ref] = []
        self.n_starts = 0

    def units_of(self, first: int, last: int) -> int:
        return sum(self.units[first:last])

    def run(self) -> None:
        """Start it, again and again, until it is done or stopped for good."""
        while True:
            self.n_starts += 1
            start = Start(self)
            if start.run():
                return


@dataclass
class Node:
    slots: int
    queued: deque[SlotTask] = field(default_factory=deque)
    running: list[SlotTask] = field(default_factory=list)


class Start:
    """One start of a run: what the engine, the nodes and the feeder do."""

    def __init__(self, job: Job) -> None:
        self.job, self.choose = job, job.choose
        self.tries = job.n_starts >= MOST_STARTS
        tasks = select_effective_tasks(job.journal)  # type: ignore[arg-type]
        self.committed = tasks
        self.begun = [] if not job.fragmented else find_partial_searches(job.journal, tasks)  # type: ignore[arg-type]
        self.n_nodes = self.choose.choice([1, 1, 2, 3])
        slots = [self.choose.choice([1, 2, 3]) for _ in range(self.n_nodes)]
        self.nodes = {number: Node(many) for number, many in enumerate(slots)}
        self.dispatcher: TaskDispatcher[SlotTask] = TaskDispatcher(
            len(job.fragmented.fragments) if job.fragmented else 0
        )
        self.now = 0.0
        for number, many in enumerate(slots):
            self.dispatcher.add_node(number, many, self.now)
        limit = QuarantineLimit(share=self.choose.choice([None, 1.0, 1.0]))
        limit.add_resumed(
            sum(task.last - task.first for task in tasks),
            sum(task.last - task.first for task in tasks if task.quarantined),
        )
        self.proven = any(not task.quarantined for task in tasks)
        self.scheduler = BatchScheduler(
            SchedulerSettings(
                slots=sum(slots), cost=CostHint(unit=self.choose.choice(["residues", "records"]), spread=self.choose.choice([1.0, 1.0, 5.0])), batch_size=job.batch_size,
                retries=job.retries, stop_on_failure=job.stop_on_failure, is_proven=self.proven,
                is_file=self.choose.random() < 0.8, fragmented=job.fragmented, n_nodes=self.n_nodes,
                begun={(each.first, each.last): each.found for each in self.begun},
            ),
            limit,
        )  # fmt: skip
        self.output: ReorderBuffer[CommittedRecords] = ReorderBuffer()
        self.written: list[Extent] = []
        self.batches: dict[BatchId, BatchExtent] = {}
        self.ids: Iterator[BatchId] = map(BatchId, count(1))
        self.tasks: dict[TaskId, SlotTask] = {}
        self.seen: set[TaskId] = set()
        #: Attempts that failed, of each batch, and how the last one did.
        self.failed: dict[BatchId, set[int]] = defaultdict(set)
        self.last_result: dict[BatchId, AttemptResult] = {}
        #: Batches for which slices were of no use.
        self.misplaced: set[BatchId] = set()
        self.verifier = Verifier(self)
        self.at = 0
        self.done_at = 0
        self.has_ended = False
        self.interrupts = 0
        self.stopped: StopRun | VerificationAction | None = None
        for task in tasks:
            self.put(task)
        self.tell(RunBegun())

    # The loop

    def run(self) -> bool:
        """Whether it came to its end for good."""
        most = 400 + 300 * (self.job.n + 1)
        for _ in range(most):
            if self.stopped:
                return True  # everything that is committed stays so; the user has to do something
            if self.scheduler.is_done and (self.interrupts or self.verifier.decisions.is_done):
                return self.check_end()
            if self.turn() == "crash":
                return False
        raise Broken("no end in sight")

    def turn(self) -> str:
        fed = self.feed()
        self.now += self.choose.choice([0.0, 0.1, 0.3])
        for node in self.nodes.values():
            while node.queued and len(node.running) < node.slots:
                task = node.queued.popleft()
                node.running.append(task)
                self.dispatcher.mark_started(task.id)
        if self.stopped:
            return ""
        busy = [number for number, node in self.nodes.items() if node.running]
        what = self.choose.random()
        if not self.tries and what < 0.01:
            return "crash"
        if not self.tries and what < 0.03:
            self.interrupts += 1
            self.tell(RunInterrupted())
        elif what < 0.05 and len(self.nodes) > 1:
            self.lose(self.choose.choice(list(self.nodes)))
        elif what < 0.06:
            number = self.choose.choice(list(self.nodes))
            self.nodes[number].slots = self.choose.choice([1, 2])
            self.dispatcher.add_node(number, self.nodes[number].slots, self.now)
            self.send()
            self.tell(SlotsChanged(sum(node.slots for node in self.nodes.values()), "made up"))
        elif busy:
            self.end(self.choose.choice(busy))
        else:
            self.now += 1.0
            self.dispatcher.send_waiting(self.now)
            self.send()
            self.tell(TickEnded())
            queued = any(node.queued for node in self.nodes.values())
            done = self.scheduler.is_done
            rule(fed or done or queued or self.stopped, "nothing runs, nothing is wanted, and it is not done")
        self.tell(TickEnded())
        if not self.interrupts and not self.stopped:
            self.verifier.request()
        return ""

    # The input

    def feed(self) -> bool:
        fed = False
        for _ in range(50):
            if self.stopped or not (
                ask := self.scheduler.request_batches(float(self.job.units_of(self.at, self.job.n)))
            ):
                return fed
            fed = True
            for _ in range(ask.n_batches):
                self.skip()
                if self.at == self.job.n and (self.job.n or self.committed or self.has_ended):
                    self.has_ended = True
                    self.dispatcher.end_submission()
                    self.verifier.decisions.end_input(self.job.n)
                    self.tell(InputEnded())
                    break
                self.cut(ask)
        raise Broken("it asks for ever")

    def skip(self) -> None:
        while self.done_at < len(self.committed) and self.committed[self.done_at].first == self.at:
            self.at = self.committed[self.done_at].last
            self.verifier.skip(self.committed[self.done_at])
            self.done_at += 1

    def cut(self, ask: CutBatches) -> None:
        first, stop = self.at, self.job.n
        if self.done_at < len(self.committed):
            stop = self.committed[self.done_at].first
        before = [each for each in self.begun if each.first >= first]
        if before and before[0].first == first:
            last = before[0].last
        else:
            if before:
                stop = min(stop, before[0].first)
            last = min(first + 1, stop)
            while last < stop and not self.is_full(ask, first, last):
                last += 1
            while last < stop and last in self.job.glued:
                last += 1
        self.at = last
        self.has_ended = self.job.n == 0
        self.verifier.decisions.add_batch(first, last)
        self.tell(BatchCut(self.add(first, last)))

    def is_full(self, ask: CutBatches, first: int, last: int) -> bool:
        return bool(
            (ask.records and last - first >= ask.records) or (ask.units and self.job.units_of(first, last) >= ask.units)
        )

    def add(self, first: int, last: int, *, is_divisible: bool = True) -> BatchExtent:
        units = self.job.units_of(first, last)
        part = BatchExtent(next(self.ids), first, last, units, is_divisible)
        self.batches[part.batch] = part
        return part

    # The slots

    def send(self) -> None:
        for send, task in self.dispatcher.pop_sends():
            queue = self.nodes[send.node].queued
            (queue.appendleft if task.urgent else queue.append)(task)

    def end(self, number: int) -> None:
        node = self.nodes[number]
        task = node.running.pop(self.choose.randrange(len(node.running)))
        beside = len(node.running)
        ending, result = self.outcome(task, beside)
        committed = self.commit(task) if ending is TaskEnding.DONE else None
        self.heard(number, task, ending, result, committed)

    def heard(
        self, number: int, task: SlotTask, ending: TaskEnding, result: AttemptResult, committed: Ref | None
    ) -> None:
        is_news = self.dispatcher.mark_ended(number, task.id, 0.1, self.now, counts=ending is TaskEnding.DONE)
        self.send()
        if not is_news:
            return
        rule(task.id in self.tasks, "a task ends twice")
        del self.tasks[task.id]
        if ending is TaskEnding.MISPLACED:
            self.misplaced.add(task.batch)
        if ending in (TaskEnding.DONE, TaskEnding.MISPLACED, TaskEnding.KILLED):
            self.tell(
                TaskEnded(
                    task=task.id, slot=SlotId(0), ago_seconds=0.0, ending=ending, wall_seconds=0.5,
                    committed=committed,  # type: ignore[arg-type]
                )
            )  # fmt: skip
            return
        if not isinstance(task.kind, CompareTask) and result not in (
            AttemptResult.OUT_OF_MEMORY_SHARED,
            AttemptResult.FILESYSTEM_GONE,
        ):
            self.failed[task.batch].add(task.attempt)
            self.last_result[task.batch] = result
        self.tell(TaskFailed(task.id, TaskFailure(result, result.value, "made up", exit_status=1)))

    def outcome(self, task: SlotTask, beside: int) -> tuple[TaskEnding, AttemptResult]:
        choose, job, part = self.choose, self.job, self.batches[task.batch]
        if job.fatal:
            return TaskEnding.SPAWN, AttemptResult.FATAL
        if isinstance(task.kind, RankTask | SliceTask) and choose.random() < job.misplaced:
            return TaskEnding.MISPLACED, AttemptResult.DONE
        if beside and not task.alone and choose.random() < job.crowded:
            return TaskEnding.FAILED, choose.choice((AttemptResult.OUT_OF_MEMORY_SHARED, AttemptResult.FILESYSTEM_GONE))
        sees_bad = job.in_search or not isinstance(task.kind, SearchTask | RankTask)
        for record in range(part.first, part.last):
            if sees_bad and record in job.bad:
                return TaskEnding.FAILED, job.bad[record]
        flaky = choose.random() < job.flaky * (3 if isinstance(task.kind, CompareTask) else 1)
        return (TaskEnding.FAILED, AttemptResult.FAILED) if flaky else (TaskEnding.DONE, AttemptResult.DONE)

    def commit(self, task: SlotTask) -> Ref:
        part, fragment = self.batches[task.batch], encode_task_kind(task.kind)
        block = Block((part.first, part.last, fragment), self.job.found_bytes)
        has_none = isinstance(task.kind, RankTask) and self.choose.random() < 0.2  # a share without a subject
        ref = Ref(part.first, part.last, fragment, [] if has_none else [block])
        self.job.journal.append(ref)
        return ref

    def lose(self, number: int) -> None:
        node = self.nodes.pop(number)
        for task in node.running:
            # It may have come to its end, and nobody has heard of it.
            if (
                task.batch in self.batches
                and self.choose.random() < 0.3
                and self.outcome(task, 1)[0] is TaskEnding.DONE
            ):
                self.commit(task)
        self.dispatcher.remove_node(number, self.now)
        self.send()

    # Actions

    def tell(self, event: SchedulerEvent) -> None:
        if not self.stopped:
            self.do(self.scheduler.handle(event, self.now))

    def do(self, actions: Sequence[SchedulerAction]) -> None:
        for action in actions:
            if self.stopped:
                return
            match action:
                case SubmitTask(task):
                    self.submit(task)
                case SplitBatch(batch, records, failure):
                    if failure:
                        self.verifier.fail(self.batches[batch], failure)
                    self.split(batch, records)
                case DivideBatch(batch, n_parts):
                    self.divide(batch, n_parts)
                case OutputBatch():
                    self.check_result(action)
                    self.put(action.result)
                case QuarantineBatch(batch):
                    self.quarantine(batch)
                case ReleaseBatch(batch):
                    rule(batch in self.batches, "a batch is released that is not there")
                    rule(not any(task.batch == batch for task in self.tasks.values()), "the bytes of a task are gone")
                    del self.batches[batch]
                case VerificationDone(batch, result):
                    del self.batches[batch]
                    self.verifier.finish(batch, result)
                case WithdrawTasks():
                    self.withdraw()
                case KillTasks():
                    rule(self.interrupts, "killed without need")
                    self.kill()
                case ReportRetry(batch):
                    rule(self.failed[batch] or self.job.crowded, "tried again what has not failed")
                case StopRun():
                    self.check_stop(action)
                    self.stopped = action

    def submit(self, task: SlotTask) -> None:
        part = self.batches.get(task.batch)
        rule(part is not None, "a task of no batch")
        assert part
        rule(task.id not in self.seen, "a task twice")
        self.seen.add(task.id)
        rule(not self.interrupts, "new work after the signal")
        others = [other.kind for other in self.tasks.values() if other.batch == task.batch]
        rule(task.kind not in others, "the same task of a batch twice at once")
        if isinstance(task.kind, WholeTask | FinishTask):
            rule(not others, "a batch is finished while something of it runs")
        rule(task.attempt <= self.job.retries + 2, "more attempts than retries")
        sliced_again = isinstance(task.kind, RankTask | SliceTask) and task.batch in self.misplaced
        rule(not sliced_again, "slices that were of no use are tried again")
        self.check_basis(task, part)
        self.tasks[task.id] = task
        self.dispatcher.submit_task(task, task, float(part.units or 1), self.now)
        self.send()

    def check_basis(self, task: SlotTask, part: BatchExtent) -> None:
        """See that it has what it builds on."""
        n = len(self.job.fragmented.fragments) if self.job.fragmented else 0
        numbers = [block.of[2] for block in task.found]  # type: ignore[attr-defined]
        extents = {block.of[:2] for block in task.found}  # type: ignore[attr-defined]
        covers = all(first <= part.first and part.last <= last for first, last in extents)
        rule(covers, "candidates of other records")
        match task.kind:
            case FinishTask() | RankTask():
                rule(numbers == [*range(1, n + 1)], "a finish without all candidates")
            case SliceTask():
                ranks = all(number > n for number in numbers)
                rule(numbers == [*range(1, n + 1)] or (ranks and numbers), "slices without ranks")
                rule(part.last == part.first + 1, "slices of several records")
            case SearchTask(fragment):
                rule(1 <= fragment <= n, "no such fragment")

    def parts_of(self, part: BatchExtent, records: int) -> list[Extent]:
        places = [place for place in range(part.first + 1, part.last) if place not in self.job.glued]
        if not places:
            return [(part.first, part.last)]
        wanted = part.first + records
        place = next((place for place in places if place >= wanted), places[-1])
        return [(part.first, place), (place, part.last)]

    def split(self, batch: BatchId, records: int) -> None:
        part = self.batches.pop(batch)
        rule(0 < records < part.last - part.first, "a split that leaves nothing")
        rule(not self.interrupts, "a split after the signal")
        extents = self.parts_of(part, records)
        parts = [self.add(*extent, is_divisible=len(extents) > 1) for extent in extents]
        self.tell(BatchSplit(batch, parts))

    def divide(self, batch: BatchId, n_parts: int) -> None:
        rest, extents = self.batches[batch], list[Extent]()
        for left in range(n_parts, 1, -1):
            cut = self.parts_of(rest, -(-(rest.last - rest.first) // left))
            if len(cut) == 1:
                break
            extents.append(cut[0])
            rest = BatchExtent(batch, *cut[1], 0)
        if not extents:
            self.tell(BatchDivided(batch, []))
            return
        del self.batches[batch]
        parts = [self.add(*extent) for extent in (*extents, (rest.first, rest.last))]
        for part in parts:
            self.failed[part.batch] = set(self.failed[batch])
        self.tell(BatchDivided(batch, parts))

    def put(self, result: CommittedRecords) -> None:
        rule(result.last > result.first or self.job.n == 0, "a result of nothing")
        overlaps = any(result.first < last and first < result.last for first, last in self.written)
        rule(not overlaps and (result.first, result.last) not in self.written, "records twice in the output")
        self.written.append((result.first, result.last))
        for _ in self.output.push(result.first, result.last, result):
            pass

    def check_result(self, output: OutputBatch) -> None:
        part, result = self.batches[output.batch], output.result
        rule((result.first, result.last) == (part.first, part.last), "the result of other records")
        rule(not any(record in self.job.bad for record in range(part.first, part.last)), "a result of what failed")
        codes = [block.of[2] for block in result.blocks]  # type: ignore[attr-defined]
        if codes != [0]:
            rule(
                codes == [encode_task_kind(SliceTask(number, len(codes))) for number in range(len(codes))],
                "part of a result",
            )
        self.proven = True
        seconds = self.choose.choice([0.1, 3.0])
        self.verifier.decisions.record_commit(part.first, part.last, seconds, part.units, seconds)

    def quarantine(self, batch: BatchId) -> None:
        part = self.batches[batch]
        alone = all(record in self.job.glued for record in range(part.first + 1, part.last))
        rule(alone, "a record given up that did not stand alone")
        tried = len(self.failed[batch])
        once = self.last_result.get(batch) is AttemptResult.TIMED_OUT
        rule(tried > self.job.retries or (once and tried), "given up before its retries")
        rule(not self.job.stop_on_failure, "given up though the user wants no failures")
        ref = Ref(part.first, part.last, 0, [], quarantined=True)
        self.job.journal.append(ref)
        self.put(ref)  # type: ignore[arg-type]
        self.verifier.decisions.record_quarantine(part.first, part.last)
        self.tell(BatchQuarantined(batch))

    def check_stop(self, stop: StopRun) -> None:
        match stop.why:
            case StopReason.TOOL:
                rule(self.job.fatal or not self.proven, "a tool given up that has worked")
                rule(self.job.bad or self.job.fatal or self.job.flaky, "a tool given up that works")
            case StopReason.RECORD:
                rule(self.job.stop_on_failure, "stopped for a record")

    def withdraw(self) -> None:
        for number in self.dispatcher.withdraw_tasks():
            self.come_back(number)
        for number, node in self.nodes.items():
            queued, node.queued = list(node.queued), deque()
            for task in queued:
                if self.dispatcher.mark_returned(number, task.id, self.now):
                    self.come_back(task.id)
        self.send()

    def come_back(self, number: TaskId) -> None:
        del self.tasks[number]
        self.tell(TaskWithdrawn(number))

    def kill(self) -> None:
        for number, node in self.nodes.items():
            running, node.running = node.running, []
            for task in running:
                self.heard(number, task, TaskEnding.KILLED, AttemptResult.DONE, None)

    # The end

    def check_end(self) -> bool:
        rule(not self.tasks, "tasks are left at the end")
        if self.interrupts and not (
            self.at == self.job.n and self.output.next == self.job.n and not self.output.waiting
        ):
            return False  # to be resumed
        if not self.interrupts:
            rule(not self.batches, "batches are left at the end")
            rule(self.output.next == self.job.n and not self.output.waiting, "records are missing in the output")
            self.verifier.check_end()
        return not self.interrupts


class Verifier:
    """What a verifier does with files: pieces are extents, and chance says whether their bytes are equal."""

    def __init__(self, start: Start) -> None:
        self.start, self.job = start, start.job
        is_compared = encode_task_kind(CompareTask())
        self.earlier = {(ref.first, ref.last): ref for ref in self.job.journal if ref.fragment == is_compared}
        self.decisions = OutputVerification(
            stretches=VerificationStretches(self.job.verify, b"key", one_is_serial=not self.job.has_outputs),
            earlier=self.earlier, has_outputs=self.job.has_outputs,  # type: ignore[arg-type]
            reverses_ends=bool(self.job.verify),
        )  # fmt: skip
        self.cuts: dict[RerunId, list[Extent]] = {}
        #: Reruns whose pieces have their bytes, those over the outputs from before, and the last one of each stretch.
        self.held: set[RerunId] = set()
        self.over: set[RerunId] = set()
        self.latest: dict[Extent, RerunId] = {}
        self.running: dict[BatchId, RunPiece] = {}
        self.n_begun = 0
        #: Stretches by their outcome, and batches that failed as a whole.
        self.equal, self.differs, self.failed = set[Extent](), set[Extent](), set[Extent]()

    def skip(self, task: CommittedRecords) -> None:
        extent = (task.first, task.last)
        if task.quarantined or self.job.choose.random() < 0.5:
            self.decisions.skip_batch(*extent)
        else:
            self.decisions.add_batch(*extent)
            self.decisions.record_commit(*extent, 0.0, 1, 0.0)

    def fail(self, whole: BatchExtent, failure: TaskFailure) -> None:
        self.failed.add((whole.first, whole.last))
        self.decisions.record_failure(whole.first, whole.last, failure)

    def request(self) -> None:
        actions = self.decisions.start_stretches(self.start.now, done=self.start.scheduler.is_done)
        stretches = [extent_of(action.batches) for action in actions if isinstance(action, RecutStretch)]
        rule(not (self.equal | self.differs) & {*stretches}, "a stretch is verified twice")
        self.n_begun += len(stretches)
        self.do(actions)
        for piece in self.decisions.pop_pieces():
            extent = self.cuts[piece.rerun][piece.number]
            rule(piece.rerun in self.held, "the bytes of a piece are gone")
            rule(piece.attempt <= MAX_PIECE_ATTEMPTS, "a piece is tried for ever")
            rule(piece.kind != CompareTask() or extent not in self.earlier, "a piece that is committed runs again")
            rule(not piece.kind.over or self.decisions.should_hold_output(), "written while the old outputs are tried")
            part = self.start.add(*extent)
            self.running[part.batch] = piece
            if piece.kind.over:
                self.over.add(piece.rerun)
            self.start.tell(VerificationRequested(part, piece.attempt, piece.urgent, piece.kind))
        self.job.has_outputs = self.job.has_outputs and self.decisions.should_hold_output()

    def finish(self, batch: BatchId, result: CommittedRecords | None) -> None:
        rule(batch in self.running, "a piece that nobody wanted")
        self.do(self.decisions.finish_piece(self.running.pop(batch), result))

    def do(self, actions: Sequence[VerificationAction]) -> None:
        for action in actions:
            match action:
                case RecutStretch(rerun):
                    self.cuts[rerun] = self.recut(action)
                    self.do(self.decisions.add_pieces(rerun, self.cuts[rerun]))
                case ReleasePieces(rerun):
                    self.held.remove(rerun)
                case CompareOutputs(rerun):
                    self.do(self.decisions.record_comparison(rerun, self.compare(action)))
                case ReportMismatch(extent):
                    rule(extent in self.differs, "stopped for equal bytes")
                case ReportJointFailure(extent):
                    rule(extent in self.failed, "stopped for a failure that nobody saw")
                case ReportOverwrite():
                    rule(self.over, "stopped for outputs that were not tried")
            if isinstance(action, ReportMismatch | ReportJointFailure | ReportOverwrite):
                rule(not self.start.stopped and self.decisions.should_hold_output(), "stopped, and it goes on")
                self.start.stopped = action

    def recut(self, action: RecutStretch) -> list[Extent]:
        first, end = extent = extent_of(action.batches)
        rule({*action.batches} <= {*self.decisions.kept}, "the bytes of a stretch are gone")
        rule(first or self.decisions.should_hold_output(), "written before the start is verified")
        rule(sum(action.sizes) == end - first, "pieces of other records")
        rule(self.latest.get(extent) not in self.held, "two reruns of a stretch at once")
        self.latest[extent] = action.rerun
        self.held.add(action.rerun)
        pieces = list[Extent]()
        for size in [*action.sizes[:-1], end]:
            last = min(first + size, end)
            while last < end and last in self.job.glued:
                last += 1
            if first < last:
                pieces.append((first, last))
            first = last
        return pieces

    def compare(self, action: CompareOutputs) -> MismatchedOutput | None:
        extent, is_over = extent_of(action.batches), action.rerun in self.over
        rule([piece for piece, _ in action.pieces] == self.cuts[action.rerun], "compared before all pieces are done")
        rule(all((task.first, task.last) == piece for piece, task in action.pieces), "the output of another piece")
        if self.job.choose.random() >= self.job.inexact:
            if not is_over or action.batches == ((0, self.job.n),):
                self.equal.add(extent)
            return None
        if not is_over:
            self.differs.add(extent)
        return OTHER_BYTES

    def check_end(self) -> None:
        rule(not self.running and not self.held, "pieces are left at the end")
        rule(not self.differs, "other bytes, and it went on to its end")
        rule(not self.decisions.should_hold_output(), "the output is held at the end")
        rule(self.decisions.n_failed == self.n_begun - len(self.equal), "failures counted wrongly")
        written = sorted(self.start.written)
        is_whole = self.job.n_starts == 1 and not any(ref.quarantined for ref in self.job.journal)
        if self.job.verify == 1.0 and is_whole:
            for border, _ in written[1:]:
                rule(any(first < border < last for first, last in self.latest), "a border that no stretch has")


OTHER_BYTES = MismatchedOutput("out", [], [], (0, 1), find_first_difference(b"a", b"b"))


def extent_of(batches: Sequence[Extent]) -> Extent:
    return min(first for first, _ in batches), max(last for _, last in batches)


def play(seed: int) -> None:
    """One history; raises `Broken`, or what the scheduler raises, if a rule does not hold."""
    Job(random.Random(seed)).run()


def first_broken(seeds: Iterator[int], most: int) -> tuple[int, Exception] | None:
    """The first of so many histories in which a rule does not hold, and what became of it."""
    for seed in islice(seeds, most):
        try:
            play(seed)
        except Exception as error:
            return seed, error
    return None


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    begin, cpu = time.monotonic(), time.process_time()
    broken = first_broken(count(), n)
    print(f"{n:,} histories in {time.monotonic() - begin:.1f} s ({time.process_time() - cpu:.1f} s of CPU)")
    if broken:
        raise SystemExit(f"history {broken[0]}: {type(broken[1]).__name__}: {broken[1]}")


if __name__ == "__main__":
    main()
