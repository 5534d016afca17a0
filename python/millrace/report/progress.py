"""Progress of a run: a bar on a terminal, a line at intervals in a log, JSON for scripts, and the remaining time.

It has no clock: ``ProgressDisplay.update`` is called often, and the time in the snapshot decides whether anything is written.
The display must never harm the run: after a write error it writes no more. The remaining time is a range, a pure
function of the progress so far.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from types import TracebackType
from typing import TYPE_CHECKING, TextIO, assert_never

import msgspec

from millrace.core import text_format
from millrace.core.job import ProgressMode
from millrace.core.tool_use import ProgressSnapshot

if TYPE_CHECKING:
    from rich.console import RenderableType


#: Minimum seconds between two drawings of the bar.
BAR_SECONDS = 0.1
#: Minimum seconds between two lines.
LINE_SECONDS = 5.0
#: Seconds after which a line is written even when less than a tenth was done.
QUIET_SECONDS = 60.0
#: Minimum seconds between two JSON objects.
JSON_SECONDS = 1.0


def make_progress(mode: ProgressMode, stream: TextIO) -> ProgressDisplay:
    """Make the display for ``mode``, writing to ``stream``.

    ``auto`` is a bar on a terminal that can move its cursor, else plain lines. ``bar`` on anything but a
    terminal gives plain lines too: cursor movements make a log unreadable. ``NO_COLOR`` removes the
    colour, not the bar.
    """
    match mode:
        case "auto" | "bar":
            return _BarProgress(stream) if _is_terminal(stream) else _PlainProgress(stream)
        case "plain":
            return _PlainProgress(stream)
        case "json":
            return _JsonProgress(stream)
        case "none":
            return ProgressDisplay(stream)
        case _:
            assert_never(mode)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
    except ValueError:  # closed
        return False


class ProgressDisplay:
    """Display of messages only; the base of those that show more. A context manager that closes itself."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._history = ProgressHistory()
        self._first: ProgressSnapshot | None = None

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def update(self, snapshot: ProgressSnapshot) -> None:
        """Take the newest state; show it if it is time. Cheap enough to be called after every task."""

    def write_message(self, text: str) -> None:
        """Write a message on a line of its own, below or above the display."""
        self._write_text(text + "\n")

    def close(self) -> None:
        """Show the last state and release the stream. May be called twice."""

    def _write_text(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # The terminal or the pipe is closed; the run goes on without its display.
            self._stream = None

    def _get_eta(self, snapshot: ProgressSnapshot) -> tuple[float, float, float] | None:
        """Return the caller's estimate, or one from the input bytes seen here if the caller has none."""
        if snapshot.eta is not None or snapshot.bytes_total is None:
            return snapshot.eta
        return self._history.estimate_remaining(snapshot.bytes_total)

    def _record_snapshot(self, snapshot: ProgressSnapshot) -> None:
        self._first = self._first or snapshot
        self._history.add_point(snapshot.elapsed, snapshot.bytes_done)

    def _format_rate(self, snapshot: ProgressSnapshot) -> str:
        """Return the rate since the first snapshot: this run spent no time on the work of an earlier one."""
        first = self._first
        if first is None or snapshot.elapsed <= first.elapsed:
            return ""
        seconds = snapshot.elapsed - first.elapsed
        if snapshot.unit == "residues" and snapshot.units_done > first.units_done:
            return f"{text_format.format_scaled((snapshot.units_done - first.units_done) / seconds)} residues/s"
        return f"{text_format.format_scaled((snapshot.records_done - first.records_done) / seconds)} records/s"


class _PlainProgress(ProgressDisplay):
    """Display of plain lines: one at once, one at each 10 % (at least 5 seconds apart), and at least one a minute."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._shown_at: float | None = None
        self._shown_tenth = 0
        self._last: ProgressSnapshot | None = None

    def update(self, snapshot: ProgressSnapshot) -> None:
        self._record_snapshot(snapshot)
        self._last = snapshot
        waited = snapshot.elapsed - (self._shown_at or 0.0)
        tenth = int((compute_done_fraction(snapshot) or 0.0) * 10)
        if self._shown_at is None or waited >= QUIET_SECONDS or (waited >= LINE_SECONDS and tenth > self._shown_tenth):
            self._show_snapshot(snapshot, tenth)

    def close(self) -> None:
        last, self._last = self._last, None
        if last is not None and last.elapsed != self._shown_at:
            self._show_snapshot(last, 10)

    def _show_snapshot(self, snapshot: ProgressSnapshot, tenth: int) -> None:
        self._shown_at, self._shown_tenth = snapshot.elapsed, tenth
        self._write_text(
            f"millrace: {format_progress_line(snapshot, self._format_rate(snapshot), self._get_eta(snapshot))}\n"
        )


class _JsonProgress(ProgressDisplay):
    """Display of one JSON object a line: ``{"event": "progress", ...}`` with the snapshot's fields, or a message."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._shown_at: float | None = None
        self._last: ProgressSnapshot | None = None

    def update(self, snapshot: ProgressSnapshot) -> None:
        self._record_snapshot(snapshot)
        self._last = snapshot
        if self._shown_at is None or snapshot.elapsed - self._shown_at >= JSON_SECONDS:
            self._show_snapshot(snapshot)

    def write_message(self, text: str) -> None:
        self._write_text(msgspec.json.encode({"event": "message", "text": text}).decode() + "\n")

    def close(self) -> None:
        last, self._last = self._last, None
        if last is not None and last.elapsed != self._shown_at:
            self._show_snapshot(last)

    def _show_snapshot(self, snapshot: ProgressSnapshot) -> None:
        self._shown_at = snapshot.elapsed
        fields = {"event": "progress", **msgspec.structs.asdict(snapshot), "eta": self._get_eta(snapshot)}
        self._write_text(msgspec.json.encode(fields).decode() + "\n")


class _BarProgress(ProgressDisplay):
    """Display of two lines at the bottom of a terminal, redrawn in place and removed at the end."""

    def __init__(self, stream: TextIO) -> None:
        # Imported here: rich takes longer to load than the rest of the program's start.
        from rich.live import Live

        from millrace.core.text_format import make_console

        super().__init__(stream)
        # rich reads NO_COLOR itself. No thread refreshes: ``update`` draws, so nothing is drawn while the program is
        # inside a fork or about to end.
        console = make_console(stream, force_terminal=True)
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._shown_at: float | None = None
        self._open = True

    def update(self, snapshot: ProgressSnapshot) -> None:
        self._record_snapshot(snapshot)
        if not self._open or (self._shown_at is not None and snapshot.elapsed - self._shown_at < BAR_SECONDS):
            return
        self._shown_at = snapshot.elapsed
        try:
            if not self._live.is_started:
                self._live.start()
            self._live.update(_draw_bar(snapshot, self._format_rate(snapshot), self._get_eta(snapshot)), refresh=True)
        except (OSError, ValueError):
            self._open = False

    def write_message(self, text: str) -> None:
        if not self._open:
            return
        try:
            # soft_wrap: a long path stays one line, which can be copied.
            self._live.console.print(text, soft_wrap=True)
        except (OSError, ValueError):
            self._open = False

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            self._live.stop()
        except (OSError, ValueError):
            # The terminal is gone (an ssh connection cut): there is nothing to clean up.
            return


def compute_done_fraction(snapshot: ProgressSnapshot) -> float | None:
    """Return the share of the input that is done, or None where its size is not known."""
    if not snapshot.bytes_total:
        return None
    return min(snapshot.bytes_done / snapshot.bytes_total, 1.0)


def format_progress_line(snapshot: ProgressSnapshot, rate: str, eta: tuple[float, float, float] | None) -> str:
    """Format the state of a run in one line."""
    share = compute_done_fraction(snapshot)
    parts = [
        *([text_format.format_percent(share)] if share is not None else []),
        text_format.format_count(snapshot.records_done, "record"),
        *_format_incidents(snapshot),
        f"{text_format.format_duration(snapshot.elapsed)} elapsed",
        *([rate] if rate else []),
        f"{snapshot.slots_busy}/{snapshot.slots} slots busy",
        *([format_eta(eta)] if eta and share != 1.0 else []),
    ]
    return ", ".join(parts)


def format_eta(eta: tuple[float, float, float]) -> str:
    """Format the remaining time: the likely time and its range."""
    low, likely, high = eta
    return f"about {text_format.format_duration(likely)} left ({text_format.format_span(low, high)})"


def _format_incidents(snapshot: ProgressSnapshot) -> list[str]:
    return [
        *([f"{snapshot.records_resumed:,} resumed"] if snapshot.records_resumed else []),
        *([text_format.format_count(snapshot.retries, "retry")] if snapshot.retries else []),
        *([f"{snapshot.quarantined:,} quarantined"] if snapshot.quarantined else []),
    ]


def _draw_bar(snapshot: ProgressSnapshot, rate: str, eta: tuple[float, float, float] | None) -> RenderableType:
    """Draw the bar: share and time left above, counts below."""
    from rich.console import Group
    from rich.text import Text

    share = compute_done_fraction(snapshot)
    counts = Text(no_wrap=True, overflow="ellipsis")
    counts.append(text_format.format_count(snapshot.records_done, "record"), "bold")
    # Failures come first: a narrow terminal cuts off the end.
    if snapshot.quarantined:
        counts.append(f" · {snapshot.quarantined:,} quarantined", "bold red")
    if snapshot.retries:
        counts.append(f" · {text_format.format_count(snapshot.retries, 'retry')}", "yellow")
    if snapshot.records_resumed:
        counts.append(f" · {snapshot.records_resumed:,} resumed", "cyan")
    if snapshot.unit == "residues":
        counts.append(f" · {text_format.format_scaled(snapshot.units_done)} residues", "dim")
    for part in (rate, f"{snapshot.slots_busy}/{snapshot.slots} slots busy"):
        counts.append(f" · {part}" if part else "", "dim")
    if share is None:
        head = Text(
            f"{text_format.format_duration(snapshot.elapsed)} elapsed, end of input not yet known",
            "dim",
            no_wrap=True,
        )
        return Group(head, counts)
    ending = format_eta(eta) if eta and share < 1 else f"{text_format.format_duration(snapshot.elapsed)} elapsed"
    return Group(draw_share(share, ending), counts)


def draw_share(share: float, ending: str) -> RenderableType:
    """Draw a bar of ``share``, its percentage, and ``ending`` behind it."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(ratio=1, min_width=10)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True)
    bar = ProgressBar(total=1.0, completed=share, complete_style="green", finished_style="green")
    grid.add_row(bar, Text(text_format.format_percent(share), "bold"), Text(ending, "cyan"))
    return grid


#: Number of time windows whose rates are compared: more would be too short, fewer too few for a spread.
N_WINDOWS = 12
#: Minimum number of steps of progress before there is an estimate.
MIN_STEPS = 3
#: Number of standard errors from the middle to either end of the range.
REACH = 2.0


def estimate_remaining(history: Sequence[tuple[float, float]], total: float) -> tuple[float, float, float] | None:
    """Estimate the seconds that are left, as (low, likely, high).

    The observed time is cut into windows; the rate of work in each is one sample. The range follows from the
    differences of these samples: from the error of their mean, and from how much the few remaining windows may still
    differ from it. A rate that drifts (expensive records at the end) widens the range to both ends of the drift, and
    time without progress counts as slow.

    Args:
        history: Pairs (elapsed seconds, amount done so far), both growing; the first may start above 0 (a
            resumed run), only differences count.
        total: Total amount, in the same unit.

    Returns:
        Seconds from the last point of ``history`` on, or None while too little was seen.

    >>> estimate_remaining([(0, 0), (10, 100), (20, 200), (30, 300)], 600)
    (28.5, 30.0, 31.5)
    """
    steps = sum(1 for before, after in pairwise(history) if after[1] > before[1])
    if steps < MIN_STEPS or history[-1][0] <= history[0][0]:
        return None
    left = total - history[-1][1]
    if left <= 0:
        return (0.0, 0.0, 0.0)
    n_windows = min(N_WINDOWS, steps)
    rates = _compute_rates(history, n_windows)
    mean = sum(rates) / n_windows
    newer = rates[n_windows // 2 :]
    recent = sum(newer) / len(newer)
    # The newer half counts twice: it is nearer to the rest, yet too short to be trusted alone.
    likely = (mean + 2 * recent) / 3
    if likely <= 0:
        likely = mean
    window_seconds = (history[-1][0] - history[0][0]) / n_windows
    windows_left = max(left / likely / window_seconds, 0.5)
    spread = sqrt(sum((rate - mean) ** 2 for rate in rates) / max(n_windows - 1, 1))
    doubt = REACH * spread * sqrt(1 / n_windows + 1 / windows_left)
    fast = max(mean, recent) + doubt
    # Twelve windows cannot show that a rate below a fifth of the likely one is real.
    slow = max(min(mean, recent) - doubt, likely / 5)
    seconds = left / likely
    return (min(left / fast, seconds * 0.95), seconds, max(left / slow, seconds * 1.05))


def _compute_rates(history: Sequence[tuple[float, float]], n_windows: int) -> list[float]:
    """Return the amount per second in each of ``n_windows`` equal windows, by linear interpolation."""
    start, end = history[0][0], history[-1][0]
    width = (end - start) / n_windows
    edges = [_interpolate_amount(history, start + width * index) for index in range(n_windows)] + [history[-1][1]]
    return [(after - before) / width for before, after in pairwise(edges)]


def _interpolate_amount(history: Sequence[tuple[float, float]], when: float) -> float:
    """Return the amount done at ``when``, on the straight line between the points around it."""
    for (t0, done0), (t1, done1) in pairwise(history):
        if t0 <= when <= t1:
            return done1 if t1 == t0 else done0 + (done1 - done0) * (when - t0) / (t1 - t0)
    return history[-1][1]


class ProgressHistory:
    """Amounts done over time: at most ``limit`` points, thinned evenly as time goes on."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._points: list[tuple[float, float]] = []
        self._gap = 0.0

    def add_point(self, elapsed: float, done: float) -> None:
        """Add the point ``done`` at ``elapsed`` seconds. The newest point is always kept."""
        points = self._points
        if len(points) > 1 and elapsed - points[-2][0] < self._gap:
            points[-1] = (elapsed, done)
        else:
            points.append((elapsed, done))
        if len(points) > self._limit:
            self._points = points[:-1:2] + points[-1:]
            self._gap = (points[-1][0] - points[0][0]) / self._limit * 2

    def estimate_remaining(self, total: float) -> tuple[float, float, float] | None:
        """Estimate the seconds left; see ``estimate_remaining``."""
        return estimate_remaining(self._points, total)
