"""Facts from the beginning of inputs: formats, compression, number and lengths of queries."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace import _core
from millrace.adapters.adapter_base import is_still_growing
from millrace.core.errors import RefusedError
from millrace.core.tool_use import CostHint, FrozenValue, InputUse, ToolUse, UserCommand

#: Bytes that are read of each input.
HEAD_BYTES = 64 << 10


#: Compressions that the same programs read.
GZIP = ("gzip", "bgzf")

#: Compression by suffix, for a file that another phase still writes.
_BY_NAME = {".gz": "gzip", ".bgz": "bgzf", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}

#: Input files, and the first bytes of each.
InputHeads = Sequence[tuple[InputUse, bytes]]


def read_input_heads(use: ToolUse, command: UserCommand) -> Iterator[tuple[InputUse, bytes]]:
    """Yield the first bytes of the inputs that are files; pipes are not read."""
    for item in use.inputs:
        path = command.cwd / item.path
        if item.format == "files" or item.path == "-" or is_still_growing(item.path, command):
            continue
        try:
            if path.is_file():
                with path.open("rb") as file:
                    yield item, file.read(HEAD_BYTES)
        except OSError:
            continue  # the run itself reports the error


def refuse_old_mac(heads: InputHeads) -> None:
    """Refuse sequences whose lines end with a carriage return alone: some tools read many records there, some one.

    Compressed inputs are not checked, as their bytes say nothing about lines.

    Raises:
        RefusedError: There is such an input.
    """
    for item, head in heads:
        if item.format not in ("fasta", "fastq") or _core.compression(head):
            continue
        if b"\r" in head[:-1] and b"\n" not in head:
            raise RefusedError(
                f"{item.path}:1: lines end with a carriage return alone, as on old Macs",
                f"convert it first: tr '\\r' '\\n' < {item.path} > NEW",
            )


def refuse_bcf(heads: InputHeads) -> None:
    """Refuse variants in BCF, compressed or not, which has no lines.

    Raises:
        RefusedError: There is such an input.
    """
    for item, head in heads:
        if item.format == "vcf" and _decompress_gzip_head(head).startswith(b"BCF"):
            raise RefusedError(
                f"{item.path}: is BCF, which is not cut into variants",
                f"let bcftools write VCF: bcftools view {item.path} | millrace run --format vcf -- ...",
            )


def _decompress_gzip_head(head: bytes) -> bytes:
    """Return the first 16 bytes of the content of a head that may be gzip; empty if it is corrupt."""
    if _core.compression(head) not in GZIP:
        return head
    with suppress(zlib.error):
        return zlib.decompressobj(wbits=31).decompress(head, 16)
    return b""


def refuse_missing_content(use: ToolUse, command: UserCommand) -> None:
    """Refuse records before which the run would stop (``InputUse.stops_without_content``), if the input can be read twice.

    Raises:
        RefusedError: There is such a record.
    """
    for item in use.inputs:
        if not (item.stops_without_content and item.content) or is_still_growing(item.path, command):
            continue
        if not (path := _find_rereadable_path(item.path, command.cwd)):
            continue
        content = (item.content.letters, item.content.least)
        try:
            whole = _core.Reader([path], item.format, content=content).skip(1 << 62)
        except (OSError, _core.RecordError):
            continue  # the run itself reports the error
        if whole and (missing := whole.records - whole.sufficient):
            raise RefusedError(
                f"{'standard input' if item.path == '-' else item.path}: of {whole.records:,} records {missing:,} have too little "
                "in them to be searched: what is written for one, or as the number of the next, depends on those beside it",
                "take such records out, in the serial run too",
            )


def mark_compressed_inputs(use: ToolUse, heads: InputHeads, command: UserCommand) -> ToolUse:
    """Mark how inputs are compressed, so that tasks get them compressed alike, as the serial tool does.

    Known tools get gzip files named ``.gz`` or ``.bgz`` decompressed: they read these, or their adapters refuse them.
    """
    if use.adapter == "records":
        return use  # it gets records, not files
    found = {item.path: _core.compression(head) for item, head in heads}
    if any(item.path == "-" for item in use.inputs):
        found["-"] = _core.compression(_read_standard_input_head())
    is_known = use.adapter != "generic" and not use.adapter.startswith("file:")

    def packed(item: InputUse) -> str | None:
        written = is_still_growing(item.path, command)
        compression = _BY_NAME.get(Path(item.path).suffix, "") if written else found.get(item.path, "")
        return None if is_known and compression in GZIP and item.path.endswith((".gz", ".bgz")) else compression

    return msgspec.structs.replace(
        use, inputs=tuple(msgspec.structs.replace(item, packed=packed(item)) for item in use.inputs)
    )


def _read_standard_input_head() -> bytes:
    """Return the first bytes of standard input, if it is a file; a pipe is not read."""
    try:
        if stat.S_ISREG(os.fstat(0).st_mode):
            return os.pread(0, HEAD_BYTES, os.lseek(0, 0, os.SEEK_CUR))
    except OSError:
        pass  # closed or unreadable: the run itself reports it
    return b""


def describe_compressed_inputs(use: ToolUse) -> tuple[str, ...]:
    """Return a note for each compressed input."""
    tool = os.path.basename(str(use.argv[0]))
    return tuple(
        f"{'standard input' if item.path == '-' else item.path} is compressed ({item.packed}): {tool} gets its parts so, too"
        for item in use.inputs
        if item.packed
    )


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
