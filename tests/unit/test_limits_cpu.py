"""Tasks that never end are told from those that take long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from run_histories import Ref

from millrace.core.tasks import BatchId, SlotId, SlotTask, TaskEnded, TaskEnding
from millrace.core.tool_use import CostHint
from millrace.scheduler.limits import FACTOR, MIN_LIMIT_SECONDS, MIN_RECORDS, MIN_TASKS, CpuLimit
from millrace.scheduler.protocol import BatchCut, BatchExtent, RunBegun, SchedulerAction, SubmitTask, TickEnded
from millrace.scheduler.scheduler import BatchScheduler, SchedulerSettings

tasks = st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1000), st.integers(1, 200)), max_size=30)


@given(tasks, st.integers(1, 2000))
def test_records_like_earlier_ones_stay_below_the_limit(done: list[tuple[int, float, int]], units: int) -> None:
    limit = CpuLimit()
    for each in done:
        limit.observe_task(*each)
    most = limit.compute_limit_seconds(units)
    if len(done) < MIN_TASKS or sum(records for *_, records in done) < MIN_RECORDS or units > max(n for n, *_ in done):
        assert most is None
        return
    assert most is not None and most >= MIN_LIMIT_SECONDS
    start = min(seconds for _, seconds, _ in done)
    slowest = max(seconds / n for n, seconds, _ in done)
    assert most >= FACTOR * (start + units * slowest) * 0.999


def cut_and_submit(scheduler: BatchScheduler, number: int, first: int, last: int) -> SlotTask:
    scheduler.request_batches(None)
    actions: list[SchedulerAction] = scheduler.handle(
        BatchCut(BatchExtent(BatchId(number), first, last, 10 * (last - first))), 0.0
    )
    actions += scheduler.handle(TickEnded(), 0.0)
    (task,) = [action.task for action in actions if isinstance(action, SubmitTask)]
    return task


def end(scheduler: BatchScheduler, task: SlotTask, cpu_seconds: float) -> None:
    done = Ref(0, 1, 0, [])
    ended = TaskEnded(
        task=task.id, slot=SlotId(0), ago_seconds=0.0, ending=TaskEnding.DONE, cpu_seconds=cpu_seconds,
        wall_seconds=cpu_seconds, committed=done,  # type: ignore[arg-type]
    )  # fmt: skip
    scheduler.handle(ended, 0.0)


def limits_of(timeout: float | None) -> list[float | None]:
    scheduler = BatchScheduler(
        SchedulerSettings(slots=1, cost=CostHint(), batch_size=(40, 0), record_timeout_seconds=timeout)
    )
    scheduler.handle(RunBegun(), 0.0)
    found = []
    for number in range(5):
        task = cut_and_submit(scheduler, number + 1, 40 * number, 40 * number + 40)
        found.append(task.cpu_limit_seconds)
        end(scheduler, task, 8.0)
    return found


def test_first_tasks_have_no_limit() -> None:
    assert limits_of(None) == [None, None, None, 1600.0, 1600.0]


def test_time_limit_of_the_user_replaces_the_computed_one() -> None:
    assert limits_of(5.0) == [None] * 5
