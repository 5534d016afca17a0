"""Fragments and candidates of BLAST databases: alias files over the user's own database, which is never copied.

An alias may name a range of entries (``FIRST_OID``, from 1, and ``LAST_OID``, counted over the volumes that it
names) or a file of bits for a volume (``OIDLIST``), and the numbers that BLAST's statistics are to use.

Source: ``seqdbalias.cpp`` and ``seqdboidlist.cpp`` of the NCBI C++ Toolkit.
"""

from __future__ import annotations

import json
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from millrace.errors import MillraceError
from millrace.model import Fragmented
from millrace.node.fragments.base import Found

#: Where BLAST names an entry in a list of hits with links; entries without ids of their own are numbered.
_LINK = re.compile(rb"<a href=#BL_ORD_ID:(\d+)>|^<b>Query=</b>", re.M)


class Blast:
    """Databases in NCBI's format."""

    def prepare(self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str]) -> Sequence[str]:
        """See `Kind.prepare`. A few lines of alias for each fragment."""
        whole = _Whole(fragmented)
        names = []
        for number, fragment in enumerate(fragmented.fragments):
            volumes, start = whole.touched(fragment.first, fragment.last)
            whole.write(
                folder / f"fragment{number}",
                [whole.bases[volume] for volume in volumes],
                f"FIRST_OID {fragment.first - start + 1}",
                f"LAST_OID {fragment.last - start}",
                *whole.statistics,
            )
            names.append(str(folder / f"fragment{number}"))
        return names

    def candidates(
        self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[Found]
    ) -> str:
        """See `Kind.candidates`. A bit for each entry of the database."""
        whole = _Whole(fragmented)
        limit = int(fragmented.about["limit"])
        masks = [bytearray((entries + 7) // 8) for entries in whole.entries]
        for fragment, block in zip(fragmented.fragments, found, strict=True):
            _, start = whole.touched(fragment.first, fragment.last)
            for entry in _found(block, limit, fragment.last - fragment.first):
                volume, oid = whole.place(start + entry)
                masks[volume][oid >> 3] |= 0x80 >> (oid & 7)
        names = []
        for number, (base, entries, mask) in enumerate(zip(whole.bases, whole.entries, masks, strict=True)):
            (folder / f"part{number}.msk").write_bytes(struct.pack(">I", entries - 1) + mask)
            whole.write(folder / f"part{number}", [base], f"OIDLIST part{number}.msk")
            names.append(f"part{number}")
        whole.write(folder / "candidates", names, *whole.statistics)
        return "candidates"

    def patch(self, fragmented: Fragmented, folder: Path) -> Sequence[tuple[int, str, str]]:
        """See `Kind.patch`. BLAST writes what it would of the whole database."""
        return ()


class _Whole:
    """The database as the adapter has described it in `Fragmented.about`."""

    def __init__(self, fragmented: Fragmented) -> None:
        about = fragmented.about
        self.letter, self.title = about["letter"], about["title"]
        volumes = json.loads(about["volumes"])
        self.bases = [str(base) for base, _ in volumes]
        self.entries = [int(entries) for _, entries in volumes]
        self.starts = [0, *accumulate(self.entries)]
        self.statistics = (f"STATS_NSEQ {about['entries']}", f"STATS_TOTLEN {about['residues']}")

    def touched(self, first: int, last: int) -> tuple[range, int]:
        """The volumes that hold entries ``[first, last)``, and the ordinal of the first entry of the first one."""
        begin, _ = self.place(first)
        end, _ = self.place(last - 1)
        return range(begin, end + 1), self.starts[begin]

    def place(self, entry: int) -> tuple[int, int]:
        """Volume of an entry, and its ordinal there."""
        volume = bisect_right(self.starts, entry) - 1
        if not 0 <= volume < len(self.bases):
            raise MillraceError(f"BLAST has found entry {entry} of {self.starts[-1]}")
        return volume, entry - self.starts[volume]

    def write(self, path: Path, databases: Sequence[str], *lines: str) -> None:
        """Write an alias."""
        names = " ".join(f'"{name}"' for name in databases)
        text = "\n".join((f"TITLE {self.title}", f"DBLIST {names}", *lines, ""))
        path.with_name(f"{path.name}.{self.letter}al").write_text(text, "utf-8", "surrogateescape")


def _found(block: Found, limit: int, entries: int) -> Iterator[int]:
    count = 0
    for match in _LINK.finditer(block):
        if match.group(1) is None:
            count = 0
            continue
        count += 1
        yield int(match.group(1))
        if count == limit:
            yield from range(entries)


#: The kind of database of this file.
KIND = Blast()
