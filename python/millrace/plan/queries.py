"""Number and lengths of the queries, counted or estimated before the run."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from millrace import _core
from millrace.model import CostHint, FrozenValue, InputUse

#: Bytes of a file that are read, about; the rest is assumed to be alike.
MAX_SAMPLED_BYTES = 8 << 20

#: Most records whose sizes are kept one by one: of more, each is a small part of a batch.
MAX_SIZED_RECORDS = 512


class QueryEstimate(FrozenValue, frozen=True):
    """Number and sizes of the queries, counted or extrapolated from the beginning of a large file."""

    records: int
    #: Residues (of profiles: bytes) of all records and of the largest.
    units: int
    longest: int
    #: Whether all were counted.
    complete: bool = True
    #: Units up to the end of each record, if there are few.
    ends: tuple[int, ...] = ()


def sample_queries(item: InputUse, cwd: Path) -> QueryEstimate | None:
    """Estimate the queries from the first records of an input; None: a pipe, or records that cannot be read."""
    path = _find_rereadable_path(item.path, cwd)
    if item.format == "files" or path is None:
        return None
    records = units = longest = 0
    ends = list[int]()
    step = 1  # records at a time, growing: a record may have a kilobyte or a gigabyte
    try:
        reader = _core.Reader([path], item.format)
        while reader.offset < MAX_SAMPLED_BYTES:
            batch = reader.skip(step)
            if batch is None:
                return QueryEstimate(
                    records=records, units=units, longest=longest, ends=tuple(ends) if step == 1 else ()
                )
            records, units, longest = records + batch.records, units + batch.cost, max(longest, batch.largest)
            ends.append(units)
            step = 1 if records < MAX_SIZED_RECORDS else min(2 * step, 1 << 12)
        times = max((reader.total or 0) / reader.offset, 1.0)
    except (OSError, ValueError, _core.RecordError):
        return None  # the run itself reports the error
    return QueryEstimate(records=int(records * times), units=int(units * times), longest=longest, complete=times == 1.0)


def add_query_sizes(hint: CostHint, queries: QueryEstimate) -> CostHint:
    """Add the number or sizes of the queries to a cost hint."""
    if hint.unit == "records":
        return msgspec.structs.replace(hint, units=queries.records, counted=queries.complete)
    return msgspec.structs.replace(
        hint, units=queries.units, counted=queries.complete, longest=queries.longest, ends=queries.ends
    )


def _find_rereadable_path(path: str, cwd: Path) -> str | None:
    if path != "-":
        return str(cwd / path) if (cwd / path).is_file() else None
    try:
        # Opened by this name, a file gets an offset of its own, at its beginning.
        return "/proc/self/fd/0" if os.path.isfile("/proc/self/fd/0") and os.lseek(0, 0, os.SEEK_CUR) == 0 else None
    except OSError:
        return None
