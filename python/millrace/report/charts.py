"""Data of the report's charts: runs in, a few thousand numbers out, however many tasks there were.

Pure functions; nothing here knows HTML. Times lie on one axis of running time, on which each run begins
at the end of the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, log10
from typing import Any

from millrace.core import text_format
from millrace.core.tasks import IoCounts
from millrace.report.event_log import LoggedRun
from millrace.report.events import TaskEvent
from millrace.report.io_profile import compute_wait

#: Maximum numbers of bars and slots in the timeline; beyond these, shares of time are shown instead.
MAX_BARS, MAX_BAR_SLOTS = 3000, 64
#: Maximum rows, and number of columns, of the timeline when it shows shares.
MAX_ROWS, N_COLUMNS = 64, 320
#: Number of points along the time axis of the other charts.
N_BINS = 160
#: Maximum number of failed attempts that are marked one by one.
MAX_MARKS = 1000
#: Cost classes for each power of ten.
CLASSES_PER_DECADE = 8


@dataclass(frozen=True)
class TimeAxis:
    """The time axis: the begin of each run, and the unit in which times are shown."""

    starts: tuple[float, ...]
    length: float
    unit: str
    unit_seconds: float

    def scale_seconds(self, seconds: float) -> float:
        """Return ``seconds`` in the unit shown, short enough for JSON."""
        return round(seconds / self.unit_seconds, 4)


def make_axis(runs: Sequence[LoggedRun]) -> TimeAxis:
    """Lay out the runs one after another."""
    starts = tuple(accumulate((run.wall for run in runs), initial=0.0))
    return TimeAxis(starts[:-1], *choose_unit(starts[-1]))


def choose_unit(length: float) -> tuple[float, str, float]:
    """Return a length of time in seconds that is not zero, the unit to show it in, and the seconds of that."""
    length = max(length, 1e-3)
    for unit, seconds in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if length >= 3 * seconds:
            return length, unit, seconds
    return length, "seconds", 1.0


def make_charts(runs: Sequence[LoggedRun]) -> dict[str, Any]:
    """Return the data of all charts of the page, ready for JSON."""
    along = make_axis(runs)
    return {
        "unit": along.unit,
        "length": along.scale_seconds(along.length),
        "resumes": [along.scale_seconds(start) for start in along.starts[1:]],
        "timeline": make_timeline(runs, along),
        "throughput": make_throughput(runs, along),
        "load": make_load(runs, along),
        "cost": make_cost_classes([task for run in runs for task in run.done_tasks]),
        "io": make_io(runs, along),
    }


def make_timeline(runs: Sequence[LoggedRun], along: TimeAxis) -> dict[str, Any]:
    """Return one bar for each attempt, or, where those are too many, shares of time that slots were busy."""
    n_tasks = sum(len(run.tasks) for run in runs)
    n_slots = max((max([run.head.slots, *(task.slot + 1 for task in run.tasks)]) for run in runs), default=1)
    if n_tasks <= MAX_BARS and n_slots <= MAX_BAR_SLOTS:
        return _make_bars(runs, along, n_slots)
    return _make_shares(runs, along, n_slots)


def _make_bars(runs: Sequence[LoggedRun], along: TimeAxis, n_slots: int) -> dict[str, Any]:
    kinds: dict[str, dict[str, list[Any]]] = {}
    for start, run in zip(along.starts, runs, strict=True):
        for task in run.tasks:
            kind = kinds.setdefault(task.status, {"slot": [], "start": [], "length": [], "cost": [], "text": []})
            kind["slot"].append(task.slot)
            kind["start"].append(along.scale_seconds(start + task.start))
            kind["length"].append(along.scale_seconds(task.t - task.start))
            # The colour is the power of ten: costs of records span several.
            kind["cost"].append(round(log10(max(_compute_record_cost(task), 1e-6)), 2))
            kind["text"].append(_format_bar_text(task, run))
    costs = sorted(kinds.get("done", {}).get("cost", []))
    low, high = (costs[len(costs) // 20], costs[-1 - len(costs) // 20]) if costs else (0.0, 1.0)
    return {"kind": "bars", "slots": n_slots, "kinds": kinds, "low": low, "high": max(high, low + 0.3)}


def _format_bar_text(task: TaskEvent, run: LoggedRun) -> str:
    size = "" if run.head.unit == "records" else f", {text_format.format_scaled(task.units)} {run.head.unit}"
    detail = f" ({task.detail})" if task.detail else ""
    lines = (
        f"{text_format.format_records(task.first, task.last)}{size}",
        f"{text_format.format_duration(task.t - task.start)}, {text_format.format_duration(task.cpu)} CPU",
        f"slot {task.slot + 1}, attempt {task.attempt}: {task.status}{detail}",
    )
    return "\n".join(lines)


def _make_shares(runs: Sequence[LoggedRun], along: TimeAxis, n_slots: int) -> dict[str, Any]:
    per_row = ceil(n_slots / MAX_ROWS)
    n_rows = ceil(n_slots / per_row)
    width = along.length / N_COLUMNS
    parts: list[list[tuple[float, float, float]]] = [[] for _ in range(n_rows)]
    counts = [[0] * N_COLUMNS for _ in range(n_rows)]
    marks: dict[str, list[Any]] = {"x": [], "row": [], "text": []}
    for start, run in zip(along.starts, runs, strict=True):
        for task in run.tasks:
            row = task.slot // per_row
            parts[row].append((start + task.start, start + task.t, task.seconds))
            counts[row][min(int((start + task.t) / width), N_COLUMNS - 1)] += task.tasks
            if task.is_failure and len(marks["x"]) < MAX_MARKS:
                marks["x"].append(along.scale_seconds(start + task.t))
                marks["row"].append(row)
                marks["text"].append(_format_bar_text(task, run))
    slots_of = [min(per_row, n_slots - row * per_row) for row in range(n_rows)]
    return {
        "kind": "shares",
        "slots": n_slots,
        "per_row": per_row,
        "x": [along.scale_seconds(width * (column + 0.5)) for column in range(N_COLUMNS)],
        "share": [
            [round(min(seconds / width / slots_of[row], 1.0), 3) for seconds in spread_amounts(part, width, N_COLUMNS)]
            for row, part in enumerate(parts)
        ],
        "count": counts,
        "marks": marks,
    }


def make_throughput(runs: Sequence[LoggedRun], along: TimeAxis) -> dict[str, Any]:
    """Return the units done per second over time; each batch's units are spread evenly over its time."""
    width, n = _choose_bins(runs, along)
    parts = (
        (start + task.start, start + task.t, float(task.units or task.records))
        for start, run in zip(along.starts, runs, strict=True)
        for task in run.done_tasks
    )
    return {
        "x": list_bin_edges(width, n, along),
        "y": make_stair(spread_amounts(parts, width, n), width),
        "unit": runs[-1].head.unit if runs else "records",
    }


