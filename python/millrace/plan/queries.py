"""A look at the queries before the run: how many, and how long."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from millrace import _core
from millrace.model import CostHint, Frozen, InputUse

#: Bytes of a file that are looked at, about: what follows is taken to be like it.
MOST_BYTES = 8 << 20

#: Records at most of which each size is kept: of more, one of them is a small part of a batch.
FEW = 512


class Queries(Frozen, frozen=True):
    """What was seen, or estimated from the beginning of a large file."""

    records: int
    #: Residues (of profiles: bytes), in all and in the largest record.
    units: int
    longest: int
    #: Whether all were seen.
    complete: bool = True
    #: Units up to the end of each, of few records.
    ends: tuple[int, ...] = ()


def look(item: InputUse, cwd: Path) -> Queries | None:
    """Read the first records of an input; None where that would take them away (a pipe) or they cannot be read."""
    path = _readable_twice(item.path, cwd)
    if item.format == "files" or path is None:
        return None
    records = units = longest = 0
    ends = list[int]()
    step = 1  # records at a time, later more and more: one may have a kilobyte or a gigabyte
    try:
        reader = _core.Reader([path], item.format)
        while reader.offset < MOST_BYTES:
            batch = reader.skip(step)
            if batch is None:
                return Queries(records=records, units=units, longest=longest, ends=tuple(ends) if step == 1 else ())
            records, units, longest = records + batch.records, units + batch.cost, max(longest, batch.largest)
            ends.append(units)
            step = 1 if records < FEW else min(2 * step, 1 << 12)
        times = max((reader.total or 0) / reader.offset, 1.0)
    except (OSError, ValueError, _core.RecordError):
        return None  # the run itself says what is wrong
    return Queries(records=int(records * times), units=int(units * times), longest=longest, complete=times == 1.0)


def with_sizes(hint: CostHint, queries: Queries) -> CostHint:
    """What is known of a cost, with the sizes of the queries."""
    if hint.unit == "records":
        return msgspec.structs.replace(hint, units=queries.records, counted=queries.complete)
    return msgspec.structs.replace(
        hint, units=queries.units, counted=queries.complete, longest=queries.longest, ends=queries.ends
    )


def _readable_twice(path: str, cwd: Path) -> str | None:
    if path != "-":
        return str(cwd / path) if (cwd / path).is_file() else None
    try:
        # Opened by this name, a file is read from its beginning with an offset of its own.
        return "/proc/self/fd/0" if os.path.isfile("/proc/self/fd/0") and os.lseek(0, 0, os.SEEK_CUR) == 0 else None
    except OSError:
        return None
