"""``millrace why``: the sentences for runs of each kind."""

from __future__ import annotations

from millrace.report.event_log import load_runs
from millrace.report.events import (
    AnyLogEvent,
    EndEvent,
    QuarantineEvent,
    RetryEvent,
    RunEvent,
    SlotsEvent,
    TaskEvent,
    WarningEvent,
)
from millrace.report.run_explanation import explain_run


def make_task(slot: int, start: float, t: float, first: int, last: int, **more: object) -> TaskEvent:
    return TaskEvent(slot=slot, start=start, t=t, first=first, last=last, **{"cpu": t - start, **more})  # type: ignore[arg-type]


def explain(*events: AnyLogEvent, state: str = "done", elapsed: float = 0.0) -> str:
    return "\n".join(explain_run(load_runs(events), state, elapsed, None))


def test_busy_slots_leave_nothing_to_gain() -> None:
    told = explain(
        RunEvent(slots=2), make_task(0, 0.1, 10, 0, 5), make_task(1, 0.1, 9.9, 5, 9), EndEvent(t=10, records_done=9)
    )
    assert told.splitlines() == [
        "It has ended: 9 records in 10 s.",
        "Slots were busy 99 % of the time: only more slots, or a faster tool, would make it faster.",
    ]


def test_long_record_at_the_end_is_named() -> None:
    tasks = [make_task(n % 4, n // 4, n // 4 + 1, n, n + 1) for n in range(20)]
    told = explain(RunEvent(slots=4), *tasks, make_task(0, 5, 25, 20, 21), EndEvent(t=25, records_done=21))
    assert "Slots were idle 60 % of the time:" in told
    assert "- 1 min at the end, when only record 21 was left to do." in told
    assert "It took 20 s, 20 times as long as the usual task" in told and "--fragments" in told


def test_fewer_tasks_than_slots_are_counted() -> None:
    told = explain(RunEvent(slots=8), make_task(0, 0, 9, 0, 1), make_task(1, 0, 9, 1, 2), EndEvent(t=9, records_done=2))
    assert "- 6 of 8 slots never had a task, as there were only 2 tasks." in told


def test_retries_and_quarantine_are_told_with_their_reasons() -> None:
    told = explain(
        RunEvent(slots=1), make_task(0, 0, 4, 0, 9, status="failed"), RetryEvent(t=4, reason="exit status 7\n  no r2"),
        QuarantineEvent(t=5, record=1, name="r2", reason="exit status 7\n  no r2"), make_task(0, 4, 9, 2, 9),
        EndEvent(t=9, status="quarantined", records_done=8, quarantined=1),
    )  # fmt: skip
    assert "1 attempt failed, and cost 4.0 s of CPU; 1 retry:\n- once: exit status 7: no r2" in told
    assert "1 record quarantined; --retry-quarantined tries again:\n- record 2 (r2): exit status 7: no r2" in told


def test_slow_storage_is_suspected_where_tools_have_no_core() -> None:
    told = explain(RunEvent(slots=1), make_task(0, 0, 10, 0, 9, cpu=1.0), EndEvent(t=10, records_done=9))
    assert "its tool had a core only 10 % of the time" in told and "--profile-io" in told


def test_fewer_slots_are_told_with_their_time() -> None:
    told = explain(
        RunEvent(slots=4), make_task(0, 0, 5, 0, 9), SlotsEvent(t=6, slots=2), WarningEvent(t=6, text="memory is short"),
        make_task(0, 5, 10, 9, 18), EndEvent(t=10, records_done=18),
    )  # fmt: skip
    assert "From 6.0 s on 2 tools ran side by side, 4 before" in told and "Warned: memory is short" in told


def test_running_run_tells_what_is_waited_for() -> None:
    tasks = [make_task(0, 0, 1, 0, 5), make_task(1, 0, 1, 10, 15), make_task(1, 1, 2, 15, 20)]
    told = explain(RunEvent(slots=2), *tasks, state="running", elapsed=60)
    assert told.startswith("It has been running for 1 min: 15 records are done.")
    assert "No task has ended for 58 s, and none took longer than 1.0 s before" in told
    assert "At work, or waiting to be tried again: records 6-10." in told
    assert "The output waits for records 6-10" in told
    assert "Slots were" not in told


def test_running_run_without_tasks_says_so() -> None:
    told = explain(RunEvent(slots=2), state="running", elapsed=5)
    assert "No task has ended since it began 5.0 s ago" in told


def test_stopped_and_killed_runs_have_their_reason() -> None:
    task = make_task(0, 0, 5, 0, 9)
    told = explain(
        RunEvent(), task, EndEvent(t=5, status="stopped", message="no space left\n\nhint: x"), state="stopped"
    )
    assert told.startswith("It was stopped after 9 records: no space left. The same command goes on with it.")
    assert explain(RunEvent(), task, state="killed").startswith("It was killed after 9 records: its log has no end")
