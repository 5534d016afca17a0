"""How an output differs from what is regenerated, as sections of a pack; and the output again from both.

What is regenerated is first stripped of what may be otherwise each time (dates, times). Then stretches that are the
same are only told; what lies between is compressed with what was regenerated in its place as reference.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from millrace.errors import CorruptError
from millrace.pack.layout import MOST_BYTES, Kind, Section, Writer

#: Output, length of a stretch that is the same as what is regenerated from here on; then where the reference of the
#: rest begins, and its length.
_NOTE = struct.Struct("<BxxxQQQQ")

#: Bytes of an output that are compressed at a time, and that the reference has more at both of its ends.
PIECE = 1 << 20

#: Bytes at a time of what is stripped or compared.
READ = 8 << 20

#: Bytes by which a place is found again.
ANCHOR = 64


def strip(path: Path, volatile: Sequence[str], dest: Path) -> None:
    """Write to ``dest`` what is in ``path`` without what matches ``volatile`` (as `millrace.model.OutputUse.volatile`)."""
    patterns = [re.compile(pattern.encode(), re.MULTILINE) for pattern in volatile]
    with path.open("rb") as source, dest.open("wb") as out:
        for lines in _lines(source):
            for pattern in patterns:
                lines = pattern.sub(b"", lines)
            out.write(lines)


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Whole lines, many at a time."""
    rest = b""
    while block := source.read(READ):
        lines, end, rest_of_block = (rest + block).rpartition(b"\n")
        rest = rest_of_block
        if end:
            yield lines + end
    if rest:
        yield rest


def write(writer: Writer, output: int, original: Path, regenerated: Path) -> None:
    """Append how ``original`` differs from ``regenerated``, which is stripped."""
    with ExitStack() as stack:
        ours, theirs = (_mapped(path, stack) for path in (original, regenerated))
        at, there = 0, 0
        while at < len(ours):
            same = _same(ours, at, theirs, there)
            at, there, known = at + same, there + same, there
            piece = ours[at : at + PIECE]
            begin, end = max(there - PIECE, 0), min(there + len(piece) + PIECE, len(theirs))
            note = _NOTE.pack(output, known, same, begin, end - begin if piece else 0)
            writer.add(Kind.DIFFERENCE, piece, theirs[begin:end] if piece else b"", note)
            at, there = at + len(piece), _place(piece, theirs, there, begin, end)


def _place(piece: bytes, theirs: bytes | mmap.mmap, there: int, begin: int, end: int) -> int:
    """Where in ``theirs`` goes on what follows ``piece``."""
    found = theirs.rfind(piece[-ANCHOR:], begin, end) if len(piece) >= ANCHOR else -1
    return found + ANCHOR if found >= 0 else min(there + len(piece), len(theirs))


def _same(ours: bytes | mmap.mmap, at: int, theirs: bytes | mmap.mmap, there: int) -> int:
    """How many bytes are the same from here on."""
    start = at
    size = READ
    while size:
        a, b = ours[at : at + size], theirs[there : there + size]
        if a == b and a:
            at, there = at + len(a), there + len(a)
        elif size == 1 or not a or not b:
            break
        else:
            size = min(size, max(len(a), len(b))) // 2
    return at - start


def _mapped(path: Path, stack: ExitStack) -> bytes | mmap.mmap:
    if not path.stat().st_size:
        return b""
    file = stack.enter_context(path.open("rb"))
    return stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def apply(sections: Iterable[Section], regenerated: Sequence[Path], dests: Sequence[Path]) -> list[tuple[int, str]]:
    """Write the outputs again; (bytes, SHA-256) of each.

    Args:
        sections: As `write` has appended them, for all outputs.
        regenerated: Stripped, one an output.

    Raises:
        CorruptError: They do not fit to each other.
    """
    with ExitStack() as stack:
        theirs = [_mapped(path, stack) for path in regenerated]
        outs = [stack.enter_context(path.open("wb")) for path in dests]
        digests = [hashlib.sha256() for _ in dests]
        sizes = [0 for _ in dests]
        for section in sections:
            if section.kind is Kind.PLAIN:
                _plain(section, outs, digests, sizes)
                continue
            if len(section.note) != _NOTE.size or section.note[0] >= min(len(dests), len(theirs)):
                raise CorruptError("the pack has a difference of an output that it does not name")
            output, known, same, begin, length = _NOTE.unpack(section.note)
            ours = theirs[output]
            if known + same > len(ours) or begin + length > len(ours):
                raise CorruptError("what is regenerated here is shorter than where the result was packed")
            for at in range(known, known + same, READ):
                sizes[output] += _put(ours[at : min(at + READ, known + same)], outs[output], digests[output])
            sizes[output] += _put(section.data(ours[begin : begin + length]), outs[output], digests[output])
        return [(size, digest.hexdigest()) for size, digest in zip(sizes, digests, strict=True)]


def _plain(section: Section, outs: Sequence[BinaryIO], digests: Sequence[hashlib._Hash], sizes: list[int]) -> None:
    if len(section.note) != 1 or section.note[0] >= len(outs):
        raise CorruptError("the pack has a piece of an output that it does not name")
    output = section.note[0]
    sizes[output] += _put(section.data(), outs[output], digests[output])


def _put(data: bytes, out: BinaryIO, digest: hashlib._Hash) -> int:
    out.write(data)
    digest.update(data)
    return len(data)


def write_plain(writer: Writer, output: int, original: Path) -> None:
    """Append an output as it is, compressed."""
    with original.open("rb") as file:
        while data := file.read(MOST_BYTES):
            writer.add(Kind.PLAIN, data, note=bytes([output]))
