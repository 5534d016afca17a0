"""The searches of a batch: from the first to the last, through failures, with what an earlier run found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from millrace import _core
from millrace.core.tasks import BatchId, SearchTask, TaskKind, WholeTask
from millrace.core.tool_use import CostHint, DatabaseFragment, FragmentPlan, OutputUse
from millrace.scheduler.fragment_search import SearchProgress
from millrace.scheduler.protocol import (
    AttemptResult,
    BatchCut,
    BatchExtent,
    InputEnded,
    RunBegun,
    SubmitTask,
    TaskFailure,
    TickEnded,
)
from millrace.scheduler.scheduler import BatchScheduler, SchedulerSettings


def block(name: str) -> _core.BlockRef:
    return cast(_core.BlockRef, name)


def test_batch_is_complete_when_its_last_fragment_is() -> None:
    searches = SearchProgress(2)
    assert not searches.begin_attempt(1, 1, {})
    assert [searches.pop_next_search(), searches.pop_next_search(), searches.pop_next_search()] == [
        (1, 1),
        (1, 2),
        None,
    ]
    assert not searches.record_search(1, 2, block("b"), 3.0)
    assert searches.compute_done_share(1) == 1 / 3
    assert searches.record_search(1, 1, block("a"), 1.0)
    assert searches.make_ready_batch(1, 1).found == ["a", "b"]
    assert searches.estimate_seconds(1) == 4.0


def test_searches_of_an_earlier_run_are_not_repeated() -> None:
    searches = SearchProgress(3)
    assert not searches.begin_attempt(1, 1, {1: block("a"), 3: block("c")})
    assert [searches.pop_next_search(), searches.pop_next_search()] == [(1, 2), None]
    assert searches.record_search(1, 2, block("b"), 2.0)
    assert searches.make_ready_batch(1, 1).found == ["a", "b", "c"]
    assert searches.estimate_seconds(1) == 6.0, "the others took as long, as far as is known"
    assert searches.begin_attempt(2, 1, {1: block("a"), 2: block("b"), 3: block("c")})
    assert searches.estimate_seconds(2) is None


def test_failure_is_reported_once_after_all_searches_ended() -> None:
    """The searches are those of its batch."""
    searches = SearchProgress(4)
    searches.begin_attempt(1, 1, {})
    for _ in range(3):
        searches.pop_next_search()
    first, second = TaskFailure(AttemptResult.FAILED, "first"), TaskFailure(AttemptResult.FAILED, "second")
    searches.record_failure(1, first)
    assert searches.pop_next_search() is None, "no search is begun that may be for nothing"
    assert searches.pop_setback(1) is None
    searches.record_failure(1, second)
    assert searches.pop_setback(1) is None
    assert not searches.record_search(1, 3, block("c"), 1.0)
    assert [searches.pop_setback(1), searches.pop_setback(1)] == [first, None]
    # The next attempt searches what is missing.
    assert not searches.begin_attempt(1, 2, {})
    assert searches.get_attempt(1) == 2
    assert [searches.pop_next_search() for _ in range(4)] == [(1, 4), (1, 1), (1, 2), None]


@dataclass
class Sized:
    length: int


def test_complete_batch_continues_as_its_parts() -> None:
    searches = SearchProgress(2)
    searches.begin_attempt(1, 2, {})
    blocks = [cast(_core.BlockRef, Sized(length)) for length in (30, 12)]
    for block_of_fragment, (batch, fragment) in zip(blocks, iter(searches.pop_next_search, None), strict=False):
        searches.record_search(batch, fragment, block_of_fragment, 4.0)
    assert searches.make_ready_batch(1, 1).found_bytes == 42
    searches.divide_batch(1, {2: 0.75, 3: 0.25})
    searches.forget_batch(1)
    assert [searches.estimate_seconds(part) for part in (2, 3)] == [6.0, 2.0]
    assert searches.make_ready_batch(2, 1).found == searches.make_ready_batch(3, 1).found == blocks
    assert [searches.get_attempt(part) for part in (2, 3)] == [2, 2]
    # A part that fails begins anew with what was found.
    assert searches.begin_attempt(3, 3, {}) and searches.pop_next_search() is None


def test_split_batch_is_dropped() -> None:
    searches = SearchProgress(2)
    searches.begin_attempt(1, 1, {})
    searches.forget_batch(1)
    assert searches.pop_next_search() is None and searches.compute_done_share(1) == 0


def list_first_tasks(units: list[int], spread: float = 1.0) -> dict[int, set[type[TaskKind]]]:
    """Cut a batch of one record for each of ``units``, for three slots, and return the kinds of the tasks of each."""
    fragments = tuple(DatabaseFragment(first=k, last=k + 1, size=1, argv=()) for k in range(2))
    plan = FragmentPlan(
        fragments=fragments, found=OutputUse(name="found", path=""), finish=(), database="", is_for_tail=True
    )
    scheduler = BatchScheduler(
        SchedulerSettings(slots=3, cost=CostHint(unit="residues", spread=spread), batch_size=(1, 0), fragmented=plan)
    )
    actions = [*scheduler.handle(RunBegun(), 0.0)]
    for number, size in enumerate(units):
        scheduler.request_batches(float(sum(units[number:])))
        actions += scheduler.handle(BatchCut(BatchExtent(BatchId(number + 1), number, number + 1, size)), 0.0)
    actions += scheduler.handle(InputEnded(), 0.0) + scheduler.handle(TickEnded(), 1.0)
    found: dict[int, set[type[TaskKind]]] = {}
    for action in actions:
        if isinstance(action, SubmitTask):
            found.setdefault(action.task.batch, set()).add(type(action.task.kind))
    return found


def test_only_a_record_that_could_end_last_is_in_fragments() -> None:
    kinds = list_first_tasks([10, 10, 500, 10, 10, 10, 10])
    assert {batch for batch, found in kinds.items() if found == {WholeTask}} == {1, 2, 4, 5}, "the last two are shared"
    assert kinds[3] == {SearchTask}
    assert list_first_tasks([10] * 4) == {1: {WholeTask}, 2: {WholeTask}, 3: {SearchTask}, 4: {SearchTask}}
    assert list_first_tasks([10] * 4, spread=5.0) == {number: {SearchTask} for number in range(1, 5)}


def test_start_of_a_batch_is_that_of_all_its_tasks() -> None:
    """In seconds and in units: else a unit would seem to take as many times longer as a batch has tasks."""
    fragments = tuple(DatabaseFragment(first=k, last=k + 1, size=1, argv=()) for k in range(3))
    plan = FragmentPlan(fragments=fragments, found=OutputUse(name="found", path="found"), finish=(), database="db")
    cost = CostHint(startup_seconds=0.5, start_units=100)
    planner = SchedulerSettings(slots=2, cost=cost, fragmented=plan).cut_planner
    assert (planner.hint.startup_seconds, planner.hint.start_units) == (2.0, 400)
    assert planner.cost.per_unit == 0.5 / 100
