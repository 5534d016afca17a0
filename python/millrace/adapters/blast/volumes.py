"""Volumes of BLAST databases: entries, residues, cuts into parts of given sizes, and alias files.

Only the index files (``.pin``, ``.nin``) are read: numbers in the head, then the offset of each entry in the sequence
file, so that the place of a cut is found without reading the database. Calls of ``blastdbcmd`` are here too.

Source: "BLAST Database Format" of the NCBI C++ Toolkit (``objtools/blast/seqdb_reader``): big-endian, except the
number of residues; version 5 has two more fields than version 4.
"""

from __future__ import annotations

import glob
import mmap
import operator
import shutil
import struct
import subprocess
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

import msgspec

from millrace._core import Candidates
from millrace.core.errors import RefusedError

#: A cut may be one ``NEARBY``-th of a run away from the place that the shares give.
NEARBY = 8


class BlastVolume(msgspec.Struct, frozen=True):
    """One volume, described by its index file."""

    #: Path without the ending.
    base: Path
    #: ``p`` or ``n``.
    letter: str
    #: 4 or 5.
    version: int
    title: str
    entries: int
    residues: int
    #: Whether it was made with ``-parse_seqids``, so that its entries have ids.
    parsed: bool
    #: Position in the index file of the table of offsets into the sequence file.
    offsets: int

    @property
    def head(self) -> int:
        """Bytes of the index file before the offsets of the headers; those of the sequences follow."""
        return self.offsets - 4 * (self.entries + 1)

    @property
    def index(self) -> Path:
        """Path of the index file."""
        return add_ending(self.base, f"{self.letter}in")

    def list_files(self) -> list[Path]:
        """List all its files, sorted."""
        return sorted(self.base.parent.glob(f"{glob.escape(self.base.name)}.{self.letter}??"))


def add_ending(base: Path, suffix: str) -> Path:
    """Append an ending to ``base``. ``Path.with_suffix`` would cut off a part of names with dots."""
    return base.with_name(f"{base.name}.{suffix}")


def read_volume(base: Path, letter: str) -> BlastVolume:
    """Read the head of an index file.

    Raises:
        RefusedError: It is not of version 4 or 5, or is cut off.
    """
    path = add_ending(base, f"{letter}in")
    try:
        with _map_file(path) as data:
            return _read_head(data, base, letter)
    except (struct.error, ValueError) as error:
        raise RefusedError(f"{path} is not the index of a BLAST database: {error}", "make it again") from None


def refuse_cut_off(files: Iterable[Path]) -> None:
    """Refuse a database with a file shorter than its index says: the tool would crash on queries that need the rest.

    Missing files and indexes of an unknown version are left to the tool.

    Raises:
        RefusedError: A file is cut off; names the file.
    """
    for index in files:
        if index.suffix not in (".pin", ".nin") or _read_version(index) not in (4, 5):
            continue
        volume = read_volume(index.with_suffix(""), index.suffix[1])
        for suffix, what in (("hr", "headers"), ("sq", "sequences")):
            path = add_ending(volume.base, f"{volume.letter}{suffix}")
            needed = _find_file_end(volume, what)
            if path.exists() and (size := path.stat().st_size) < needed:
                raise RefusedError(
                    f"{path} has {size:,} bytes, and its index {index.name} says that it has {needed:,}: it is cut off",
                    "copy the database again, or make it again",
                )


def _read_version(index: Path) -> int:
    with index.open("rb") as file:
        return int.from_bytes(file.read(4), "big")


def _find_file_end(volume: BlastVolume, what: str) -> int:
    """Return the offset at which the last header or sequence ends in its file."""
    with _map_file(volume.index) as data:
        at = volume.head if what == "headers" else volume.offsets
        return _OffsetTable(data, at, volume.entries + 1)[volume.entries]


