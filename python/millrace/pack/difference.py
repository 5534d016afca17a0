"""How an output differs from what is regenerated, as sections of a pack; and the output again from both.

What is regenerated is first stripped of what may be otherwise each time (dates, times). Then stretches that are the
same are only told; what lies between is compressed with what was regenerated in its place as reference.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Protocol

from millrace.errors import CorruptError
from millrace.pack.files import AS_IT_IS, FileCodec
from millrace.pack.layout import Kind, Section


class Appended(Protocol):
    """Where sections go: `millrace.pack.layout.Writer`, or one that several threads have."""

    def add(self, kind: Kind, data: bytes, reference: bytes = b"", note: bytes = b"") -> int:
        """See `Writer.add`."""
        ...


#: Output, length of a stretch that is the same as what is regenerated from here on; then where the reference of the
#: rest begins, and its length.
_NOTE = struct.Struct("<BxxxQQQQ")

#: What is compared.
Bytes = bytes | bytearray | mmap.mmap

#: Bytes of an output that are compressed at a time, and that the reference has more at both of its ends.
PIECE = 1 << 20

#: Bytes of a reference at most: a piece, and that much at both of its ends.
MAX_REFERENCE_BYTES = 3 * PIECE

#: Bytes at a time of what is stripped or compared.
READ = 8 << 20

#: Bytes by which a place is found again.
ANCHOR = 64


def strip(path: Path, volatile: Sequence[str], dest: Path) -> None:
    """Write to ``dest`` what is in ``path`` without what matches ``volatile`` (as `millrace.model.OutputUse.volatile`)."""
    patterns = compiled(volatile)
    with path.open("rb") as source, dest.open("wb") as out:
        for lines in _lines(source):
            out.write(stripped(lines, patterns))


def compiled(volatile: Sequence[str]) -> list[re.Pattern[bytes]]:
    """Patterns for `stripped`."""
    return [re.compile(pattern.encode(), re.MULTILINE) for pattern in volatile]


def stripped(lines: bytes, patterns: Sequence[re.Pattern[bytes]]) -> bytes:
    """Whole lines without what may be otherwise each time."""
    for pattern in patterns:
        lines = pattern.sub(b"", lines)
    return lines


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


def write(writer: Appended, output: int, original: Path, regenerated: Path) -> None:
    """Append how ``original`` differs from ``regenerated``, which is stripped."""
    with ExitStack() as stack:
        ours, theirs = (mapped(path, stack) for path in (original, regenerated))
        at, there = 0, 0
        while at < len(ours):
            same = same_bytes(ours, at, theirs, there)
            at, there, known = at + same, there + same, there
            piece = ours[at : at + PIECE]
            begin, end = max(there - PIECE, 0), min(there + len(piece) + PIECE, len(theirs))
            told = note(output, known, same, begin, end - begin if piece else 0)
            writer.add(Kind.DIFFERENCE, piece, theirs[begin:end] if piece else b"", told)
            at, there = at + len(piece), place(piece, theirs, there, begin, end)


def note(output: int, known: int, same: int, begin: int, length: int) -> bytes:
    """The note of a difference: ``same`` bytes from ``known`` of what is regenerated, and where the reference is."""
    return _NOTE.pack(output, known, same, begin, length)


def place(piece: bytes, theirs: Bytes, there: int, begin: int, end: int) -> int:
    """Where in ``theirs`` goes on what follows ``piece``."""
    found = theirs.rfind(piece[-ANCHOR:], begin, end) if len(piece) >= ANCHOR else -1
    return found + ANCHOR if found >= 0 else min(there + len(piece), len(theirs))


def same_bytes(ours: Bytes, at: int, theirs: Bytes, there: int) -> int:
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


def mapped(path: Path, stack: ExitStack) -> bytes | mmap.mmap:
    """A file as bytes, until ``stack`` ends."""
    if not path.stat().st_size:
        return b""
    file = stack.enter_context(path.open("rb"))
    return stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def apply(
    sections: Iterable[Section], regenerated: Sequence[Path], dests: Sequence[Path], most: Sequence[int], codec: FileCodec = AS_IT_IS,
) -> list[tuple[int, str]]:  # fmt: skip
    """Write the outputs again; (bytes, SHA-256) of each.

    Args:
        sections: As `write` or `write_plain` has appended them, for all outputs.
        regenerated: Stripped, one an output.
        most: Bytes of each output, more than which is never written, whatever a stranger's pack holds.
        codec: Of those that `write_plain` has appended.

    Raises:
        CorruptError: They do not fit to each other.
    """
    with ExitStack() as stack:
        theirs = [mapped(path, stack) for path in regenerated]
        outs = [_Output(stack.enter_context(_opened(path)), size) for path, size in zip(dests, most, strict=True)]
        for section in sections:
            if section.kind is Kind.PLAIN:
                output = _output_of_piece(section, len(outs))
                outs[output].put(codec.decode(section.data()))
                continue
            if len(section.note) != _NOTE.size or section.note[0] >= min(len(dests), len(theirs)):
                raise CorruptError("the pack has a difference of an output that it does not name")
            output, known, same, begin, length = _NOTE.unpack(section.note)
            ours = theirs[output]
            if length > MAX_REFERENCE_BYTES:
                raise CorruptError("the pack has a difference that refers to more than any does")
            if known + same > len(ours) or begin + length > len(ours):
                raise CorruptError("what is regenerated here is shorter than where the result was packed")
            for at in range(known, known + same, READ):
                outs[output].put(ours[at : min(at + READ, known + same)])
            outs[output].put(section.data(ours[begin : begin + length]))
        return [each.finish() for each in outs]


def _opened(path: Path) -> BinaryIO:
    """A new file, through no link that somebody has put there; nowhere is opened as it is."""
    return path.open("wb" if path == Path(os.devnull) else "xb")


def _output_of_piece(section: Section, n_outputs: int) -> int:
    if len(section.note) != 1 or section.note[0] >= n_outputs:
        raise CorruptError("the pack has a piece of an output that it does not name")
    return section.note[0]


class _Output:
    """An output on its way to a file."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file, self._most, self._size, self._digest = file, most, 0, hashlib.sha256()

    def put(self, data: bytes) -> None:
        """Write what comes next.

        Raises:
            CorruptError: It is more than the output has.
        """
        self._size += len(data)
        if self._size > self._most:
            raise CorruptError("the pack holds more of an output than it says")
        self._file.write(data)
        self._digest.update(data)

    def finish(self) -> tuple[int, str]:
        """Bytes and SHA-256 of what was written."""
        return self._size, self._digest.hexdigest()


def write_plain(writer: Appended, output: int, original: Path, codec: FileCodec = AS_IT_IS) -> None:
    """Append an output as ``codec`` has it, compressed.

    Raises:
        NotPackable: The codec does not take it.
    """
    for piece in codec.encode(original):
        writer.add(Kind.PLAIN, piece, note=bytes([output]))
