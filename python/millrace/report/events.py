"""The event log of a run, as in ``docs/events.md``: written line by line, read back despite incomplete lines.

The log is for people and reports. The journal alone decides which records are done. ``millrace.report.event_log``
writes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from millrace.core.tasks import FileCounts, IoCounts
from millrace.core.text_format import format_size
from millrace.core.tool_use import FrozenValue


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """One line of the log. Unknown keys are ignored, missing ones have defaults: old logs stay readable."""


class RunEvent(LogEvent, frozen=True, kw_only=True, tag="run"):
    """A run begins; all times up to the next event of this kind count from here."""

    #: Time of the begin, as ISO 8601 with its offset from UTC.
    time: str = ""
    argv: list[str] = []
    tool: str = ""
    version: str = ""
    slots: int = 1
    #: Maximum number of threads of a task.
    threads: int = 1
    #: Unit of ``units``: ``residues``, ``bytes`` or ``records``.
    unit: str = "bytes"
    bytes_total: int | None = None
    records_resumed: int = 0
    #: Host and number of slots of each process of the run, in the order in which slots are numbered.
    nodes: list[tuple[str, int]] = []


class TaskEvent(LogEvent, frozen=True, kw_only=True, tag="task"):
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
    #: Number of the searched fragment of the database, from 1, or of a slice (``millrace.core.tasks``) that was not
    #: the last; 0: the output of these records is complete.
    fragment: int = 0
    #: ``done``, ``verified`` (run again to compare), ``failed``, ``timeout``, ``killed`` or ``misplaced`` (a slice that
    #: cannot be used: another task writes the record).
    status: str = "done"
    detail: str = ""
    #: What it read and wrote; missing in a run that does not profile that.
    io: IoCounts | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_failure(self) -> bool:
        """Whether the attempt gave no result."""
        return self.status not in ("done", "verified")

    @property
    def tasks(self) -> int:
        """Number of tasks that this line stands for."""
        return 1

    @property
    def records(self) -> int:
        """Number of their records."""
        return self.last - self.first

    @property
    def seconds(self) -> float:
        """Seconds for which the slot worked on them."""
        return self.t - self.start

    @property
    def work_seconds(self) -> float:
        """CPU seconds if measured, as load does not change them; else the elapsed ones."""
        return self.cpu or self.seconds


class TasksEvent(TaskEvent, frozen=True, kw_only=True, tag="tasks"):
    """Tasks that a slot did one after the other, all with this ``TaskEvent.status``; see ``millrace.report.event_log``.

    Amounts are sums, ``rss`` is the largest, and ``[first, last)`` encloses their records, perhaps among others.
    """

    n: int = 1
    n_records: int = 0
    busy: float = 0.0

    @property
    def tasks(self) -> int:
        """See ``TaskEvent``."""
        return self.n

    @property
    def records(self) -> int:
        """See ``TaskEvent``."""
        return self.n_records

    @property
    def seconds(self) -> float:
        """See ``TaskEvent``."""
        return self.busy


class RetryEvent(LogEvent, frozen=True, kw_only=True, tag="retry"):
    """The records ``[first, last)`` are tried again."""

    t: float = 0.0
    first: int = 0
    last: int = 0
    reason: str = ""


class QuarantineEvent(LogEvent, frozen=True, kw_only=True, tag="quarantine"):
    """One record is quarantined."""

    t: float = 0.0
    #: Ordinal of the record, from 0.
    record: int = 0
    name: str = ""
    reason: str = ""


class WarningEvent(LogEvent, frozen=True, kw_only=True, tag="warning"):
    """A warning for the user, reported ``count`` times so far."""

    t: float = 0.0
    text: str = ""
    count: int = 1


class SlotsEvent(LogEvent, frozen=True, kw_only=True, tag="slots"):
    """From now on, this many tools run side by side: nodes came or went, or memory ran out."""

    t: float = 0.0
    slots: int = 1


class VolumesEvent(LogEvent, frozen=True, kw_only=True, tag="volumes"):
    """Locality of the searches in the volumes of a database that nodes fetch, at the end of a run."""

    t: float = 0.0
    searches: int = 0
    #: Searches on nodes that had their volume.
    local: int = 0
    #: Bytes of volumes that were read from the shared storage, and further bytes that searches of candidates read.
    volume_bytes: int = 0
    range_bytes: int = 0
    #: Part of both that came from DataNodes of other hosts, over the network.
    far_bytes: int = 0
    #: Whether it is about the blocks of an input, and the tasks that read it.
    is_input: bool = False
    #: Maximum number of nodes that fetch each volume; 0: any number, as those of HDFS.
    max_copies: int = 0

    @property
    def words(self) -> str:
        """The line for the user.

        >>> VolumesEvent(searches=32, local=31, volume_bytes=64_000_000, range_bytes=5000, far_bytes=2_000_000).words
        'fragments in HDFS: 31 of 32 searches on nodes that had theirs; 64 MB of them were fetched, 5.0 kB more for candidates; 2.0 MB of that over the network'
        """
        if self.is_input:
            return (
                f"input in HDFS: {self.local} of {self.searches} tasks on nodes that had their block; "
                f"{format_size(self.volume_bytes)} of it were read, {format_size(self.far_bytes)} of that over the network"
            )
        if self.max_copies:
            return (
                f"volumes on shared storage: {self.local} of {self.searches} searches on nodes that had theirs; "
                f"{format_size(self.volume_bytes)} of them were fetched, {format_size(self.range_bytes)} more for candidates"
            )
        return (
            f"fragments in HDFS: {self.local} of {self.searches} searches on nodes that had theirs; "
            f"{format_size(self.volume_bytes)} of them were fetched, {format_size(self.range_bytes)} more for candidates; "
            f"{format_size(self.far_bytes)} of that over the network"
        )


class FilesEvent(LogEvent, frozen=True, kw_only=True, tag="files"):
    """What the tasks of this start have done with each file so far; the latest such event has all."""

    t: float = 0.0
    files: tuple[FileCounts, ...] = ()
    #: Processes of which calls were counted; of these, those without their standard streams.
    processes: int = 0
    streamless: int = 0
    #: Files that were not counted, as there were too many.
    lost: int = 0


class IoSummary(FrozenValue, frozen=True):
    """What a job read and wrote, over all its runs. Seconds and bytes."""

    totals: IoCounts
    #: Seconds of tasks that computed, and those in which they waited.
    compute: float
    wait: float
    #: Files with the most bytes first; empty: calls were not counted.
    files: tuple[FileCounts, ...] = ()
    #: Share of the bytes read and written that calls on files account for, and what programs read to start; the rest was
    #: not seen. None: not counted.
    seen: float | None = None
    #: Files that are not among ``files``.
    lost: int = 0


class EndEvent(LogEvent, frozen=True, kw_only=True, tag="end"):
    """The end of the run, and its status; missing if the run was killed."""

    t: float = 0.0
    #: ``done``, ``quarantined``, ``interrupted`` or ``stopped``.
    status: str = "done"
    records_done: int = 0
    quarantined: int = 0
    message: str = ""


class CheckEvent(LogEvent, frozen=True, kw_only=True, tag="check"):
    """Batches of the finished run were computed again (``millrace verify``), with the same bytes."""

    t: float = 0.0
    #: When, as ISO 8601 with its offset from UTC.
    time: str = ""
    batches: int = 0
    records: int = 0


AnyLogEvent = (
    RunEvent
    | TaskEvent
    | TasksEvent
    | RetryEvent
    | QuarantineEvent
    | WarningEvent
    | SlotsEvent
    | VolumesEvent
    | FilesEvent
    | EndEvent
    | CheckEvent
)


def escape_surrogates(value: Any) -> Any:
    """Return ``value`` with non-UTF-8 bytes of file names written as ``\\xe9``: readable, but not for opening files."""
    match value:
        case str():
            return os.fsencode(value).decode(errors="backslashreplace")
        case dict():
            return {key: escape_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [escape_surrogates(item) for item in value]
        case _:
            return value


def read_events(path: Path) -> Iterator[AnyLogEvent]:
    """Yield the events of a log in order, lazily, without kinds that this version does not know."""
    with path.open("rb") as lines:
        yield from decode_events(lines)


def decode_events(lines: Iterable[bytes]) -> Iterator[AnyLogEvent]:
    """Yield the events of lines of a log, without lines that are incomplete because a run was killed.

    A kill leaves a line that is no JSON object: at the end of the file, or in the middle where a later run went on.
    """
    decoder = msgspec.json.Decoder(AnyLogEvent)
    for line in lines:
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
