"""The figures of a job in a few lines for people, and as a value for ``--json``."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

from millrace.core import text_format
from millrace.core.tasks import IoCounts
from millrace.core.tool_use import FrozenValue
from millrace.report.event_log import LoggedRun, list_still_quarantined, load_runs
from millrace.report.events import AnyLogEvent, IoSummary, TaskEvent

#: Number of slowest batches that are named.
N_SLOWEST = 5


class SlowBatch(FrozenValue, frozen=True):
    """A slow batch: records ``[first, last)``, counted from 0."""

    first: int
    last: int
    seconds: float
    cpu: float
    units: int
    slot: int
    #: Number of the run, from 0.
    run: int


class QuarantinedRecord(FrozenValue, frozen=True):
    """A quarantined record; ``record`` counts from 0."""

    record: int
    name: str
    reason: str


class RunSummary(FrozenValue, frozen=True):
    """Results and cost of a job, over all its runs. Seconds and bytes."""

    #: Final status of the last run: ``done``, ``quarantined``, ``interrupted``, ``stopped``, or ``unfinished``.
    status: str
    tool: str
    version: str
    n_runs: int
    #: Slots of the last run.
    slots: int
    threads: int
    #: Running time of all runs together; the time between them does not count.
    wall: float
    #: CPU of the tool, failed attempts included.
    cpu: float
    #: CPU of attempts whose output was not used.
    cpu_lost: float
    records_done: int
    #: Part of these that the last run found already done.
    records_resumed: int
    unit: str
    units_done: int
    bytes_in: int
    bytes_out: int
    n_tasks: int
    n_failed: int
    n_retries: int
    #: Peak memory of the largest tool process.
    rss: int
    #: Records, and units, per second of running time.
    records_per_second: float
    units_per_second: float
    #: Tool CPU / (slots x threads of a task x wall): use of the cores. Other programs on the machine lower it.
    efficiency: float
    #: Share of slots x wall in which a slot had a task: the part that depends on Millrace. Other programs make tasks
    #: longer, not slots idle, so this does not depend on the load of the machine.
    occupancy: float
    #: Seconds from the time when the first slot ran out of work to the end of the last run.
    tail: float
    slowest: tuple[SlowBatch, ...]
    quarantined: tuple[QuarantinedRecord, ...]
    warnings: dict[str, int]
    #: What it read and wrote; None: that was not measured.
    io: IoSummary | None = None


def summarise_events(events: Iterable[AnyLogEvent]) -> RunSummary:
    """Add up the events of a log (see ``millrace.report.events.read_events``)."""
    return summarise_runs(load_runs(events))


def summarise_runs(runs: list[LoggedRun]) -> RunSummary:
    """Add up runs that were loaded before. No runs give an empty summary."""
    tasks = [task for run in runs for task in run.tasks]
    done = [task for run in runs for task in run.done_tasks]
    wall = sum(run.wall for run in runs)
    known_seconds = [run.known_slot_seconds for run in runs]
    core_seconds = sum(seconds * run.head.threads for seconds, run in zip(known_seconds, runs, strict=True))
    cpu = sum(task.cpu for task in tasks)
    busy = sum(task.seconds for task in tasks)
    last = runs[-1] if runs else None
    units, records = sum(task.units for task in done), sum(task.records for task in done)
    return RunSummary(
        status=last.status if last else "unfinished",
        tool=last.head.tool if last else "",
        version=last.head.version if last else "",
        n_runs=len(runs),
        slots=last.n_slots if last else 0,
        threads=last.head.threads if last else 1,
        wall=wall,
        cpu=cpu,
        cpu_lost=sum(task.cpu for task in tasks if task.is_failure),
        records_done=last.records_done if last else 0,
        records_resumed=last.head.records_resumed if last else 0,
        unit=last.head.unit if last else "records",
        units_done=units,
        bytes_in=sum(task.bytes for task in done),
        bytes_out=sum(task.out for task in done),
        n_tasks=sum(task.tasks for task in tasks),
        n_failed=sum(task.is_failure and task.status != "misplaced" for task in tasks),
        n_retries=sum(len(run.retries) for run in runs),
        rss=max((task.rss for task in tasks), default=0),
        records_per_second=_divide_or_zero(records, wall),
        units_per_second=_divide_or_zero(units, wall),
        efficiency=_divide_or_zero(cpu, core_seconds),
        occupancy=min(_divide_or_zero(busy, sum(known_seconds)), 1.0),
        tail=_compute_tail(last) if last and last.end else 0.0,
        slowest=list_slowest_batches(runs, N_SLOWEST),
        quarantined=tuple(
            QuarantinedRecord(record=event.record, name=event.name, reason=event.reason)
            for event in list_still_quarantined(runs)
        ),
        warnings=_count_warnings(runs),
        io=_summarise_io(runs),
    )


def _summarise_io(runs: list[LoggedRun]) -> IoSummary | None:
    if not any(isinstance(task.io, IoCounts) for run in runs for task in run.tasks):
        return None
    from millrace.report import io_profile  # few runs need it

    return io_profile.summarise_io(runs)


def list_slowest_batches(runs: list[LoggedRun], n: int) -> tuple[SlowBatch, ...]:
    """Return the ``n`` slowest batches, the slowest first."""
    numbered = (
        (task, index)
        for index, run in enumerate(runs)
        for task in run.done_tasks
        if task.tasks == 1 and task.last > task.first
    )
    longest = nlargest(n, numbered, key=lambda pair: pair[0].seconds)
    return tuple(_make_slow_batch(task, index) for task, index in longest)


def _make_slow_batch(task: TaskEvent, run: int) -> SlowBatch:
    return SlowBatch(
        first=task.first,
        last=task.last,
        seconds=task.t - task.start,
        cpu=task.cpu,
        units=task.units,
        slot=task.slot,
        run=run,
    )


def _divide_or_zero(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _compute_tail(run: LoggedRun) -> float:
    """Return the seconds from the first slot's last task end to the last slot's."""
    ends = run.find_last_ends()
    return max(ends.values()) - min(ends.values()) if len(ends) == run.head.slots > 1 else 0.0


def _count_warnings(runs: list[LoggedRun]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for run in runs:
        for text, count in run.warnings.items():
            counts[text] = counts.get(text, 0) + count
    return counts


_STATUS = {
    "done": "done",
    "quarantined": "done, except for quarantined records",
    "interrupted": "interrupted; the same command goes on",
    "stopped": "stopped; the same command goes on",
    "unfinished": "unfinished; the same command goes on",
}


def format_summary(summary: RunSummary) -> str:
    """Format a summary for people: aligned lines, the last ending in a newline."""
    rows = [(head, words_) for head, words_ in _make_rows(summary) if words_]
    width = max(len(head) for head, _ in rows)
    lines = "".join(f"{head:<{width}}  {words_}\n" for head, words_ in rows)
    if not summary.io or not summary.io.files:
        return lines
    from millrace.report.io_profile import format_file_table  # as above

    return f"{lines}\n{format_file_table(summary.io)}"


def _describe_io(io: IoSummary | None) -> list[str]:
    if not io:
        return []
    from millrace.report.io_profile import describe_totals  # as above

    return describe_totals(io)


def _make_rows(s: RunSummary) -> list[tuple[str, str]]:
    """Return the columns left and right of the gap, line by line; a line with empty text is left out."""
    records = text_format.format_count(s.records_done, "record")
    if s.records_resumed:
        records += f", {s.records_resumed:,} of them by earlier runs"
    rate = f"{text_format.format_scaled(s.records_per_second)} records/s"
    if s.unit != "records" and s.units_done:
        rate += f", {text_format.format_scaled(s.units_per_second)} {s.unit}/s"
    runs = f" in {text_format.format_count(s.n_runs, 'run')}" if s.n_runs > 1 else ""
    lost = f", {text_format.format_duration(s.cpu_lost)} of it in attempts that failed" if s.cpu_lost >= 0.05 else ""
    return [
        ("status", _STATUS.get(s.status, s.status)),
        ("records", records),
        ("time", f"{text_format.format_duration(s.wall)}{runs}, {rate}"),
        ("tool CPU", f"{text_format.format_duration(s.cpu)} on {text_format.format_count(s.slots, 'slot')}{lost}"),
        (
            "efficiency",
            f"slots busy {text_format.format_percent(s.occupancy)} of the time, "
            f"tool CPU {text_format.format_percent(s.efficiency)} of slots x {'threads x ' if s.threads > 1 else ''}time",
        ),
        ("memory", f"{text_format.format_size(s.rss)} at most in one task" if s.rss else ""),
        *(("I/O" if not i else "", line) for i, line in enumerate(_describe_io(s.io))),
        ("retries", text_format.format_count(s.n_retries, "retry") if s.n_retries else ""),
        *(
            (
                "slowest" if not i else "",
                f"{text_format.format_records(b.first, b.last)}: {text_format.format_duration(b.seconds)}",
            )
            for i, b in enumerate(s.slowest[:3])
        ),
        *(
            ("quarantined" if not i else "", f"record {q.record + 1} ({q.name}): {q.reason}")
            for i, q in enumerate(s.quarantined[:10])
        ),
        ("", f"... and {len(s.quarantined) - 10:,} more" if len(s.quarantined) > 10 else ""),
        *(("warning", f"{note} ({n:,} times)" if n > 1 else note) for note, n in s.warnings.items()),
    ]
