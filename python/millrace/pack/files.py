"""Codecs of files: what is known of a kind of file, whoever has written it, and makes it smaller than zstd alone does.

A codec is found by its name: built in, or by an entry point of the group ``millrace.file_codecs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, runtime_checkable

from millrace import _core
from millrace.errors import RefusedError
from millrace.pack.layout import MOST_BYTES

#: Entry points of codecs of files.
GROUP = "millrace.file_codecs"

#: Bytes of a file by which is told what zstd makes of it.
SAMPLE = 8 << 20

#: The level by which it is told: fast, and no more than twice of what the highest one makes.
QUICK = 3


@runtime_checkable
class FileCodec(Protocol):
    """How one kind of file is packed; whatever comes out is compressed with zstd."""

    def encode(self, path: Path) -> Iterator[bytes]:
        """Pieces, of at most `millrace.pack.layout.MOST_BYTES`, of which `decode` makes the file again, in this order.

        The packer compares: a codec may give what it is not sure of.

        Raises:
            NotPackable: It is no such file, or would not become smaller.
        """
        ...

    def decode(self, piece: bytes) -> bytes:
        """The bytes of the file that a piece stands for. A stranger may have made it.

        Raises:
            CorruptError: It is none that `encode` has made.
        """
        ...


class _AsItIs:
    """Of any file: zstd does all."""

    def encode(self, path: Path) -> Iterator[bytes]:
        """See `FileCodec.encode`."""
        with path.open("rb") as file:
            while data := file.read(MOST_BYTES):
                yield data

    def decode(self, piece: bytes) -> bytes:
        """See `FileCodec.decode`."""
        return piece


AS_IT_IS: FileCodec = _AsItIs()

#: What is in a pack of traces, by name.
_TRACES = {"trace": "CODEC", "beside-traces": "KEPT"}


def zstd_bytes(paths: Sequence[Path]) -> int:
    """About what zstd makes of files, by the begin of the largest, quickly."""
    with max(paths, key=lambda path: path.stat().st_size).open("rb") as file:
        piece = file.read(SAMPLE)
    n_bytes = sum(path.stat().st_size for path in paths)
    return round(len(_core.squeeze(piece, QUICK)) * n_bytes / max(len(piece), 1))


def find(name: str) -> FileCodec | None:
    """The codec of this name; None if there is none. An entry point goes before what is built in.

    Raises:
        RefusedError: It needs what is not installed.
    """
    codec: FileCodec | None = None
    if found := entry_points(group=GROUP, name=name):
        codec = next(iter(found)).load()
    elif name == "zstd":
        codec = AS_IT_IS
    elif name in _TRACES:
        try:
            codec = getattr(import_module("millrace.pack.trace"), _TRACES[name])
        except ImportError as error:
            raise RefusedError(
                "packing of traces needs the Python package numpy, which is not installed",
                "pip install 'millrace[trace]'",
            ) from error
    return codec
