"""Codecs of files: each makes one kind of file smaller than zstd alone does, whatever program has written it.

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
from millrace.pack.layout import MAX_SECTION_BYTES

#: Group of the entry points of codecs of files.
GROUP = "millrace.file_codecs"

#: Bytes of a file from which its size under zstd is estimated.
SAMPLE_BYTES = 8 << 20

#: Level of that compression: fast, and at most twice the size that the highest level gives.
QUICK_LEVEL = 3


@runtime_checkable
class FileCodec(Protocol):
    """The interface of a codec for one kind of file; its pieces are then compressed with zstd."""

    def encode(self, path: Path) -> Iterator[bytes]:
        """Yield the pieces, of at most ``MOST_BYTES``, from which ``decode`` restores the file, in order.

        The packer compares, so a codec may be unsure of a piece.

        Raises:
            NotPackable: The file is of another kind, or would not become smaller.
        """
        ...

    def decode(self, piece: bytes) -> bytes:
        """Return the bytes of the file that a piece encodes. The piece is untrusted input.

        Raises:
            CorruptError: The piece was not made by ``encode``.
        """
        ...


class _PlainFileCodec:
    """The codec of any file: it changes nothing."""

    def encode(self, path: Path) -> Iterator[bytes]:
        """Implement ``FileCodec.encode``."""
        with path.open("rb") as file:
            while data := file.read(MAX_SECTION_BYTES):
                yield data

    def decode(self, piece: bytes) -> bytes:
        """Implement ``FileCodec.decode``."""
        return piece


AS_IT_IS: FileCodec = _PlainFileCodec()

#: Attributes of ``millrace.pack.trace`` that hold the codecs in a pack of traces, by the name of the codec.
_TRACES = {"trace": "CODEC", "beside-traces": "KEPT"}


def estimate_zstd_bytes(paths: Sequence[Path]) -> int:
    """Estimate the size of files under zstd, quickly, from the begin of the largest."""
    with max(paths, key=lambda path: path.stat().st_size).open("rb") as file:
        piece = file.read(SAMPLE_BYTES)
    n_bytes = sum(path.stat().st_size for path in paths)
    return round(len(_core.squeeze(piece, QUICK_LEVEL)) * n_bytes / max(len(piece), 1))


def find_file_codec(name: str) -> FileCodec | None:
    """Return the codec of this name; None if there is none. An entry point goes before a built-in codec.

    Raises:
        RefusedError: The codec needs a package that is not installed.
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
