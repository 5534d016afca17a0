"""Lives of batches without a process or a clock: whatever fails in whatever order, every record ends once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifecycle_builders import ended, lives_of, part

from millrace.core.tasks import BatchId
from millrace.core.tool_use import CostHint
from millrace.scheduler.batch_lifecycle import (
    MIN_FAILURES_TO_BLAME_TOOL,
    MIN_MIXED_FAILURES_TO_BLAME_TOOL,
    BatchLifecycle,
    BatchStep,
    RunBatch,
)
from millrace.scheduler.batch_sizing import MAX_READY_BATCHES, MAX_TAIL_BYTES
from millrace.scheduler.limits import QuarantineLimit
from millrace.scheduler.protocol import (
    AttemptResult,
    CutBatches,
    QuarantineBatch,
    ReleaseBatch,
    SplitBatch,
    StopReason,
    StopRun,
    TaskFailure,
)


@dataclass
class World:
    """Everything around a lives: an input, a tool, and slots that end in any order.

    Args:
        n_records: Records of the input.
        bad: What the tool says of the records that it cannot do.
        timed_out: Bad records at which it hangs instead.
        flaky: Executions, counted from 1, that fail whatever is in them.
        sizes: Units of each record; empty: 1.
    """

    lives: BatchLifecycle
    n_records: int
    bad: dict[int, str] = field(default_factory=dict)
    timed_out: frozenset[int] = frozenset()
    flaky: frozenset[int] = frozenset()
    sizes: list[int] = field(default_factory=list)
    batches: dict[int, tuple[int, int]] = field(default_factory=dict)
    queued: deque[int] = field(default_factory=deque)
    running: list[int] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    done: list[int] = field(default_factory=list)
    quarantined: list[int] = field(default_factory=list)
    tried: set[int] = field(default_factory=set)
    executions: int = 0
    largest: int = 0
    most_in_hand: int = 0
    cut_to: int = 0
    serial: int = 0
    stopped: StopRun | None = None

    def run(self, choose: st.DataObject) -> None:
        """Carry messages until the lives is done or stops; every step must find something to do."""
        for _ in range(40 * self.n_records + 100):
            if self.stopped or self.lives.is_done:
                return
            fed = self.feed(choose)
            self.do(self.lives.end_tick())
            while self.queued and len(self.running) < self.lives.cutting.slots:
                self.running.append(self.queued.popleft())
            if self.running:
                position = choose.draw(st.integers(0, len(self.running) - 1), "which ends")
                batch = self.running.pop(position)
                first, last = self.batches[batch]
                if last - first > 1 and not choose.draw(st.integers(0, 15), "goes on in parts, if 0"):
                    middle = choose.draw(st.integers(first + 1, last - 1), "second part from")
                    self.divide(batch, [(first, middle), (middle, last)])
                else:
                    self.end(batch)
            else:
                assert fed or self.stopped or self.lives.is_done, "nothing runs, nothing is wanted, and it is not done"
        raise AssertionError("no end in sight")

    def units(self, first: int, last: int) -> int:
        return sum(self.sizes[first:last]) if self.sizes else last - first

    def feed(self, choose: st.DataObject) -> bool:
        limits = self.lives.request_batches(
            float(self.units(self.cut_to, self.n_records)), several=choose.draw(st.booleans(), "several at once")
        )
        if limits is None:
            return False
        for _ in range(limits.n_batches):
            if self.cut_to == self.n_records:
                self.do(self.lives.end_input())
                break
            self.cut(choose, limits)
        return True

    def cut(self, choose: st.DataObject, limits: CutBatches) -> None:
        first, most = self.cut_to, 1
        while first + most < self.n_records and most < (limits.records or self.n_records):
            if limits.units and self.units(first, first + most) >= limits.units:
                break
            most += 1
        count = choose.draw(st.integers(1, most), "records cut") if self.bad or not self.sizes else most
        self.largest = max(self.largest, count)
        self.cut_to = first + count
        self.do(
            self.lives.add_cut_batch(part(self.remember(first, self.cut_to), count, self.units(first, self.cut_to)))
        )
        self.most_in_hand = max(self.most_in_hand, len(self.batches))

    def remember(self, first: int, last: int) -> int:
        self.serial += 1
        self.batches[self.serial] = (first, last)
        return self.serial

    def divide(self, batch: int, extents: list[tuple[int, int]]) -> None:
        """A batch that runs goes on as several, as in the search of its candidates."""
        del self.batches[batch]
        parts = [(self.remember(first, last), last - first, self.units(first, last)) for first, last in extents]
        self.lives.replace_divided_batch(batch, [part(*each) for each in parts])
        self.running += [part for part, _, _ in parts]
        self.begun.update(self.running)

    def end(self, batch: int) -> None:
        self.executions += 1
        first, last = self.batches[batch]
        self.tried.update(range(first, last))
        culprit = next((record for record in range(first, last) if record in self.bad), None)
        if culprit is None and self.executions not in self.flaky:
            self.done.extend(range(first, last))
            self.do(ended(self.lives, batch, AttemptResult.DONE, seconds=0.01 * self.units(first, last)))
        elif culprit in self.timed_out:
            self.do(ended(self.lives, batch, AttemptResult.TIMED_OUT, "timeout"))
        else:
            said = self.bad[culprit] if culprit is not None else "flaky"
            self.do(ended(self.lives, batch, AttemptResult.FAILED, said))

    def do(self, actions: list[BatchStep]) -> None:
        for action in actions:
            match action:
                case RunBatch(batch, _, urgent):
                    assert batch in self.batches
                    assert batch not in self.queued and batch not in self.running, "a batch runs twice at once"
                    if not self.bad and not urgent and batch not in self.begun:
                        left = [self.units(*self.batches[other]) for other in self.batches.keys() - self.begun]
                        assert self.units(*self.batches[batch]) == max(left), "a larger one waits"
                    self.begun.add(batch)
                    (self.queued.appendleft if urgent else self.queued.append)(batch)
                case SplitBatch(batch, records):
                    first, last = self.batches.pop(batch)
                    assert 0 < records < last - first
                    middle = first + records
                    parts = [
                        (self.remember(a, b), b - a, self.units(a, b)) for a, b in ((first, middle), (middle, last))
                    ]
                    self.do(self.lives.replace_split_batch(batch, [part(*each) for each in parts]))
                case QuarantineBatch(batch):
                    first, last = self.batches[batch]
                    assert last - first == 1
                    self.quarantined.append(first)
                    self.do(self.lives.drop_quarantined_batch(batch))
                case ReleaseBatch(batch):
                    del self.batches[batch]
                case StopRun():
                    self.stopped = action
                    return


def a_lives(slots: int = 2, retries: int = 1, *, proven: bool = False) -> BatchLifecycle:
    return lives_of(slots, CostHint(unit="bytes"), retries, (5, 0), proven=proven, limit=QuarantineLimit(share=1.0))


@settings(max_examples=50)
@given(st.data())
def test_each_record_ends_once_and_bad_ones_are_quarantined(choose: st.DataObject) -> None:
    n_records = choose.draw(st.integers(1, 60), "records")
    bad = choose.draw(
        st.dictionaries(st.integers(0, n_records - 1), st.sampled_from(["a", "b", "c"]), max_size=8), "bad"
    )
    timed_out = frozenset(choose.draw(st.sets(st.sampled_from(sorted(bad)))) if bad else ())
    retries = choose.draw(st.integers(0, 2), "retries")
    size = choose.draw(st.integers(1, 16), "batch")
    lives = lives_of(
        choose.draw(st.integers(1, 4), "slots"), CostHint(unit="bytes"), retries, (size, 0),
        proven=choose.draw(st.booleans(), "resumed"),
    )  # fmt: skip
    world = World(lives, n_records, bad, timed_out)
    world.run(choose)
    if world.stopped:
        # The tool is given up only while nothing has succeeded, and after enough single records.
        assert world.stopped.why is StopReason.TOOL and not world.done and not world.quarantined
        failed_alone = world.tried & bad.keys()
        assert len(failed_alone) >= min(MIN_FAILURES_TO_BLAME_TOOL, n_records)
        return
    assert sorted(world.done + world.quarantined) == list(range(n_records))
    assert sorted(world.quarantined) == sorted(bad)
    assert not world.batches, "a batch was not released"
    steps = world.largest.bit_length() + 1
    per_bad = (retries + 1) * 2 + 2 * steps + world.largest
    assert world.executions <= n_records + 2 * lives.cutting.slots + len(bad) * per_bad


@pytest.mark.parametrize("proven", [True, False])
def test_batch_without_its_filesystem_runs_again_unchanged(proven: bool) -> None:
    """However often, even if nothing is to be tried again and nothing has succeeded yet."""
    lives = a_lives(retries=0, proven=proven)
    lives.request_batches(None)
    first = lives.add_cut_batch(part(1, 5, 5))
    assert first == [RunBatch(BatchId(1), 1)]
    for _ in range(5):
        assert ended(lives, 1, AttemptResult.FILESYSTEM_GONE) == [RunBatch(BatchId(1), 1, urgent=True)]
    assert ReleaseBatch(BatchId(1)) in ended(lives, 1, AttemptResult.DONE)


SIZES = st.lists(st.one_of(st.integers(1, 50), st.integers(1, 5000)), min_size=1, max_size=120)


@settings(max_examples=50)
@given(st.data())
@pytest.mark.parametrize("fixed", [(0, 0), (1, 0), (7, 0)])
def test_records_of_any_size_end_once_largest_batch_first(fixed: tuple[int, int], choose: st.DataObject) -> None:
    """Of the batches that wait, the largest starts first."""
    sizes = choose.draw(SIZES, "units of the records")
    slots = choose.draw(st.integers(1, 4), "slots")
    retries = choose.draw(st.integers(0, 1), "retries")
    bad = choose.draw(st.dictionaries(st.integers(0, len(sizes) - 1), st.just("a"), max_size=3), "bad")
    hint = CostHint(unit="residues", longest=choose.draw(st.sampled_from([0, max(sizes)]), "longest"))
    lives = lives_of(slots, hint, retries, fixed, proven=True)
    world = World(lives, len(sizes), bad, sizes=sizes)
    world.run(choose)
    assert sorted(world.done + world.quarantined) == list(range(len(sizes)))
    assert sorted(world.quarantined) == sorted(bad)
    assert not world.batches, "a batch was not released"
    assert world.most_in_hand <= slots * (1 + MAX_READY_BATCHES) + 2 + 2 * len(bad)


def measured(
    slots: int, unit: str = "residues", fixed: tuple[int, int] = (0, 0), longest: int = 5000
) -> BatchLifecycle:
    """A lives that has seen batches of 1000 units, a millisecond each."""
    lives = lives_of(slots, CostHint(unit=unit, startup_seconds=0.0, longest=longest), 1, fixed)
    for number in range(-slots, 0):
        assert lives.request_batches(1e9)
        lives.add_cut_batch(part(number, 1, 1000))
    for number in range(-slots, 0):
        ended(lives, number, AttemptResult.DONE, seconds=1.0)
    return lives


def cut(lives: BatchLifecycle, units: list[int], remaining: float) -> tuple[list[RunBatch], list[int]]:
    """Cut batches of one record, of so many units, as long as any are wanted; what is started, and not cut."""
    runs: list[RunBatch] = []
    for number, size in enumerate(units):
        if lives.request_batches(remaining) is None:
            return runs, units[number:]
        runs += [action for action in lives.add_cut_batch(part(number, 1, size)) if isinstance(action, RunBatch)]
    return runs, []


def test_largest_of_the_last_batches_start_first() -> None:
    lives = measured(1, fixed=(1, 0))
    runs, left = cut(lives, [500, 600, 100, 900, 200, 800], 3000)
    assert [run.batch for run in runs] == [0, 1] and not left
    lives.end_input()
    order = []
    for _ in range(6):
        run = runs.pop(0)
        order.append(run.batch)
        actions = ended(lives, run.batch, AttemptResult.DONE, seconds=1.0)
        runs += [action for action in actions if isinstance(action, RunBatch)]
    assert order == [0, 1, 3, 5, 4, 2]
    assert lives.is_done


@pytest.mark.parametrize(
    ("slots", "unit", "remaining", "longest", "why"),
    [
        (2, "residues", 18_000, 5000, "much is left"),
        (2, "records", 900, 5000, "the sizes of records are unknown"),
        (4, "residues", MAX_TAIL_BYTES + 1.0, 5000, "it would take too much space"),
        (2, "residues", None, 5000, "the end is not known"),
        (2, "residues", 9000, 0, "no record is known to be long"),
        (1, "residues", 7000, 5000, "nobody waits"),
    ],
)
def test_tail_is_not_cut_in_advance_if(slots: int, unit: str, remaining: float | None, longest: int, why: str) -> None:
    lives = measured(slots, unit, longest=longest)
    for number in range(2 * slots):
        assert lives.request_batches(remaining) is not None
        lives.add_cut_batch(part(number, 1, 1000))
    assert lives.request_batches(remaining) is None, why


def test_record_longer_than_a_batch_runs_alone_and_first() -> None:
    """It goes before the batches that wait."""
    lives = measured(2)
    limits = lives.request_batches(30_000.0)
    assert limits and limits.units == 8000  # much is left, so this is not the end
    assert lives.add_cut_batch(part(1, 5, 40_000)) == [SplitBatch(1, 4)]
    assert lives.replace_split_batch(1, [part(2, 4, 7000), part(3, 1, 33_000)]) == [
        RunBatch(3, 1, urgent=True),
        RunBatch(2, 1),
    ]
    assert ended(lives, 2, AttemptResult.FAILED, "x") == [RunBatch(2, 2, urgent=True)]  # it has its retries


def test_unsplittable_batch_is_not_split_for_its_size() -> None:
    lives = measured(2)
    assert lives.request_batches(30_000.0)
    assert lives.add_cut_batch(part(1, 5, 40_000), stays_whole=True) == [RunBatch(1, 1)]


@settings(max_examples=50)
@given(st.data())
def test_retryable_failures_quarantine_nothing(choose: st.DataObject) -> None:
    n_records = choose.draw(st.integers(1, 40), "records")
    flaky = choose.draw(st.integers(1, 30), "the execution that fails by chance")
    world = World(a_lives(), n_records, flaky=frozenset({flaky}))
    world.run(choose)
    assert not world.stopped
    assert sorted(world.done) == list(range(n_records))


@settings(max_examples=50)
@given(st.data())
@pytest.mark.parametrize("ways", ["alike", "each in its own way", "timeout"])
def test_always_failing_tool_is_stopped_soon(ways: str, choose: st.DataObject) -> None:
    n_records = choose.draw(st.integers(20, 300), "records")
    bad = {record: "x" if ways != "each in its own way" else f"x{record}" for record in range(n_records)}
    slots = choose.draw(st.integers(1, 8), "slots")
    timed_out = frozenset(bad if ways == "timeout" else ())
    world = World(lives_of(slots, CostHint(unit="bytes"), 1, (50, 0)), n_records, bad, timed_out)
    world.run(choose)
    assert world.stopped and world.stopped.why is StopReason.TOOL
    assert not world.quarantined
    assert world.executions <= 2 * slots + 2 * MIN_MIXED_FAILURES_TO_BLAME_TOOL


@settings(max_examples=50)
@given(st.data())
def test_empty_records_do_not_count_against_a_tool(choose: st.DataObject) -> None:
    """A tool may fail for each record without residues and work for all others."""
    n_empty = choose.draw(
        st.integers(MIN_FAILURES_TO_BLAME_TOOL, 2 * MIN_MIXED_FAILURES_TO_BLAME_TOOL),
        "empty records, before one that is not",
    )
    lives = lives_of(
        choose.draw(st.integers(1, 4), "slots"), CostHint(unit="bytes"), 1, (choose.draw(st.integers(1, 9), "batch"), 0),
        limit=QuarantineLimit(share=1.0),
    )  # fmt: skip
    world = World(lives, n_empty + 1, dict.fromkeys(range(n_empty), "x"), sizes=[*[0] * n_empty, 5])
    world.run(choose)
    assert not world.stopped
    assert world.done == [n_empty] and sorted(world.quarantined) == list(range(n_empty))


@settings(max_examples=5)
@given(st.data())
def test_few_different_failures_are_quarantined(choose: st.DataObject) -> None:
    world = World(a_lives(slots=1), 2, {0: "a", 1: "b"})
    world.run(choose)
    assert not world.stopped
    assert sorted(world.quarantined) == [0, 1]


def test_a_fatal_status_stops_at_once() -> None:
    lives = a_lives()
    lives.request_batches(None)
    lives.add_cut_batch(part(1, 5, 5))
    assert ended(lives, 1, AttemptResult.FATAL) == [StopRun(1, StopReason.TOOL, TaskFailure(AttemptResult.FATAL))]


def test_stop_on_failure_ends_at_the_first_failed_record() -> None:
    lives = lives_of(1, CostHint(unit="bytes"), 0, (1, 0), stop_on_failure=True, proven=True)
    lives.request_batches(None)
    lives.add_cut_batch(part(1, 1, 1))
    assert ended(lives, 1, AttemptResult.FAILED, "x") == [
        StopRun(1, StopReason.RECORD, TaskFailure(AttemptResult.FAILED, "x"))
    ]


def test_failing_batch_is_retried_before_it_is_split() -> None:
    lives = a_lives(proven=True)
    lives.request_batches(None)
    assert lives.add_cut_batch(part(1, 4, 4)) == [RunBatch(1, 1)]
    assert ended(lives, 1, AttemptResult.FAILED, "x") == [RunBatch(1, 2, urgent=True)]
    assert ended(lives, 1, AttemptResult.FAILED, "x") == [SplitBatch(1, 2, TaskFailure(AttemptResult.FAILED, "x"))]
    assert lives.replace_split_batch(1, [part(2, 2, 2), part(3, 2, 2)]) == [
        RunBatch(2, 1, urgent=True),
        RunBatch(3, 1, urgent=True),
    ]
