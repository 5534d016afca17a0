"""What a run read and wrote: tallied while it goes on, and as figures for the summary and the report.

Waiting is the time of tasks in which none of their processes had a core: for disks, networks, pipes or each other. With
tools of several threads it is the least that they may have waited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Any

from millrace.core.tasks import FileCounts, FileProfile
from millrace.core.text_format import format_percent, format_scaled, format_size
from millrace.report.event_log import LoggedRun, sum_task_io
from millrace.report.events import FilesEvent, IoSummary, TaskEvent

#: Most files in the event log, those with most bytes.
MAX_FILES = 1000

#: Most files in a table for people.
MAX_ROWS = 40

#: Bytes that a process may read to start, before its calls are counted: of its program, of its libraries by the loader.
#: Measured: 78 kB by ``blastp``, with 90 libraries.
MAX_START_BYTES = 128 << 10

#: Share of jumps from which access counts as random.
MIN_RANDOM_SHARE = 0.1


class FileTally:
    """Adds up what tasks did with their files."""

    def __init__(self) -> None:
        self._files: dict[str, FileCounts] = {}
        self._processes = self._streamless = self._lost = 0

    def add_profile(self, profile: FileProfile) -> None:
        """Add the files of a task."""
        for file in profile.files:
            known = self._files.get(file.path)
            self._files[file.path] = known + file if known else file
        self._processes += profile.processes
        self._streamless += profile.streamless
        self._lost += profile.lost

    def make_event(self, now: float) -> FilesEvent | None:
        """Return the totals so far; None: there are none."""
        if not self._processes:
            return None
        kept = nlargest(MAX_FILES, self._files.values(), key=_count_bytes)
        return FilesEvent(
            t=now, files=tuple(kept), processes=self._processes, streamless=self._streamless,
            lost=self._lost + len(self._files) - len(kept),
        )  # fmt: skip


def describe_uncounted_calls(tool: str, profile: FileProfile) -> str:
    """Describe what the profile of a task cannot see; empty: nothing."""
    if not profile.processes:
        return (
            f"the calls of {tool} on its files are not counted, as it is a static program, one of another user (setuid), "
            "or refuses LD_PRELOAD; what it reads and writes in all is"
        )
    if profile.streamless:
        return f"calls of {tool} by streams of its C library are not counted file by file, only in all"
    return ""


def _count_bytes(file: FileCounts) -> int:
    return _count_moved_bytes(file) + file.mapped


def _count_moved_bytes(file: FileCounts) -> int:
    return file.read.bytes + file.written.bytes


def summarise_io(runs: Sequence[LoggedRun]) -> IoSummary | None:
    """Add up what runs read and wrote; None: that was not measured."""
    tasks = [task for run in runs for task in run.tasks]
    totals = sum_task_io(tasks)
    if totals is None:
        return None
    events = [run.files for run in runs if run.files]
    tally = FileTally()
    for event in events:
        tally.add_profile(FileProfile(event.files, event.processes, event.streamless, event.lost))
    found = tally.make_event(0.0)
    moved = totals.read + totals.written
    seen = sum(map(_count_moved_bytes, found.files)) + found.processes * MAX_START_BYTES if found else 0
    return IoSummary(
        totals=totals,
        compute=sum(task.cpu for task in tasks),
        wait=sum(map(compute_wait, tasks)),
        files=found.files if found else (),
        seen=min(seen / moved, 1.0) if found and moved else None,
        lost=found.lost if found else 0,
    )


def compute_wait(task: TaskEvent) -> float:
    """Return the seconds of a task in which it had no core."""
    return max(task.seconds - task.cpu, 0.0)


def describe_totals(io: IoSummary) -> list[str]:
    """Return lines about the totals, for people."""
    totals = io.totals
    busy = io.compute + io.wait
    said = [
        f"{format_size(totals.read)} read in {format_scaled(totals.reads)} calls, "
        f"{format_size(totals.written)} written in {format_scaled(totals.writes)}",
        f"{format_size(totals.disk_read)} from disks, {format_size(totals.disk_written)} to disks"
        + (f", {format_scaled(totals.faults)} page faults that waited" if totals.faults else ""),
        f"tasks computed {format_percent(io.compute / busy if busy else 0.0)} of their time, "
        f"waited {format_percent(io.wait / busy if busy else 0.0)}"
        + (f" ({totals.disk_wait:.1f} s for disks)" if totals.disk_wait else ""),
    ]
    if totals.hidden:
        said.append(f"{totals.hidden:,} processes of another user (setuid programs) are not counted")
    if io.seen is not None and io.seen < 0.95:
        said.append(
            f"calls on files, and what programs read to start, account for {format_percent(io.seen)} of these bytes: what "
            "programs without the library did (static ones, those of another user) was not seen"
        )
    return said


#: Heads of the table of files.
FILE_HEADS = ("read", "calls", "a call", "access", "written", "calls", "a call", "mapped", "opened", "waited", "file")


def make_file_rows(files: Iterable[FileCounts], most: int = MAX_ROWS) -> list[tuple[str, ...]]:
    """Return the rows of the table of files; see ``FILE_HEADS``."""
    rows: list[tuple[str, ...]] = []
    for file in list(files)[:most]:
        read, written = file.read, file.written
        calls = read.calls + written.calls
        jumps = read.jumps + written.jumps
        access = "random" if jumps > MIN_RANDOM_SHARE * calls else "sequential" if calls else ""
        rows.append((
            *_format_calls(read.bytes, read.calls), access, *_format_calls(written.bytes, written.calls),
            format_size(file.mapped) if file.mapped else "", format_scaled(file.opens), f"{file.seconds:.2f} s", file.path,
        ))  # fmt: skip
    return rows


def _format_calls(n_bytes: int, calls: int) -> tuple[str, str, str]:
    return (format_size(n_bytes), format_scaled(calls), format_size(n_bytes // calls)) if calls else ("", "", "")


def format_file_table(io: IoSummary) -> str:
    """Format the files as a table for a terminal; empty: there are none."""
    rows = [FILE_HEADS, *make_file_rows(io.files)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([*(field.rjust(width) for field, width in zip(row[:-1], widths, strict=False)), row[-1]])
        for row in rows
    ]
    more = len(io.files) - MAX_ROWS + io.lost if len(io.files) > MAX_ROWS or io.lost else 0
    return "\n".join([*lines, *([f"... and {more:,} more files"] if more else [])]) + "\n" if io.files else ""


def make_node_rows(nodes: Sequence[Any]) -> list[dict[str, Any]]:
    """Return a row for each node whose reads and writes were measured."""
    return [
        {
            "host": node.host, "io": node.io, "compute": node.cpu, "wait": max(node.seconds - node.cpu, 0.0),
            "call": node.io.read // node.io.reads if node.io.reads else 0,
        }
        for node in nodes if node.io
    ]  # fmt: skip