def make_load(runs: Sequence[LoggedRun], along: TimeAxis) -> dict[str, Any]:
    """Return the number of busy slots, and of cores that the tools used, over time."""
    width, n = _choose_bins(runs, along)
    placed = [
        (start + task.start, start + task.t, task)
        for start, run in zip(along.starts, runs, strict=True)
        for task in run.tasks
    ]
    busy = spread_amounts(((start, end, task.seconds) for start, end, task in placed), width, n)
    cores = spread_amounts(((start, end, task.cpu) for start, end, task in placed), width, n)
    return {
        "x": list_bin_edges(width, n, along),
        "busy": make_stair(busy, width),
        "cores": make_stair(cores, width),
        "slots": max((run.head.slots for run in runs), default=1),
    }


def make_io(runs: Sequence[LoggedRun], along: TimeAxis) -> dict[str, Any] | None:
    """Return bytes read and written per second, and slots that computed and that waited, over time.

    None: reads and writes were not measured.
    """
    placed = [
        (start + task.start, start + task.t, task, task.io)
        for start, run in zip(along.starts, runs, strict=True)
        for task in run.tasks
        if isinstance(task.io, IoCounts)
    ]
    if not placed:
        return None
    width, n = _choose_bins(runs, along)

    def make_steps(amount: Callable[[TaskEvent, IoCounts], float]) -> list[float]:
        parts = ((start, end, amount(task, io)) for start, end, task, io in placed)
        return make_stair(spread_amounts(parts, width, n), width)

    compute = make_steps(lambda task, _: min(task.cpu, task.seconds))
    wait = make_steps(lambda task, _: compute_wait(task))
    return {
        "x": list_bin_edges(width, n, along),
        "read": make_steps(lambda _, io: io.read),
        "written": make_steps(lambda _, io: io.written),
        "disk": make_steps(lambda _, io: io.disk_read),
        "compute": compute,
        # Stacked: the upper line is both.
        "both": [_round_digits(sum(each)) for each in zip(compute, wait, strict=True)],
        "slots": max((run.head.slots for run in runs), default=1),
    }


