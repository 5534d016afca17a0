"""Writer of the event log. After a write error (a full disk) it keeps the reason and writes no more."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from millrace.errors import CorruptError
from millrace.report.events import AnyLogEvent, EndEvent, LogEvent, TaskEvent, escape_surrogates
from millrace.report.thinning import TaskThinner

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
