"""What is seen of a run at one look, of files that grow, are cut off, replaced and removed."""

from __future__ import annotations

from pathlib import Path

from event_stories import story

from millrace.extensions.watch import terminal_screen, watch_view
from millrace.extensions.watch.watch_targets import FileTail
from millrace.extensions.watch.watch_view import WatchView
from millrace.extensions.workflow.workflow_folder import PhaseLogLine, list_work_stretches
from millrace.report.event_log import load_runs, summarise_nodes
from millrace.report.events import RetryEvent, RunEvent, TaskEvent


def test_tail_reads_each_complete_line_once(tmp_path: Path) -> None:
    """Also of a file that is removed while it is read."""
    path = tmp_path / "log"
    tail = FileTail(path)
    assert tail.read_lines() == []
    path.write_bytes(b"a\nb")
    assert tail.read_lines() == [b"a"]
    with path.open("ab", buffering=0) as file:
        file.write(b"c\nd\n")
        assert tail.read_lines() == [b"bc", b"d"]
        file.write(b"e\n")
        path.unlink()
        assert tail.read_lines() == [b"e"]
    tail.close()


def test_replaced_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\n")
    tail = FileTail(path)
    assert (tail.read_lines(), tail.n_files) == ([b"a"], 1)
    (tmp_path / "new").write_bytes(b"b\n")
    (tmp_path / "new").replace(path)
    assert (tail.read_lines(), tail.n_files) == ([b"b"], 2)
    tail.close()


def test_tasks_belong_to_the_node_of_their_slot() -> None:
    head = RunEvent(slots=5, nodes=[("n1", 2), ("n2", 2), ("n1", 1)])
    tasks = [TaskEvent(t=4, start=2 * (slot % 2), slot=slot, first=slot, last=slot + 1) for slot in range(5)]
    bad = TaskEvent(t=8, start=6, slot=3, first=9, last=10, status="failed")
    one, two = summarise_nodes(load_runs([head, *tasks, bad])[0])
    assert (one.host, one.slots, one.n_tasks, one.records, one.n_failed, one.silent) == ("n1", 3, 3, 3, 0, 4)
    assert (two.host, two.slots, two.n_tasks, two.records, two.n_failed, two.silent) == ("n2", 2, 3, 2, 1, 0)
    assert (one.busy, two.busy) == (10 / 24, 8 / 16)
    assert [each.slots for each in summarise_nodes(load_runs([RunEvent(slots=7)])[0])] == [7]


def test_remaining_time_follows_from_the_finish_times() -> None:
    head = RunEvent(slots=1, bytes_total=1000)
    tasks = [TaskEvent(t=n + 1, start=n, first=n, last=n + 1, bytes=100) for n in range(5)]
    view = WatchView("o.millrace", "running", load_runs([head, *tasks]))
    assert view.share == 0.5 and view.left and view.left[1] == 5.0
    assert (
        terminal_screen.format_status_line(view)
        == "o.millrace: running, 50 %, 5 records, 5.0 s, about 5.0 s left (4.8 s to 5.2 s)"
    )
    assert terminal_screen.build_change_key(view) != terminal_screen.build_change_key(
        WatchView("o.millrace", "running", load_runs([head, *tasks, RetryEvent()]))
    )
    over = WatchView("o.millrace", "killed", view.runs)
    assert over.left is None and (over.code, WatchView("", "done").code, WatchView("", "quarantined").code) == (1, 0, 3)


def test_resumed_run_counts_earlier_records() -> None:
    view = WatchView("o.millrace", "quarantined", load_runs(story()))
    assert view.records_done == 1997 and view.n_quarantined == 3 and view.failures


def test_resumed_phases_have_a_bar_per_start() -> None:
    lines = [
        PhaseLogLine(10, "a", "begun"), PhaseLogLine(14, "a", "ended"), PhaseLogLine(11, "b", "begun"),
        PhaseLogLine(20, "a", "begun"), PhaseLogLine(21, "a", "ended"), PhaseLogLine(20, "b", "begun"), PhaseLogLine(25, "b", "ended", 3),
    ]  # fmt: skip
    found = list_work_stretches(lines, 30)
    views = [
        WatchView(name, state, load_runs([RunEvent(), TaskEvent(t=2, start=0)]), stretches=[each for each in found if each.phase == name])
        for name, state in (("a", "done"), ("b", "quarantined"))
    ]  # fmt: skip
    drawn = watch_view.build_phase_charts(views)
    assert [(bar["phase"], bar["start"], bar["length"], bar["state"]) for bar in drawn["bars"]] == [
        ("a", 0, 4, "stopped"), ("a", 10, 1, "done"), ("b", 1, 9, "killed"), ("b", 10, 5, "quarantined"),
    ]  # fmt: skip
    assert drawn["names"] == ["a", "b"] and drawn["length"] == 15
