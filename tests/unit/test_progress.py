"""Progress: what is written when, decided by the snapshots alone; and the honesty of the time left."""

import io
import json
import random
import re
import subprocess
import sys
from typing import Any

import pytest

from millrace.core.job import ProgressMode
from millrace.core.tool_use import ProgressSnapshot
from millrace.report.progress import ProgressHistory, estimate_remaining, make_progress

pytestmark = pytest.mark.process


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Gone(io.StringIO):
    """A terminal that went away."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise BrokenPipeError


def snapshot(elapsed: float, done: int, **fields: Any) -> ProgressSnapshot:
    known = {
        "slots": 8, "slots_busy": 8, "units_done": done * 300, "unit": "residues",
        "bytes_done": done * 330, "bytes_total": 1000 * 330,
    }  # fmt: skip
    return ProgressSnapshot(elapsed=elapsed, records_done=done, **{**known, **fields})


def test_plain_progress_writes_a_line_per_tenth() -> None:
    """And one at the start."""
    stream = io.StringIO()
    with make_progress("plain", stream) as progress:
        for step in range(1001):
            progress.update(snapshot(step / 10, step))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("millrace: 0 %, 0 records")
    assert lines[5].startswith(
        "millrace: 50 %, 500 records, 50 s elapsed, 3.0 k residues/s, 8/8 slots busy, about 50 s left ("
    )
    assert lines[-1].startswith("millrace: 100 %, 1,000 records, 1 min 40 s elapsed")


def test_plain_progress_is_rate_limited() -> None:
    """Two lines in a fast run, one a minute in a slow one."""
    fast, slow = io.StringIO(), io.StringIO()
    with make_progress("plain", fast) as progress:
        for step in range(1001):
            progress.update(snapshot(step / 1000, step))
    assert len(fast.getvalue().splitlines()) == 2
    with make_progress("plain", slow) as progress:
        for second in range(0, 600, 2):
            progress.update(snapshot(second, second // 100))
        assert len(slow.getvalue().splitlines()) == 10


def test_json_lines_are_objects_with_all_fields() -> None:
    stream = io.StringIO()
    with make_progress("json", stream) as progress:
        progress.write_message("record 7 failed")
        for step in range(100):
            progress.update(snapshot(step / 10, step, quarantined=1))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert lines[0] == {"event": "message", "text": "record 7 failed"}
    assert len(lines) == 12
    assert lines[-1]["records_done"] == 99 and lines[-1]["event"] == "progress"
    assert len(lines[-1]["eta"]) == 3


@pytest.mark.parametrize(
    ("mode", "terminal", "term", "bar"),
    [
        ("auto", True, "xterm", True),
        ("auto", True, "dumb", False),
        ("auto", False, "xterm", False),
        ("bar", False, "xterm", False),
        ("plain", True, "xterm", False),
        ("none", True, "xterm", False),
    ],
)
def test_bar_is_drawn_only_on_a_capable_terminal(
    monkeypatch: pytest.MonkeyPatch, mode: ProgressMode, terminal: bool, term: str, bar: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    stream = Terminal() if terminal else io.StringIO()
    with make_progress(mode, stream) as progress:
        progress.update(snapshot(1, 10))
    assert ("\x1b" in stream.getvalue()) == bar


def test_bar_shows_counts_and_messages_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    with make_progress("bar", stream) as progress:
        for step in range(0, 500, 10):
            progress.update(snapshot(step / 10, step, quarantined=2, retries=1, records_resumed=3))
        progress.write_message("record 7 (sp|P1) [bold]failed[/bold]")
    shown = stream.getvalue()
    assert "record 7 (sp|P1) [bold]failed[/bold]\n" in shown
    for part in ("49 %", "490 records", "8/8 slots busy", "3 resumed", "1 retry", "2 quarantined", " left ("):
        assert part in shown
    assert shown.endswith("\x1b[?25h") or "\x1b[?25h" in shown[-40:]


def test_narrow_terminal_shows_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with make_progress("bar", stream) as progress:
        for step in range(2):
            progress.update(
                snapshot(4000.0 * step, 123_456 * step, quarantined=1234, retries=2345, records_resumed=99_999)
            )
    for part in ("1,234 quarantined", "2,345 retries", "99,999 resumed"):
        assert part in re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


def test_no_color_keeps_the_bar_and_drops_the_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    with make_progress("auto", stream) as progress:
        progress.update(snapshot(1, 500))
    assert "50 %" in stream.getvalue()
    assert "\x1b[32m" not in stream.getvalue() and "\x1b[36m" not in stream.getvalue()


def test_unknown_size_shows_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, mode in ((Terminal(), "bar"), (io.StringIO(), "plain")):
        with make_progress(mode, stream) as progress:  # type: ignore[arg-type]
            progress.update(snapshot(3, 10, bytes_total=None))
        assert "10 records" in stream.getvalue() and "%" not in stream.getvalue()


@pytest.mark.parametrize("mode", ["bar", "plain", "json"])
def test_lost_terminal_is_ignored(monkeypatch: pytest.MonkeyPatch, mode: ProgressMode) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with make_progress(mode, Gone()) as progress:
        for step in range(10):
            progress.write_message("hello")
            progress.update(snapshot(step * 10, step))


def test_rich_is_loaded_only_for_a_bar() -> None:
    code = (
        "import sys, io; from millrace.report.progress import make_progress; make_progress('plain', io.StringIO());"
        "sys.exit(any(name in sys.modules for name in ('rich', 'jinja2')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_no_estimate_is_shown_before_a_measurement() -> None:
    assert estimate_remaining([], 10) is None
    assert estimate_remaining([(0, 0), (5, 1), (10, 2)], 10) is None
    assert estimate_remaining([(0, 0), (1, 1), (2, 2), (3, 3)], 3) == (0, 0, 0)


def test_uneven_rate_widens_the_range() -> None:
    even = estimate_remaining([(t, 10 * t) for t in range(25)], 1000)
    uneven = estimate_remaining([(t, 10 * t + (t % 5) * 8) for t in range(25)], 1000)
    assert even and uneven
    assert even[1] == pytest.approx(76, rel=0.01)
    assert uneven[2] - uneven[0] > 2 * (even[2] - even[0])


def test_slowing_run_reaches_beyond_its_mean_rate() -> None:
    history = [(float(t), 100 * t**0.6) for t in range(1, 60)]
    found = estimate_remaining(history, 100 * 120**0.6)
    assert found and found[0] < 61 < found[2]


def test_resumed_run_estimates_from_its_own_work() -> None:
    fresh = estimate_remaining([(t, 10 * t) for t in range(20)], 190 + 500)
    resumed = estimate_remaining([(t, 5000 + 10 * t) for t in range(20)], 5000 + 190 + 500)
    assert fresh == pytest.approx(resumed)


def test_estimated_range_contains_the_actual_end() -> None:
    """Heavy-tailed batches on four slots; the range is looked at after 20, 40, 60 and 80 %."""
    rng = random.Random(1)
    inside = asked = 0
    for _ in range(60):
        seconds = [rng.lognormvariate(0, 1.0) for _ in range(300)]
        free, ends = [0.0] * 4, []
        for cost in seconds:
            slot = free.index(min(free))
            free[slot] += cost
            ends.append(free[slot])
        ends.sort()
        history = ProgressHistory()
        history.add_point(0.0, 0)
        for done, end in enumerate(ends, 1):
            history.add_point(end, done)
            if done in (60, 120, 180, 240):
                found = history.estimate_remaining(300)
                assert found
                asked += 1
                inside += found[0] <= ends[-1] - end <= found[2]
    assert inside / asked > 0.85