def _read_head(data: mmap.mmap, base: Path, letter: str) -> BlastVolume:
    version, kind = struct.unpack_from(">2i", data)
    if version not in (4, 5) or kind != (letter == "p"):
        raise ValueError(f"version {version}, kind {kind}")
    at = 8 if version == 4 else 12
    title, at = _read_text(data, at)
    if version == 5:
        _lmdb, at = _read_text(data, at)
    _date, at = _read_text(data, at)
    (entries,) = struct.unpack_from(">i", data, at)
    (residues,) = struct.unpack_from("<q", data, at + 4)
    offsets = at + 16 + 4 * (entries + 1)
    if entries < 0 or offsets + 4 * (entries + 1) > len(data):
        raise ValueError("it is cut off")
    # The file of ids by hash exists if and only if names were parsed, in version 4 and 5.
    parsed = any(add_ending(base, f"{letter}{end}").exists() for end in ("og", "si", "nd"))
    return BlastVolume(
        base, letter, version, title.decode("utf-8", "surrogateescape"), entries, residues, parsed, offsets
    )


def _read_text(data: mmap.mmap, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">i", data, at)
    text = data[at + 4 : at + 4 + length]
    if len(text) != length:
        raise ValueError("it is cut off")
    # The date is padded with zero bytes, which its length includes, to align the numbers after it.
    return text.rstrip(b"\0"), at + 4 + length


