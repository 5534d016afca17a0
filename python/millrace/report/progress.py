"""Progress display of a run: a bar on a terminal, a line at intervals in a log, JSON for scripts.

It has no clock: ``Progress.update`` is called often, and the time in the snapshot decides whether anything is written.
The display must never harm the run: after a write error it writes no more.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, TextIO, assert_never

import msgspec

from millrace.job import ProgressMode
from millrace.model import Snapshot
from millrace.report import words
from millrace.report.eta import History

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


def make(mode: ProgressMode, stream: TextIO) -> Progress:
    """Make the display for ``mode``, writing to ``stream``.

    ``auto`` is a bar on a terminal that can move its cursor, else plain lines. ``bar`` on anything but a
    terminal gives plain lines too: cursor movements make a log unreadable. ``NO_COLOR`` removes the
    colour, not the bar.
    """
    match mode:
        case "auto" | "bar":
            return _Bar(stream) if _is_terminal(stream) else _Plain(stream)
        case "plain":
            return _Plain(stream)
        case "json":
            return _Json(stream)
        case "none":
            return Progress(stream)
        case _:
            assert_never(mode)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
    except ValueError:  # closed
        return False


class Progress:
    """Display of messages only; the base of those that show more. A context manager that closes itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream
        self._history = History()
        self._first: Snapshot | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def update(self, snapshot: Snapshot) -> None:
        """Take the newest state; show it if it is time. Cheap enough to be called after every task."""

    def message(self, text: str) -> None:
        """Write a message on a line of its own, below or above the display."""
        self._write(text + "\n")

    def close(self) -> None:
        """Show the last state and release the stream. May be called twice."""

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # The terminal or the pipe is closed; the run goes on without its display.
            self._stream = None

    def _eta(self, snapshot: Snapshot) -> tuple[float, float, float] | None:
        """Return the caller's estimate, or one from the input bytes seen here if the caller has none."""
        if snapshot.eta is not None or snapshot.bytes_total is None:
            return snapshot.eta
        return self._history.estimate(snapshot.bytes_total)

    def _remember(self, snapshot: Snapshot) -> None:
        self._first = self._first or snapshot
        self._history.add(snapshot.elapsed, snapshot.bytes_done)

    def _rate(self, snapshot: Snapshot) -> str:
        """Return the rate since the first snapshot: this run spent no time on the work of an earlier one."""
        first = self._first
        if first is None or snapshot.elapsed <= first.elapsed:
            return ""
        seconds = snapshot.elapsed - first.elapsed
        if snapshot.unit == "residues" and snapshot.units_done > first.units_done:
            return f"{words.scaled((snapshot.units_done - first.units_done) / seconds)} residues/s"
        return f"{words.scaled((snapshot.records_done - first.records_done) / seconds)} records/s"


class _Plain(Progress):
    """Display of plain lines: one at once, one at each 10 % (at least 5 seconds apart), and at least one a minute."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._shown_at: float | None = None
        self._shown_tenth = 0
        self._last: Snapshot | None = None

    def update(self, snapshot: Snapshot) -> None:
        self._remember(snapshot)
        self._last = snapshot
        waited = snapshot.elapsed - (self._shown_at or 0.0)
        tenth = int((fraction(snapshot) or 0.0) * 10)
        if self._shown_at is None or waited >= QUIET_SECONDS or (waited >= LINE_SECONDS and tenth > self._shown_tenth):
            self._show(snapshot, tenth)

    def close(self) -> None:
        last, self._last = self._last, None
        if last is not None and last.elapsed != self._shown_at:
            self._show(last, 10)

    def _show(self, snapshot: Snapshot, tenth: int) -> None:
        self._shown_at, self._shown_tenth = snapshot.elapsed, tenth
        self._write(f"millrace: {line(snapshot, self._rate(snapshot), self._eta(snapshot))}\n")


class _Json(Progress):
    """Display of one JSON object a line: ``{"event": "progress", ...}`` with the snapshot's fields, or a message."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._shown_at: float | None = None
        self._last: Snapshot | None = None

    def update(self, snapshot: Snapshot) -> None:
        self._remember(snapshot)
        self._last = snapshot
        if self._shown_at is None or snapshot.elapsed - self._shown_at >= JSON_SECONDS:
            self._show(snapshot)

    def message(self, text: str) -> None:
        self._write(msgspec.json.encode({"event": "message", "text": text}).decode() + "\n")

    def close(self) -> None:
        last, self._last = self._last, None
        if last is not None and last.elapsed != self._shown_at:
            self._show(last)

    def _show(self, snapshot: Snapshot) -> None:
        self._shown_at = snapshot.elapsed
        fields = {"event": "progress", **msgspec.structs.asdict(snapshot), "eta": self._eta(snapshot)}
        self._write(msgspec.json.encode(fields).decode() + "\n")


