"""What the first bytes of an input tell: that it cannot be cut, and compression that a tool would see."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from millrace.errors import RefusedError
from millrace.formats import COMPRESSED
from millrace.model import Command, InputUse, ToolUse
from millrace.tools.base import grows

#: Bytes that are looked at.
HEAD_BYTES = 64 << 10

#: How compressed files begin.
MAGIC = (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0")


#: Inputs that are files, and their first bytes.
Heads = Sequence[tuple[InputUse, bytes]]


def read(use: ToolUse, command: Command) -> Iterator[tuple[InputUse, bytes]]:
    """First bytes of the inputs that are files; nothing is taken from a pipe."""
    for item in use.inputs:
        path = command.cwd / item.path
        if item.format == "files" or item.path == "-" or grows(item.path, command):
            continue
        try:
            if path.is_file():
                with path.open("rb") as file:
                    yield item, file.read(HEAD_BYTES)
        except OSError:
            continue  # reading on will say what is wrong


def refuse_old_mac(heads: Heads) -> None:
    """Refuse sequences whose lines end with a carriage return alone: some tools read many records there, some one.

    What is compressed tells nothing of lines, though any byte may be in it.

    Raises:
        RefusedError: There is such an input.
    """
    for item, head in heads:
        if item.format not in ("fasta", "fastq") or head.startswith(MAGIC):
            continue
        if b"\r" in head[:-1] and b"\n" not in head:
            raise RefusedError(
                f"{item.path}:1: lines end with a carriage return alone, as on old Macs",
                f"convert it first: tr '\\r' '\\n' < {item.path} > NEW",
            )


def refuse_bcf(heads: Heads) -> None:
    """Refuse variants in BCF, packed or not, which has no lines.

    Raises:
        RefusedError: There is such an input.
    """
    for item, head in heads:
        if item.format == "vcf" and _unzipped(head).startswith(b"BCF"):
            raise RefusedError(
                f"{item.path}: is BCF, which is not cut into variants",
                f"let bcftools write VCF: bcftools view {item.path} | millrace run --format vcf -- ...",
            )


def _unzipped(head: bytes) -> bytes:
    """The first bytes of what may be packed by gzip."""
    if not head.startswith(MAGIC[0]):
        return head
    with suppress(zlib.error):
        return zlib.decompressobj(wbits=31).decompress(head, 16)
    return b""


def unpacked(use: ToolUse, heads: Heads) -> tuple[str, ...]:
    """What to say of compressed inputs of a tool that is not known: run by itself, it would get other bytes."""
    tool = os.path.basename(str(use.argv[0]))
    return tuple(
        f"{item.path} is compressed: {tool} gets its parts unpacked"
        + (
            ""
            if item.stdin or not item.path.endswith(COMPRESSED)
            else f", named {Path(item.path).with_suffix('').name}"
        )
        for item, head in heads
        if use.adapter == "generic" and head.startswith(MAGIC)
    )
