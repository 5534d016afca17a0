"""The engine of one machine: carries messages between dispatcher, feeder, slots and output, and nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from millrace import _core
from millrace.engine.quarantine import QuarantineWriter
from millrace.engine.said import Said, failure_words, signature
from millrace.engine.searches import Searches
from millrace.engine.stop import Interrupt
from millrace.engine.supervised import Supervision
from millrace.engine.verify import Piece, Verifier
from millrace.errors import ExitCode, MillraceError, ToolError
from millrace.model import Snapshot
from millrace.node import workdir
from millrace.node.agent import Allowed, Event, Slots
from millrace.node.feed import Batch, End, Feeder, Limits, Skipped, changed_files
from millrace.node.spool import split_batch
from millrace.output.commit import GroupCommit
from millrace.output.guard import Guard, Sure
from millrace.plan.plan import Plan
from millrace.report.events import EventLog, QuarantineEvent, RetryEvent, TaskEvent, WarningEvent
from millrace.schedule.dispatcher import Action, Dispatcher, Quarantine, Release, Result, Run, Split, Stop, Why
from millrace.schedule.quarantine_limit import QuarantineLimit
from millrace.schedule.scan import finish_parts, n_slices
from millrace.slices import LOOK, Committed, Slice, slice_of

#: Seconds between looks at the clock while nothing happens.
TICK = 0.2

#: Fewest seconds between two looks at how far the run is.
SHOW_SECONDS = 0.1

#: Batches that share a scan around a database in fragments, at least.
SCAN_TOGETHER = 16

#: Seconds at most that the first searches of fragments wait for more batches.
GATHER = 0.5

#: Seconds that running tools get to end after the first signal.
GRACE = 20.0


@dataclass
class Attempt:
    """One task that is queued or running."""

    batch: int
    number: int
    start: float = 0.0
    slot: int = 0
    #: A second look at committed results, not work.
    look: Piece | None = None
    #: The fragment of the database that is searched, from 1, or the number of a slice; 0: what it writes is part of the
    #: output.
    fragment: int = 0


@dataclass
class Counts:
    """What has been done so far, this run and before."""

    records: int = 0
    units: int = 0
    bytes: int = 0
    resumed: int = 0
    tasks: int = 0
    retries: int = 0
    quarantined: int = 0
    cpu: float = 0.0


@dataclass
class LocalEngine:
    """Runs a plan to its end, an interruption, or an error.

    ``run`` returns normally only when every record is done or given up. It raises what stopped it otherwise;
    everything committed by then is in the journal.
    """

    plan: Plan
    node: Slots
    feeder: Feeder
    stage: Sure
    guard: Guard
    journal: _core.Journal
    commit: GroupCommit
    events: EventLog
    interrupt: Interrupt
    show: Callable[[Snapshot], None]
    message: Callable[[str], None]
    quarantine: QuarantineWriter
    verifier: Verifier
    supervision: Supervision
    begun: float
    #: Whether an earlier run of the same command had results.
    resumes_results: bool = False
    #: What an earlier run found in fragments, by the extent of the batch.
    begun_searches: Mapping[tuple[int, int], Mapping[int, _core.BlockRef]] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    _batches: dict[int, Batch] = field(default_factory=dict)
    _attempts: dict[int, Attempt] = field(default_factory=dict)
    _failures: dict[int, str] = field(default_factory=dict)
    #: Batches beside which nothing is to run.
    _alone: set[int] = field(default_factory=set)
    _serial: int = 0
    _running: int = 0
    _offset: int = 0
    _read_units: int = 0
    _shown_at: float = 0.0
    _scan_from: float = 0.0
    #: Batches for which everything is found.
    _found_all: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        use, job = self.plan.use, self.plan.job
        fixed = (1, 0) if use.cost.max_records == 1 else job.batch_size
        fragmented = use.fragmented
        self.searches = Searches(len(fragmented.fragments), self.node.n_nodes) if fragmented else None
        starts = self.searches.n + 1 if self.searches else 1
        cost = msgspec.structs.replace(use.cost, startup_seconds=use.cost.startup_seconds * starts)
        self.dispatcher = Dispatcher(
            self.plan.slots, cost, job.retries, fixed, job.on_failure == "stop", proven=self.resumes_results,
            least_ahead=SCAN_TOGETHER if self.searches else 0, limit=QuarantineLimit(*job.quarantine_limit),
        )  # fmt: skip
        self.said = Said(use.argv[0] if isinstance(use.argv[0], str) else "tool", self.message)

    def now(self) -> float:
        return time.monotonic() - self.begun

    # The loop

    def run(self) -> None:
        """Carry messages until everything is done.

        Raises:
            MillraceError: The run cannot go on; `MillraceError.exit_code` says how it ends.
        """
        self._scan_from = self.now() + GATHER
        while not (self.dispatcher.done and self.verifier.done):
            if self.interrupt.signal:
                self._wind_down()
                raise self.interrupt.error(self.plan)
            self._ask()
            for event in self.node.events(TICK):
                self._handle(event)
            self._take_fed()
            self._hand_out()
            self._look_again()
            self._look_around()
        self.show(self._snapshot())

    def _look_around(self) -> None:
        self.supervision.turned(self.counts.records)
        self.stage.turn()
        if self.stage.error:
            raise self.stage.error
        if self.commit.error:
            raise self.commit.error
        if self.verifier.error:
            raise self.verifier.error
        if (now := self.now()) - self._shown_at >= SHOW_SECONDS:
            self._shown_at = now
            self.show(self._snapshot())

    def _ask(self) -> None:
        limits = self.dispatcher.wanted(self._remaining())
        if limits:
            # What a pipe has is taken as it comes.
            more = self.dispatcher.more() if self.feeder.total is not None else 0
            self.feeder.request(Limits(*limits), 1 + more)

    def _take_fed(self) -> None:
        while self.feeder.results:
            match self.feeder.results.popleft():
                case Batch() as batch:
                    self.verifier.cut(batch)
                    self._offset = batch.offset
                    self._read_units += self._units(batch)
                    self._do(
                        self.dispatcher.batch_cut(
                            self._remember(batch), batch.n_records, self._units(batch),
                            whole=(batch.first, batch.last) in self.begun_searches,
                        )
                    )  # fmt: skip
                case Skipped() as skipped:
                    self.verifier.skipped(skipped)
                    self._offset = skipped.offset
                    self._read_units += self._units(skipped)
                    self.counts.records += skipped.last - skipped.first
                    self.counts.resumed += skipped.last - skipped.first
                    self.counts.units += self._units(skipped)
                    self.counts.bytes = max(self.counts.bytes, skipped.offset)
                case End(records):
                    self.verifier.ended(records)
                    self._do(self.dispatcher.input_ended())
                    self.node.no_more()
                case BaseException() as error:
                    raise error
            self._ask()

    def _units(self, part: Batch | Skipped) -> int:
        """Cost units of a part of the input."""
        return part.last - part.first if self.plan.use.cost.unit == "records" else part.units

    def _remaining(self) -> float | None:
        """Units not yet cut, from the bytes not yet read and the units per byte so far."""
        total = self.feeder.total
        if total is None:
            return None
        left = max(total - self._offset, 0)
        if not self._offset:
            return None if self.plan.use.cost.unit == "records" else float(left)  # a unit is a byte, or about that
        return left * (self._read_units / self._offset)

    # Actions

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Run() | Split() if self.interrupt.signal:
                    pass  # a run that is to stop begins nothing new
                case Run(batch, attempt, urgent, alone):
                    if alone:
                        self._alone.add(batch)
                    self._run(batch, attempt, urgent)
                case Split(batch, records):
                    self._split(batch, records)
                case Quarantine(batch):
                    self._give_up(batch)
                case Release(batch):
                    self._release(batch)
                case Stop(batch, why):
                    raise self._stop(batch, why)

    def _run(self, batch: int, attempt: int, urgent: bool) -> None:
        item = self._batches[batch]
        item_found = self.begun_searches.get((item.first, item.last), {})
        if not self.searches or not item.n_records:  # of nothing, the whole database is as good as fragments
            self._submit(batch, Attempt(batch, attempt), urgent)
        elif self.searches.begin(batch, attempt, item_found):
            self._found_all.append(batch)

    def _hand_out(self) -> None:
        """Give the slots what is to be written, and searches of fragments, one more than they work at: which comes next is
        decided late."""
        if self.dispatcher.asked and self.feeder.total is not None and self.now() < self._scan_from:
            # A file: its first batches are there in a moment, and then see each fragment together; or its end, and then
            # slots without work are known.
            return
        while self._found_all:
            self._finish(self._found_all.pop(0))
        while self.searches and len(self._attempts) < 2 * self.plan.slots and not self.interrupt.signal:
            search = self.searches.next()
            if not search:
                return
            batch, fragment = search
            self._submit(batch, Attempt(batch, self.searches.attempt(batch), fragment=fragment), False)

    def _finish(self, batch: int) -> None:
        """Everything is found: run the user's command with the candidates. First of all, as it ends a batch."""
        if not self.searches or self.interrupt.signal:
            return
        ranks = self.searches.take_ranks(batch)
        parts = [batch] if ranks else self._divided(batch, self.searches)
        n = len(ranks) or (self._slices(batch, self.searches) if parts == [batch] else 1)
        if n > 1:
            self.searches.slice(batch, n)
            tasks = [(batch, Slice(number, n, share=self._unranked and not ranks).code) for number in range(n)]
        else:
            tasks = [(part, 0) for part in parts]
        for part, fragment in tasks:
            attempt = Attempt(part, self.searches.attempt(part), fragment=fragment)
            self._submit(part, attempt, True, found=ranks if n > 1 and ranks else self.searches.blocks(part))

    @property
    def _unranked(self) -> bool:
        """Whether fragments do not tell the ranks of subjects."""
        fragmented = self.plan.use.fragmented
        return bool(fragmented and fragmented.ranked and fragmented.ranked.argv)

    def _slices(self, batch: int, searches: Searches) -> int:
        """In how many slices the result of a batch is written; whatever went wrong before, the next time in one."""
        fragmented = self.plan.use.fragmented
        if (
            not fragmented or not fragmented.ranked or self._batches[batch].n_records != 1
            or searches.was_sliced(batch)
        ):  # fmt: skip
            return 1
        seconds = searches.seconds(batch) or 0.0
        passes = 2 if self._unranked else 1
        return n_slices(searches.found_bytes(batch), seconds, self._idle(searches), self.plan.slots, passes)

    def _idle(self, searches: Searches) -> int:
        """Slots that have nothing else to do, if there will be no more batches."""
        return self.plan.slots - len(self._attempts) - len(searches.scan) if self.dispatcher.ended else 0

    def _divided(self, batch: int, searches: Searches) -> list[int]:
        """Parts of a batch whose candidates are searched side by side, as slots have nothing else to do."""
        whole, fragmented = self._batches[batch], self.plan.use.fragmented
        if not fragmented or not fragmented.divisible:
            return [batch]
        rest, parts = whole, list[Batch]()
        n = finish_parts(whole.n_records, searches.found_bytes(batch), self._idle(searches))
        for left in range(n, 1, -1):
            cut = self._cut(rest, math.ceil(rest.n_records / left))
            if len(cut) == 1:
                break  # its records belong together
            parts.append(cut[0])
            rest = cut[1]
        if not parts:
            return [batch]
        numbers = {self._remember(part): part for part in (*parts, rest)}
        searches.divide(batch, {number: part.units / max(whole.units, 1) for number, part in numbers.items()})
        self.dispatcher.batch_divided(
            batch, [(number, part.n_records, self._units(part)) for number, part in numbers.items()]
        )
        self._forget(batch)
        return list(numbers)

    def _submit(
        self, batch: int, attempt: Attempt, urgent: bool, found: Sequence[_core.BlockRef] = ()
    ) -> None:  # fmt: skip
        self._serial += 1
        self._attempts[self._serial] = attempt
        item = self._batches[batch]
        if item.files:
            self.guard.also(
                item.first, item.last, partial(changed_files, item, self.feeder.inputs, self.plan.command.cwd)
            )
        per_record = self.plan.job.record_timeout
        timeout = per_record * max(item.n_records, 1) if per_record else None
        self.node.submit(
            self._serial, item, attempt.number, urgent=urgent, timeout_seconds=timeout,
            fragment=attempt.fragment, found=found, alone=attempt.batch in self._alone,
        )  # fmt: skip

    def _split(self, batch: int, records: int) -> None:
        whole = self._batches[batch]
        if reason := self._failures.get(batch):
            event = RetryEvent(t=self.now(), first=whole.first, last=whole.last, reason=f"split: {reason}")
            self.events.write(event, self.now())
        parts = self._cut(whole, records)
        # What cannot be cut counts as one record from here on.
        numbers = [(self._remember(part), part.n_records if len(parts) > 1 else 1, self._units(part)) for part in parts]
        if batch in self._failures:
            for number, _, _ in numbers:
                self._failures[number] = self._failures[batch]
        self._forget(batch)
        self._do(self.dispatcher.batch_split(batch, numbers))

    def _cut(self, whole: Batch, records: int) -> list[Batch]:
        job = self.plan.job
        return split_batch(whole, records, self.feeder.inputs, self.plan.command.cwd, job.record_start, job.record_end)

    def _give_up(self, batch: int) -> None:
        item = self._batches[batch]
        reason = self._failures.get(batch, "")
        name = self.quarantine.keep(item, self.node.argv(item), reason)
        task = self.journal.quarantine(item.first, item.last, 1, list(item.digests))
        self.verifier.given_up(item)
        self.stage.put(task)
        self.counts.quarantined += item.n_records
        self._count_done(item)
        self.events.write(QuarantineEvent(t=self.now(), record=item.first, name=name, reason=reason), self.now())
        self.message(f"quarantined record {item.first + 1} ({name}): {reason.splitlines()[0] if reason else 'failed'}")
        self._do(self.dispatcher.batch_quarantined(batch))

    def _stop(self, batch: int, why: Why) -> MillraceError:
        item, reason = self._batches[batch], self._failures.get(batch, "it failed")
        if why is Why.MEMORY:
            return too_little_memory(self.said.tool, reason)
        if why is Why.MANY:
            return too_many_failures(self.said.tool, self.dispatcher.limit, reason)
        if why is Why.TOOL:
            return ToolError(
                f"{self.said.tool} cannot do this work: {reason}\n  command: {self.quarantine.shown(self.node.argv(item))}",
                "this failed in the same way for every record tried, so it is taken for a fault of the command, not of a record",
            )
        error = MillraceError(
            f"record {item.first + 1} ({self.quarantine.name(item)}) failed: {reason}",
            "with --on-failure quarantine the run goes on without it; the same command resumes",
        )
        error.exit_code = ExitCode.STOPPED
        return error

    # Events of the slots

    def _handle(self, event: Event | Allowed) -> None:
        if isinstance(event, Allowed):
            self._allowed(event)
        elif event.kind == "started":
            attempt = self._attempts[event.id]
            attempt.start, attempt.slot = self.now() - event.ago_seconds, event.slot
            self._running += 1
        elif event.kind == "ended":
            self._running -= 1
            self._ended(self._attempts.pop(event.id), event)
        elif event.kind == "withdrawn":
            self._attempts.pop(event.id, None)

    def _allowed(self, news: Allowed) -> None:
        self.plan = msgspec.structs.replace(self.plan, slots=news.slots)
        self.dispatcher.slots = news.slots
        self.message(news.why)
        self.events.write(WarningEvent(t=self.now(), text=news.why), self.now())

    def _ended(self, attempt: Attempt, event: Event) -> None:
        batch = self._batches[attempt.batch]
        if event.status == "done" and (part := slice_of(attempt.fragment)):
            self._sliced(attempt, part, batch, event)
            return
        self._log(attempt, batch, event)
        self.said.extra(event.extra)
        if attempt.look:
            self._looked(attempt.batch, attempt.look, event)
        elif event.status == "done" and attempt.fragment:
            self._found(attempt, event)
        elif event.status == "done":
            self.said.hear(event.stderr)
            self._committed(attempt, batch, event, event.task)
        elif event.status == "misplaced":
            self._misplaced(attempt.batch)
        elif event.status == "killed":
            self._killed(attempt)
        elif event.status == "io":
            raise self._our_failure(event)
        else:
            self._failed(attempt, batch, event)

    def _killed(self, attempt: Attempt) -> None:
        # Only when the run is to stop; other searches of the batch may still end, so it is not forgotten.
        if not attempt.fragment:
            self._forget(attempt.batch)

    def _found(self, attempt: Attempt, event: Event) -> None:
        # What it says is not passed on: it is no command of the user's.
        assert event.task is not None and self.searches is not None  # as in _committed
        self.counts.tasks += 1
        if self.searches.found(attempt.batch, attempt.fragment, event.task.blocks[0], event.wall_seconds):
            self._found_all.append(attempt.batch)

    def _sliced(self, attempt: Attempt, part: Slice, batch: Batch, event: Event) -> None:
        assert event.task is not None and self.searches is not None  # as in _committed
        if part.share:
            self._log(attempt, batch, event)
            self.counts.tasks += 1
            if self.searches.ranked(attempt.batch, part, event.task):
                self._found_all.append(attempt.batch)
            return
        result = self.searches.sliced(attempt.batch, part, event.task)
        if result:
            attempt.fragment = 0  # with it, the output of the record is there
        self._log(attempt, batch, event)
        if not part.number:
            self.said.hear(event.stderr)  # all say the same
        if result:
            self._committed(attempt, batch, event, result)

    def _misplaced(self, number: int) -> None:
        """Subjects cannot be ranked, or a slice is not what it was taken for: one task writes all of them."""
        assert self.searches is not None  # as there was a slice
        self.searches.failed(number, lambda: self._found_all.append(number))

    def _committed(self, attempt: Attempt, batch: Batch, event: Event, task: Committed | None) -> None:
        assert task is not None  # a task that is done has been committed
        self.stage.put(task)
        self.counts.tasks += 1
        self._count_done(batch)
        seconds: float | None = event.wall_seconds
        if self.searches:
            searched = self.searches.seconds(attempt.batch)
            seconds = None if searched is None else event.wall_seconds + searched
        actions = self.dispatcher.attempt_ended(attempt.batch, Result.DONE, seconds=seconds)
        self.verifier.committed(batch, task, event.wall_seconds)
        self._do(actions)

    def _failed(self, attempt: Attempt, batch: Batch, event: Event) -> None:
        words = failure_words(event, self.plan.job.record_timeout)
        if attempt.fragment and self.searches and not slice_of(attempt.fragment):
            how, line, said = words.partition("\n")
            words = f"{how} in fragment {attempt.fragment} of {self.searches.n} of the database{line}{said}"
        self._failures[attempt.batch] = words
        if self.interrupt.signal:
            return
        result = result_of(event, self.plan.use.fatal_statuses)
        mark = signature(event, self.quarantine.names(batch))
        if attempt.fragment and self.searches and result is not Result.FATAL:
            self.searches.failed(attempt.batch, lambda: self._tell_failure(attempt.batch, result, mark))
        else:
            self._tell_failure(attempt.batch, result, mark)

    def _tell_failure(self, number: int, result: Result, mark: str) -> None:
        batch = self._batches[number]
        actions = self.dispatcher.attempt_ended(number, result, mark)
        if any(isinstance(action, Run) for action in actions):
            reason = self._failures[number]
            self.counts.retries += 1
            self.events.write(RetryEvent(t=self.now(), first=batch.first, last=batch.last, reason=reason), self.now())
        self._do(actions)

    # Second looks

    def _look_again(self) -> None:
        for piece in () if self.interrupt.signal else self.verifier.take(done=self.dispatcher.done):
            number = self._remember(piece.batch)
            attempt = Attempt(number, piece.attempt, fragment=LOOK, look=piece)
            self._submit(number, attempt, self.verifier.is_urgent(piece))

    def _looked(self, number: int, piece: Piece, event: Event) -> None:
        self._forget(number)
        if event.status == "io":
            raise self._our_failure(event)
        if event.status != "killed":
            self.verifier.looked(piece, event.task)

    def _our_failure(self, event: Event) -> MillraceError:
        if event.disk_full:
            return disk_full(self.plan, event.detail)
        return MillraceError(f"a result could not be kept: {event.detail}", "nothing is lost: the same command resumes")

    # Interruption

    def _wind_down(self) -> None:
        """Let what runs end within the grace period, at once on a second signal; commit what ends well."""
        self.message(
            f"{self.interrupt.name}: no more work is handed out; waiting at most {GRACE:.0f} s for {self._running} running tools (again: at once)"
        )
        for task in self.node.withdraw():
            self._attempts.pop(task, None)
        deadline = self.now() + GRACE
        killed = False
        while self._attempts:
            if not killed and (self.interrupt.count > 1 or self.now() > deadline):
                self.node.kill_all()
                killed = True
            for event in self.node.events(TICK):
                self._handle(event)
            self._look_around()
        self.show(self._snapshot())

    # Bookkeeping

    def _remember(self, batch: Batch) -> int:
        self._serial += 1
        self._batches[self._serial] = batch
        return self._serial

    def _release(self, number: int) -> None:
        for path in self._batches[number].spooled:
            path.unlink(missing_ok=True)
        self._forget(number)

    def _forget(self, number: int) -> None:
        if self.searches:
            self.searches.forget(number)
        self._batches.pop(number, None)
        self._failures.pop(number, None)
        self._alone.discard(number)

    def _count_done(self, batch: Batch) -> None:
        self.counts.records += batch.n_records
        self.counts.units += self._units(batch)
        self.counts.bytes += batch.bytes

    def _log(self, attempt: Attempt, batch: Batch, event: Event) -> None:
        self.counts.cpu += event.cpu_seconds
        now = self.now() - event.ago_seconds
        own = ("done", "timeout", "killed", "misplaced")
        status = event.status if event.status in own else "failed"
        if attempt.look and status == "done":
            status = "verified"
        written = sum(block.length for block in event.task.blocks) if event.task else 0
        self.events.write(
            TaskEvent(
                t=now, start=attempt.start, slot=event.slot, first=batch.first, last=batch.last, units=self._units(batch),
                bytes=batch.bytes, cpu=event.cpu_seconds, rss=event.peak_rss_bytes, out=written,
                attempt=attempt.number, fragment=attempt.fragment, status=status, detail=event.detail,
            ),
            now,
        )  # fmt: skip

    def _snapshot(self) -> Snapshot:
        counts = self.counts
        searched = 0
        if self.searches:  # few batches, each of them long: what is found shows that the run goes on
            shares = ((batch.bytes, self.searches.share(number)) for number, batch in self._batches.items())
            searched = int(sum(size * share for size, share in shares))
        return Snapshot(
            elapsed=self.now(), slots=self.plan.slots, slots_busy=self._running, records_done=counts.records,
            units_done=counts.units, unit=self.plan.use.cost.unit, bytes_done=counts.bytes + searched,
            bytes_total=self.feeder.total, records_resumed=counts.resumed, tasks_done=counts.tasks,
            retries=counts.retries, quarantined=counts.quarantined, cpu=counts.cpu,
        )  # fmt: skip