class _Bar(Progress):
    """Display of two lines at the bottom of a terminal, redrawn in place and removed at the end."""

    def __init__(self, stream: TextIO) -> None:
        # Imported here: rich takes longer to load than the rest of the program's start.
        from rich.live import Live

        from millrace.terminal import make_console

        super().__init__(stream)
        # rich reads NO_COLOR itself. No thread refreshes: ``update`` draws, so nothing is drawn while the program is
        # inside a fork or about to end.
        console = make_console(stream, force_terminal=True)
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._shown_at: float | None = None
        self._open = True

    def update(self, snapshot: Snapshot) -> None:
        self._remember(snapshot)
        if not self._open or (self._shown_at is not None and snapshot.elapsed - self._shown_at < BAR_SECONDS):
            return
        self._shown_at = snapshot.elapsed
        try:
            if not self._live.is_started:
                self._live.start()
            self._live.update(_drawing(snapshot, self._rate(snapshot), self._eta(snapshot)), refresh=True)
        except (OSError, ValueError):
            self._open = False

    def message(self, text: str) -> None:
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


def fraction(snapshot: Snapshot) -> float | None:
    """Return the share of the input that is done, or None where its size is not known."""
    if not snapshot.bytes_total:
        return None
    return min(snapshot.bytes_done / snapshot.bytes_total, 1.0)


def line(snapshot: Snapshot, rate: str, eta: tuple[float, float, float] | None) -> str:
    """Format the state of a run in one line."""
    share = fraction(snapshot)
    parts = [
        *([words.percent(share)] if share is not None else []),
        words.count(snapshot.records_done, "record"),
        *_incidents(snapshot),
        f"{words.duration(snapshot.elapsed)} elapsed",
        *([rate] if rate else []),
        f"{snapshot.slots_busy}/{snapshot.slots} slots busy",
        *([left(eta)] if eta and share != 1.0 else []),
    ]
    return ", ".join(parts)


def left(eta: tuple[float, float, float]) -> str:
    """Format the remaining time: the likely time and its range."""
    low, likely, high = eta
    return f"about {words.duration(likely)} left ({words.span(low, high)})"


def _incidents(snapshot: Snapshot) -> list[str]:
    return [
        *([f"{snapshot.records_resumed:,} resumed"] if snapshot.records_resumed else []),
        *([words.count(snapshot.retries, "retry")] if snapshot.retries else []),
        *([f"{snapshot.quarantined:,} quarantined"] if snapshot.quarantined else []),
    ]


def _drawing(snapshot: Snapshot, rate: str, eta: tuple[float, float, float] | None) -> RenderableType:
    """Draw the bar: share and time left above, counts below."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    share = fraction(snapshot)
    counts = Text(no_wrap=True, overflow="ellipsis")
    counts.append(words.count(snapshot.records_done, "record"), "bold")
    # Failures come first: a narrow terminal cuts off the end.
    if snapshot.quarantined:
        counts.append(f" · {snapshot.quarantined:,} quarantined", "bold red")
    if snapshot.retries:
        counts.append(f" · {words.count(snapshot.retries, 'retry')}", "yellow")
    if snapshot.records_resumed:
        counts.append(f" · {snapshot.records_resumed:,} resumed", "cyan")
    if snapshot.unit == "residues":
        counts.append(f" · {words.scaled(snapshot.units_done)} residues", "dim")
    for part in (rate, f"{snapshot.slots_busy}/{snapshot.slots} slots busy"):
        counts.append(f" · {part}" if part else "", "dim")
    if share is None:
        head = Text(f"{words.duration(snapshot.elapsed)} elapsed, end of input not yet known", "dim", no_wrap=True)
        return Group(head, counts)
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(ratio=1, min_width=10)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True)
    grid.add_row(
        ProgressBar(total=1.0, completed=share, complete_style="green", finished_style="green"),
        Text(words.percent(share), "bold"),
        Text(left(eta) if eta and share < 1 else f"{words.duration(snapshot.elapsed)} elapsed", "cyan"),
    )
    return Group(grid, counts)