def make_cost_classes(tasks: Sequence[TaskEvent]) -> dict[str, Any]:
    """Return the number of records in each class of CPU cost; classes grow by a constant factor.

    Only batches are measured, so all records of one count with its mean. ``share`` is the part of all
    CPU time in a class.
    """
    if not tasks:
        return {"low": [], "high": [], "records": [], "share": [], "costliest": 0.0}
    classes: dict[int, tuple[int, float]] = {}
    for task in tasks:
        key = int(log10(max(_compute_record_cost(task), 1e-6)) * CLASSES_PER_DECADE // 1)
        n, seconds = classes.get(key, (0, 0.0))
        classes[key] = (n + task.records, seconds + task.work_seconds)
    keys = range(min(classes), max(classes) + 1)
    whole = sum(seconds for _, seconds in classes.values()) or 1.0
    return {
        "low": [_round_digits(10 ** (key / CLASSES_PER_DECADE)) for key in keys],
        "high": [_round_digits(10 ** ((key + 1) / CLASSES_PER_DECADE)) for key in keys],
        "records": [classes.get(key, (0, 0.0))[0] for key in keys],
        "share": [round(classes.get(key, (0, 0.0))[1] / whole, 4) for key in keys],
        "costliest": compute_costliest_share(tasks),
    }


def compute_costliest_share(tasks: Sequence[TaskEvent], part: float = 0.01) -> float:
    """Return the share of all CPU time in the costliest ``part`` of the records (at least one batch)."""
    left = part * sum(task.records for task in tasks)
    taken = 0.0
    for task in sorted(tasks, key=_compute_record_cost, reverse=True):
        n = task.records
        if left <= 0 or n == 0:
            break
        taken += task.work_seconds * min(left / n, 1.0)
        left -= n
    return taken / (sum(task.work_seconds for task in tasks) or 1.0)


def _compute_record_cost(task: TaskEvent) -> float:
    return task.work_seconds / max(task.records, 1)


def _choose_bins(runs: Sequence[LoggedRun], along: TimeAxis) -> tuple[float, int]:
    """Return width and number of time bins: at most the number of tasks, or they would show only noise."""
    n_tasks = sum(len(run.tasks) for run in runs)
    n = max(min(N_BINS, n_tasks), 12)
    return along.length / n, n


def list_bin_edges(width: float, n: int, along: TimeAxis) -> list[float]:
    """Return the times at which bins begin, and the end of the last one."""
    return [along.scale_seconds(width * index) for index in range(n + 1)]


def make_stair(values: Iterable[float], width: float) -> list[float]:
    """Return amounts per second as steps: the last value twice, for the end of its step."""
    rates = [_round_digits(value / width) for value in values]
    return [*rates, rates[-1]]


def _round_digits(value: float) -> float:
    """Round to four digits: a chart shows no more."""
    return float(f"{value:.4g}")


def spread_amounts(parts: Iterable[tuple[float, float, float]], width: float, n: int) -> list[float]:
    """Spread amounts (start, end, amount) evenly over their time, into ``n`` bins of ``width`` seconds.

    Takes constant time for each part, however many bins it covers.

    >>> spread_amounts([(0.5, 2.5, 8.0)], 1.0, 4)
    [2.0, 4.0, 2.0, 0.0]
    """
    bins, steps = [0.0] * n, [0.0] * (n + 1)
    for start, end, amount in parts:
        first, last = min(int(start / width), n - 1), min(int(end / width), n - 1)
        if first == last:
            bins[first] += amount
            continue
        rate = amount / (end - start)
        bins[first] += rate * ((first + 1) * width - start)
        bins[last] += rate * (end - last * width)
        steps[first + 1] += rate
        steps[last] -= rate
    # The steps cancel only up to rounding; below zero would be drawn.
    return [max(own + rate * width, 0.0) for own, rate in zip(bins, accumulate(steps), strict=False)]
