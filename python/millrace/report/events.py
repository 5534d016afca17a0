"""The event log of a run, as in ``docs/events.md``: written line by line, read back whatever was cut off.

The log is for people and reports. What is done is decided by the journal alone, so a log that cannot be
written any more (a full disk) keeps the reason in `EventLog.failure` and falls silent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

#: Longest time that an event waits in memory, in seconds.
FLUSH_SECONDS = 1.0


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """One line of the log. Unknown keys are ignored, missing ones have defaults: old logs stay readable."""


class RunEvent(Event, frozen=True, kw_only=True, tag="run"):
    """A run begins; all times up to the next such event count from here."""

    #: When, as ISO 8601 with its offset from UTC.
    time: str = ""
    argv: list[str] = []
    tool: str = ""
    version: str = ""
    slots: int = 1
    #: What ``units`` counts: ``residues``, ``bytes`` or ``records``.
    unit: str = "bytes"
    bytes_total: int | None = None
    records_resumed: int = 0


class TaskEvent(Event, frozen=True, kw_only=True, tag="task"):
    """An attempt at the records ``[first, last)`` ended."""

    #: End and start, in seconds since the run began.
    t: float = 0.0
    start: float = 0.0
    slot: int = 0
    first: int = 0
    last: int = 0
    units: int = 0
    bytes: int = 0
    #: Seconds of CPU, user and system, of the tool and its children.
    cpu: float = 0.0
    #: Peak resident memory, in bytes.
    rss: int = 0
    #: Bytes written.
    out: int = 0
    attempt: int = 1
    #: Number of the fragment of the database that was searched, from 1, or of a slice (`millrace.slices`) that was not
    #: the last; 0: the output of these records is there.
    fragment: int = 0
    #: ``done``, ``verified`` (run again to compare), ``failed``, ``timeout``, ``killed`` or ``misplaced`` (a slice that
    #: cannot be used: another task writes the record).
    status: str = "done"
    detail: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether the attempt gave nothing."""
        return self.status not in ("done", "verified")


class RetryEvent(Event, frozen=True, kw_only=True, tag="retry"):
    """The records ``[first, last)`` are tried again."""

    t: float = 0.0
    first: int = 0
    last: int = 0
    reason: str = ""


class QuarantineEvent(Event, frozen=True, kw_only=True, tag="quarantine"):
    """One record is given up."""

    t: float = 0.0
    #: Its ordinal, from 0.
    record: int = 0
    name: str = ""
    reason: str = ""


class WarningEvent(Event, frozen=True, kw_only=True, tag="warning"):
    """Something the user should know; ``count`` times so far."""

    t: float = 0.0
    text: str = ""
    count: int = 1


class EndEvent(Event, frozen=True, kw_only=True, tag="end"):
    """The run is over, and how; missing where it was killed."""

    t: float = 0.0
    #: ``done``, ``quarantined``, ``interrupted`` or ``stopped``.
    status: str = "done"
    records_done: int = 0
    quarantined: int = 0
    message: str = ""


AnyEvent = RunEvent | TaskEvent | RetryEvent | QuarantineEvent | WarningEvent | EndEvent


class EventLog:
    """Appends events to a file, about once a second. Not for threads.

    Args:
        path: Created if missing. A last line that a killed run left half written is closed with a newline, so
            that ours begins on a line of its own.
    """

    def __init__(self, path: Path) -> None:
        #: Why the log fell silent; None while all is well.
        self.failure: OSError | None = None
        self._encoder = msgspec.json.Encoder()
        self._waiting = bytearray()
        self._flushed_at: float | None = None
        self._file: int | None = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        end = os.fstat(self._file).st_size
        if end and os.pread(self._file, 1, end - 1) != b"\n":
            self._waiting += b"\n"

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, event: AnyEvent, now: float) -> None:
        """Append ``event``.

        ``now`` is any clock in seconds that only grows; it decides when the file is written.
        """
        if self._file is None:
            return
        before = len(self._waiting)
        try:
            self._encoder.encode_into(event, self._waiting, -1)
        except UnicodeEncodeError:
            del self._waiting[before:]
            self._waiting += self._encoder.encode(readable(msgspec.to_builtins(event)))
        self._waiting += b"\n"
        if self._flushed_at is None or now - self._flushed_at >= FLUSH_SECONDS:
            self._flushed_at = now
            self.flush()

    def flush(self) -> None:
        """Hand everything to the system. Does not wait for the disk: the journal's promise is not ours."""
        waiting, self._waiting = memoryview(bytes(self._waiting)), bytearray()
        try:
            while waiting and self._file is not None:
                waiting = waiting[os.write(self._file, waiting) :]
        except OSError as error:
            self.failure = error
            self._close_file()

    def close(self) -> None:
        """Write what is left and close the file. Twice is fine."""
        self.flush()
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def readable(value: Any) -> Any:
    """``value`` with bytes of file names that are not UTF-8 written as ``\\xe9``, for readers rather than for opening."""
    match value:
        case str():
            return os.fsencode(value).decode(errors="backslashreplace")
        case dict():
            return {key: readable(item) for key, item in value.items()}
        case list() | tuple():
            return [readable(item) for item in value]
        case _:
            return value


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Read the events of a log in order, lazily, leaving out lines that were cut off when a run was killed.

    A line that is no JSON object is what such a kill leaves: at the end of the file, or in the middle where a
    later run went on.
    """
    decoder = msgspec.json.Decoder(dict[str, Any])
    with path.open("rb") as lines:
        for line in lines:
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue


def read_typed(path: Path) -> Iterator[AnyEvent]:
    """Read what `typed` would make of `read`, in one step: a run of many tasks ends sooner."""
    decoder = msgspec.json.Decoder(AnyEvent)
    with path.open("rb") as lines:
        for line in lines:
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue


def typed(events: Iterable[dict[str, Any] | AnyEvent]) -> Iterator[AnyEvent]:
    """Turn what `read` gives into event values, leaving out kinds that this version does not know."""
    for event in events:
        if isinstance(event, Event):
            yield event
            continue
        try:
            yield msgspec.convert(event, AnyEvent)
        except msgspec.ValidationError:
            continue
