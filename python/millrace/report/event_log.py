"""Writer of the event log, and the thinning of its lines: tasks of a large run share lines.

Beyond the first ones, tasks that one slot did one after the other share a line, ever more of them; failed tasks and
the slowest keep theirs. A million tasks make about ten thousand lines. After a write error (a full disk) the writer
keeps the reason and writes no more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from heapq import heappush, heappushpop
from pathlib import Path

import msgspec

from millrace.core.errors import CorruptError
from millrace.report.events import AnyLogEvent, EndEvent, LogEvent, TaskEvent, TasksEvent, escape_surrogates

#: Number of tasks with a line of their own, and of lines after which twice as many share one.
ALONE, STEP = 10_000, 5_000

#: The slowest tasks so far have lines of their own: this many at a time, and this many ever.
SLOWEST, MAX_SLOW_LINES = 20, 1_000


class TaskThinner:
    """Takes tasks, and returns the lines that stand for them."""

    def __init__(self) -> None:
        self._lines = self._slow = 0
        self._seconds: list[float] = []
        self._waiting: dict[tuple[int, str, bool], list[TaskEvent]] = {}

    def add_task(self, task: TaskEvent) -> TaskEvent | None:
        """Add the next task; return the line to write now, or None."""
        slow = self._is_among_slowest(task)
        if self._lines < ALONE or task.is_failure or slow:
            self._lines += 1
            return task
        key = (task.slot, task.status, task.fragment > 0)
        tasks = self._waiting.setdefault(key, [])
        tasks.append(task)
        if len(tasks) < 2 << (self._lines - ALONE) // STEP:
            return None
        self._lines += 1
        return sum_tasks(self._waiting.pop(key))

    def pop_waiting_lines(self) -> Iterator[TaskEvent]:
        """Yield the lines of tasks that still wait for others."""
        waiting, self._waiting = self._waiting, {}
        yield from map(sum_tasks, waiting.values())

    def _is_among_slowest(self, task: TaskEvent) -> bool:
        if len(self._seconds) < SLOWEST:
            heappush(self._seconds, task.seconds)
            return True
        slow = task.seconds > heappushpop(self._seconds, task.seconds) and self._slow < MAX_SLOW_LINES
        self._slow += slow
        return slow


def sum_tasks(tasks: list[TaskEvent]) -> TaskEvent:
    """Sum up tasks that a slot did one after the other, as one line."""
    if len(tasks) == 1:
        return tasks[0]
    first = tasks[0]
    return TasksEvent(
        t=max(task.t for task in tasks), start=min(task.start for task in tasks), slot=first.slot,
        first=min(task.first for task in tasks), last=max(task.last for task in tasks),
        units=sum(task.units for task in tasks), bytes=sum(task.bytes for task in tasks),
        cpu=sum(task.cpu for task in tasks), rss=max(task.rss for task in tasks), out=sum(task.out for task in tasks),
        attempt=max(task.attempt for task in tasks), fragment=first.fragment, status=first.status,
        n=len(tasks), n_records=sum(task.records for task in tasks), busy=sum(task.seconds for task in tasks),
    )  # fmt: skip


#: Maximum time that an event waits in memory, in seconds.
FLUSH_SECONDS = 1.0


class EventLog:
    """Appends events to a file, about once a second. Not thread-safe.

    Args:
        path: Created if missing. An incomplete last line, left by a killed run, is closed with a newline, so
            that new events begin on a line of their own.

    Raises:
        CorruptError: It is a folder, a pipe, or a dangling link.
    """

    def __init__(self, path: Path) -> None:
        #: Why the log writes no more; None while all is well.
        self.failure: OSError | None = None
        self._thinner = TaskThinner()
        self._encoder = msgspec.json.Encoder()
        self._waiting = bytearray()
        self._flushed_at: float | None = None
        try:
            self._file: int | None = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except IsADirectoryError as error:
            raise CorruptError(f"{path}: is a folder, not the log of a run", "start over with --fresh") from error
        except FileNotFoundError as error:
            if not path.is_symlink():
                raise
            raise CorruptError(f"{path}: is a link, not the log of a run", "start over with --fresh") from error
        about = os.fstat(self._file)
        if stat.S_ISFIFO(about.st_mode):
            os.close(self._file)
            raise CorruptError(f"{path}: is a pipe, not the log of a run", "start over with --fresh")
        end = about.st_size
        if end and os.pread(self._file, 1, end - 1) != b"\n":
            self._waiting += b"\n"

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, event: AnyLogEvent, now: float) -> None:
        """Append ``event``; in large runs, several tasks share a line.

        ``now`` is any monotonic clock in seconds; it decides when the file is written.
        """
        if self._file is None:
            return
        if isinstance(event, TaskEvent):
            line = self._thinner.add_task(event)
            if line is None:
                return
            event = line
        elif isinstance(event, EndEvent):
            self._write_thinned()
        self._append_event(event)
        if self._flushed_at is None or now - self._flushed_at >= FLUSH_SECONDS:
            self._flushed_at = now
            self.flush()

    def _write_thinned(self) -> None:
        for line in self._thinner.pop_waiting_lines():
            self._append_event(line)

    def _append_event(self, event: LogEvent) -> None:
        before = len(self._waiting)
        try:
            self._encoder.encode_into(event, self._waiting, -1)
        except UnicodeEncodeError:
            del self._waiting[before:]
            self._waiting += self._encoder.encode(escape_surrogates(msgspec.to_builtins(event)))
        self._waiting += b"\n"

    def flush(self) -> None:
        """Hand everything to the system. Does not fsync: only the journal promises durability."""
        waiting, self._waiting = memoryview(bytes(self._waiting)), bytearray()
        try:
            while waiting and self._file is not None:
                waiting = waiting[os.write(self._file, waiting) :]
        except OSError as error:
            self.failure = error
            self._close_file()

    def close(self) -> None:
        """Write the rest and close the file. May be called twice."""
        self._write_thinned()
        self.flush()
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