@contextmanager
def _map_file(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


class _OffsetTable(Sequence[int]):
    """Table of the offsets of entries in the sequence file, each read on access."""

    def __init__(self, data: mmap.mmap, at: int, count: int) -> None:
        self.data, self.at, self.length = data, at, count

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        value: int = struct.unpack_from(">I", self.data, self.at + 4 * index)[0]
        return value


def read_lengths(volume: BlastVolume, first: int, last: int) -> list[int]:
    """Read the residues of the entries ``[first, last)`` of a volume, as BLAST counts them when it counts anew.

    The length of nucleotides is approximate: four bases a byte, and the entry's ordinal modulo 4 for the last byte.

    Source: ``seqdbvol.cpp`` (``GetSeqLengthProt``, ``GetSeqLengthApprox``) of the NCBI C++ Toolkit.
    """
    with _map_file(volume.index) as data:
        starts = _read_numbers(data, volume.offsets + 4 * first, last - first + 1)
        if volume.letter == "p":
            return [after - before - 1 for before, after in pairwise(starts)]
        # The data on ambiguous bases follow the sequence.
        ends = _read_numbers(data, volume.offsets + 4 * (volume.entries + 1 + first), last - first)
        sizes = map(operator.sub, ends, starts)
        return [4 * (size - 1) + (entry & 3) for entry, size in enumerate(sizes, first)]


def _read_numbers(data: mmap.mmap, at: int, count: int) -> array[int]:
    found = array("I", data[at : at + 4 * count])
    if sys.byteorder == "little":
        found.byteswap()
    return found


def read_offsets(volume: BlastVolume, what: Literal["headers", "sequences"]) -> array[int]:
    """Read the offset of each entry in the file of headers or of sequences, then the end of the last."""
    count = volume.entries + 1
    with _map_file(volume.index) as data:
        return _read_numbers(data, volume.offsets - 4 * count * (what == "headers"), count)


def read_sequence_bytes(volume: BlastVolume) -> int:
    """Read the size of the sequence file from the index; the sequence file need not be there."""
    with _map_file(volume.index) as data:
        return _OffsetTable(data, volume.offsets, volume.entries + 1)[volume.entries]


def list_volume_runs(volumes: Sequence[BlastVolume]) -> list[tuple[int, int, int]]:
    """Return (first, last, residues) of each volume that has entries, as ``cut_volumes`` returns runs."""
    starts = accumulate((volume.entries for volume in volumes), initial=0)
    runs = zip(starts, volumes, strict=False)
    return [(first, first + volume.entries, volume.residues) for first, volume in runs if volume.entries]


def cut_volumes(volumes: Sequence[BlastVolume], shares: Sequence[int]) -> list[tuple[int, int, int]]:
    """Cut the entries of all volumes, in order, into at most ``len(shares)`` runs, with sizes about as the shares.

    Size is in bytes of the sequence files, which a search reads: one for a residue of a protein, or for four bases of
    nucleotides. An entry longer than a share makes a run of its own. If a volume ends nearby, the cut is there, so that
    a run reads as few files as possible.

    Returns:
        (first, last, residues) of each run: half-open ordinals; no run is empty, and together they have all entries.
        Residues of nucleotides are rounded.
    """
    sizes: list[int] = []
    starts = [0]
    for volume in volumes:
        with _map_file(volume.index) as data:
            table = _OffsetTable(data, volume.offsets, volume.entries + 1)
            sizes.append(table[volume.entries] - table[0] if volume.entries else 0)
        starts.append(starts[-1] + volume.entries)
    total, entries = sum(sizes), starts[-1]
    places = [0]
    part = total / sum(shares)
    for share, upto in zip(shares[:-1], accumulate(shares), strict=False):
        places.append(_find_cut_place(volumes, sizes, starts, int(upto * part), int(share * part / NEARBY)))
    places.append(entries)
    runs = [(first, last) for first, last in pairwise(places) if first < last]
    residues = sum(volume.residues for volume in volumes)
    weights = [_count_bytes_before(volumes, sizes, starts, last) for _, last in runs]
    before = [0, *weights]
    return [
        (first, last, residues * (end - begin) // max(total, 1))
        for (first, last), begin, end in zip(runs, before, weights, strict=False)
    ]


def _find_cut_place(
    volumes: Sequence[BlastVolume], sizes: Sequence[int], starts: Sequence[int], target: int, near: int
) -> int:
    """Find the first entry with at least ``target`` bytes before it, or the start of a volume within ``near`` bytes."""
    for volume, size, start in zip(volumes, sizes, starts, strict=False):
        if target <= near:
            return start
        if target <= size:
            if size - target <= near:
                return start + volume.entries
            with _map_file(volume.index) as data:
                table = _OffsetTable(data, volume.offsets, volume.entries + 1)
                return start + bisect_left(table, table[0] + target)
        target -= size
    return starts[-1]


def _count_bytes_before(volumes: Sequence[BlastVolume], sizes: Sequence[int], starts: Sequence[int], entry: int) -> int:
    total = 0
    for volume, size, start in zip(volumes, sizes, starts, strict=False):
        if entry >= start + volume.entries:
            total += size
        elif entry > start:
            with _map_file(volume.index) as data:
                table = _OffsetTable(data, volume.offsets, volume.entries + 1)
                total += table[entry - start] - table[0]
    return total


#: Name of each kind of database in BLAST's options, by its letter.
KINDS = {"p": "prot", "n": "nucl"}


def write_alias(alias: Path, letter: str, title: str, databases: Sequence[str], *lines: str) -> None:
    """Write an alias file.

    Args:
        alias: Its path, without the ending.
        letter: ``p`` or ``n``.
        databases: Paths without ending, relative to the alias's folder or absolute.
        lines: Further lines, such as ``FIRST_OID 1``.
    """
    names = " ".join(f'"{name}"' for name in databases)
    text = "\n".join((f"TITLE {title}", f"DBLIST {names}", *lines, ""))
    add_ending(alias, f"{letter}al").write_text(text, "utf-8", "surrogateescape")


def write_masked_aliases(
    entries: Candidates, volumes: Sequence[str], folder: Path, name: str, letter: str, title: str
) -> list[str]:
    """Write an alias for each volume with only its entries of ``entries``. Return their names in ``folder``."""
    names = [f"{name}{number}" for number in range(len(volumes))]
    for number, (part, base) in enumerate(zip(names, volumes, strict=True)):
        entries.write(number, folder / f"{part}.msk")
        write_alias(folder / part, letter, title, [base], f"OIDLIST {part}.msk")
    return names


def run_blastdbcmd(
    letter: str, arguments: Sequence[str], cwd: Path, environ: Mapping[str, str], text: bytes = b""
) -> subprocess.CompletedProcess[bytes] | None:
    """Run ``blastdbcmd`` and return its result, whatever its status; None if it is not on the ``PATH``.

    Args:
        text: Its standard input.
    """
    program = shutil.which("blastdbcmd", path=environ.get("PATH"))
    if program is None:
        return None
    return subprocess.run(
        [program, "-dbtype", KINDS[letter], *arguments],
        input=text,
        capture_output=True,
        cwd=cwd,
        env=dict(environ),
        check=False,
    )
