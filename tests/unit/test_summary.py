"""The summary: figures that can be checked by hand, and words."""

from pathlib import Path

import msgspec
from event_stories import story, write

from millrace.report.events import EndEvent, QuarantineEvent, RunEvent, TaskEvent, read_events
from millrace.report.summary import RunSummary, format_summary, summarise_events


def _summary(path: Path, *events: object) -> RunSummary:
    return summarise_events(read_events(write(path / "events.jsonl", list(events))))  # type: ignore[arg-type]


def test_figures_match_a_run_computed_by_hand(tmp_path: Path) -> None:
    summary = _summary(
        tmp_path,
        RunEvent(tool="blast", slots=2, unit="residues"),
        TaskEvent(start=0, t=4, slot=0, first=0, last=10, units=1000, cpu=3, rss=5_000_000),
        TaskEvent(start=0, t=1, slot=1, first=10, last=20, units=500, cpu=1, status="failed"),
        TaskEvent(start=1, t=3, slot=1, first=10, last=20, units=500, cpu=1.5),
        EndEvent(t=5, records_done=20),
    )
    assert (summary.status, summary.records_done, summary.units_done) == ("done", 20, 1500)
    assert (summary.wall, summary.cpu, summary.cpu_lost) == (5, 5.5, 1)
    assert summary.efficiency == 5.5 / 10
    assert summary.occupancy == 7 / 10
    assert summary.tail == 1
    assert (summary.records_per_second, summary.units_per_second) == (4, 300)
    assert (summary.slowest[0].first, summary.slowest[0].seconds) == (0, 4)


def test_batch_of_an_empty_input_is_not_among_the_slowest(tmp_path: Path) -> None:
    summary = _summary(tmp_path, RunEvent(), TaskEvent(start=0, t=1, slot=0, first=0, last=0), EndEvent(t=1))
    assert summary.slowest == ()
    assert "slowest" not in format_summary(summary)


def test_slot_of_several_threads_counts_all_of_them(tmp_path: Path) -> None:
    summary = _summary(tmp_path, RunEvent(threads=4), TaskEvent(start=0, t=5, first=0, last=9, cpu=15), EndEvent(t=5))
    assert summary.efficiency == 15 / 20
    assert "tool CPU 75 % of slots x threads x time" in format_summary(summary)


def test_a_busy_machine_lowers_efficiency_not_occupancy(tmp_path: Path) -> None:
    def at(stretch: float) -> RunSummary:
        tasks = [TaskEvent(start=i * stretch, t=(i + 1) * stretch, first=i, last=i + 1, cpu=1) for i in range(5)]
        return _summary(tmp_path / str(stretch), RunEvent(slots=1), *tasks, EndEvent(t=5 * stretch))

    for name in ("1.0", "3.0"):
        (tmp_path / name).mkdir()
    alone, crowded = at(1.0), at(3.0)
    assert crowded.efficiency < alone.efficiency / 2
    assert crowded.occupancy == alone.occupancy == 1


def test_tasks_under_way_are_not_idle_slots(tmp_path: Path) -> None:
    """The log has a task once it has ended."""
    tasks = (
        TaskEvent(start=0, t=2, slot=0, first=0, last=10, cpu=1),
        TaskEvent(start=0, t=8, slot=1, first=10, last=20, cpu=4),
    )
    summary = _summary(tmp_path, RunEvent(slots=3), *tasks)
    assert (summary.occupancy, summary.efficiency, summary.tail) == (1, 0.5, 0)
    (tmp_path / "ended").mkdir()
    ended = _summary(tmp_path / "ended", RunEvent(slots=3), *tasks, EndEvent(t=8, status="stopped"))
    assert ended.occupancy == 10 / 24


def test_a_killed_run_and_its_resume_add_up(tmp_path: Path) -> None:
    summary = summarise_events(read_events(write(tmp_path / "events.jsonl", story(n_tasks=100))))
    assert summary.n_runs == 2
    assert 197 <= summary.records_resumed <= 200
    assert summary.records_done == 500 - 3
    assert summary.status == "quarantined"
    assert len(summary.quarantined) == 3
    assert 0.5 < summary.efficiency < summary.occupancy <= 1


def test_a_record_done_by_a_later_run_is_no_longer_quarantined(tmp_path: Path) -> None:
    summary = _summary(
        tmp_path,
        RunEvent(),
        QuarantineEvent(record=4, name="a", reason="timeout"),
        QuarantineEvent(record=7, name="b", reason="timeout"),
        RunEvent(),
        TaskEvent(first=4, last=5),
        EndEvent(status="quarantined"),
    )
    assert [record.name for record in summary.quarantined] == ["b"]


def test_text_is_aligned_and_counts_records_from_one(tmp_path: Path) -> None:
    summary = summarise_events(read_events(write(tmp_path / "events.jsonl", story(n_tasks=100))))
    lines = format_summary(summary).splitlines()
    assert lines[0] == "status       done, except for quarantined records"
    assert all(line[12] == " " and line[13] != " " for line in lines)
    assert f"quarantined  record {summary.quarantined[0].record + 1} (" in format_summary(summary)
    assert msgspec.json.decode(msgspec.json.encode(summary), type=RunSummary) == summary


def test_an_empty_log_has_a_summary_too() -> None:
    summary = summarise_events([])
    assert summary.status == "unfinished" and summary.wall == 0
    assert format_summary(summary).startswith("status")
