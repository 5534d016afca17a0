"""The event log of very many tasks: small, and with the same figures."""

from __future__ import annotations

from pathlib import Path

import msgspec
from click.testing import CliRunner
from event_stories import story, write

from millrace.cli.report import command
from millrace.report.events import EndEvent, RunEvent, TaskEvent, read_events
from millrace.report.summary import summarise_events
from millrace.rundir import run_history

N = 60_000


def test_log_of_many_tasks_is_small_with_equal_figures(tmp_path: Path) -> None:
    """Slots of different speed, one task in a thousand slow, and one in ten thousand failing before it is done."""
    events: list[RunEvent | TaskEvent | EndEvent] = [RunEvent(slots=8, tool="x", unit="residues")]
    free = [0.0] * 8
    for k in range(N):
        slot = min(range(8), key=free.__getitem__)
        start, seconds = free[slot], (0.5 if k % 1000 == 7 else 0.125) + (k % 7) / 1024
        for status in ("failed", "done") if k % 10_000 == 5 else ("done",):
            end = start + seconds
            events.append(
                TaskEvent(t=end, start=start, slot=slot, first=3 * k, last=3 * k + 3, units=k % 50, bytes=60, cpu=seconds / 2, rss=k, out=k % 9, status=status)
            )  # fmt: skip
            start = end
        free[slot] = start + 1 / 1024
    events.append(EndEvent(t=max(free), records_done=3 * N))
    log = write(tmp_path / "events.jsonl", events)
    full, told = summarise_events(events), summarise_events(read_events(log))
    assert log.stat().st_size < 6e6  # of 13 MB
    for name, value in msgspec.structs.asdict(told).items():
        wanted = getattr(full, name)
        assert value == wanted or abs(value - wanted) <= 1e-9 * abs(wanted), name
    assert told.n_tasks == N + N // 10_000 and told.records_done == 3 * N

    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    about = run_history.EndedRun(
        run_id="ab" * 16, ended="", argv=("x",), host="", cwd="", run_dir="/gone/o.millrace", status="done", exit_code=0,
        message="", records_done=0, quarantined=0, n_starts=1, wall=1.0,
    )  # fmt: skip
    run_history.archive_run(about, {run_history.EVENTS: log}, environ)
    page = tmp_path / "report.html"
    done = CliRunner().invoke(command, ["abab", "-o", str(page)], env=environ)
    assert done.exit_code == 0 and f"{N + N // 10_000:,} tasks" in page.read_text(), done.output


def test_a_run_that_was_stopped_or_is_small_has_every_task(tmp_path: Path) -> None:
    events = story()
    assert list(read_events(write(tmp_path / "events.jsonl", events))) == events