def result_of(event: Event, fatal_statuses: Container[int]) -> Result:
    """What the dispatcher makes of an attempt that failed."""
    if event.out_of_memory:
        return Result.CROWDED if event.side_by_side > 1 else Result.STARVED
    if event.status == "spawn" or event.exit_status in fatal_statuses:
        return Result.FATAL
    return Result.TIMED_OUT if event.status == "timeout" else Result.FAILED


def too_many_failures(tool: str, limit: QuarantineLimit, reason: str) -> MillraceError:
    """The error of a tool that fails for more records than may be given up."""
    return ToolError(
        f"{tool} failed for {limit.n_given_up:,} of {limit.n_ended:,} records, the last time so: {reason}",
        "that many failures are taken for a fault of the command or the machine, not of records; once it is gone the same "
        "command resumes; --max-quarantined allows more",
    )


def too_little_memory(tool: str, reason: str) -> MillraceError:
    """The error of a tool that needs more memory than there is, for most records."""
    return MillraceError(
        f"{tool} needs more memory than there is: {reason}",
        "give it more (in Slurm: --mem), then type the same command again: it resumes",
    )


def disk_full(plan: Plan, detail: str) -> MillraceError:
    """The error of a full disk: where, how much, and that nothing is lost."""
    if f"/{workdir.prefix()}" in detail:
        return MillraceError(
            f"no space left: {detail}",
            "the files of the tasks at work lie there: free some space, use fewer --slots or a smaller --batch, "
            "then type the same command again: it resumes",
        )
    return MillraceError(
        f"no space left: {detail}",
        f"free some space on the disk of {plan.run_dir} (results need about twice the size of the output), "
        "then type the same command again: it resumes",
    )
