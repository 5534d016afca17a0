"""What every place owes to whoever reads a file from it."""

from __future__ import annotations

import hashlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

from millrace.errors import CorruptError, MillraceError, RefusedError
from millrace.model import Frozen

#: Bytes of a piece.
PIECE_BYTES = 1 << 20


class LocationError(MillraceError):
    """A place cannot be read."""


class DeniedError(LocationError):
    """We may not read there."""


class ExpiredError(DeniedError):
    """We might once."""


class MissingError(LocationError):
    """There is no such file."""


class UnreachableError(LocationError):
    """The server does not answer, or no more: later it may."""


class ChangedError(CorruptError):
    """The file is not the one that it was."""


class About(Frozen, frozen=True):
    """What a place says of a file."""

    size: int
    #: Another one as soon as the file is another one, as far as the place can tell; empty: it cannot.
    version: str
    #: Time of the last change; 0: not told.
    mtime_ns: int = 0
    #: ``md5:`` or ``sha256:`` and the digest, where the place knows it; else empty.
    checksum: str = ""
    #: Whether a part can be read without what is before it.
    has_ranges: bool = True
    #: Bytes of a block, where the place has blocks; else 0.
    block_bytes: int = 0


def nobody(word: str) -> None:
    """Keep nothing of it."""


class Location(ABC):
    """A file at a place, or a folder; for one thread."""

    def __init__(self, url: str, shown: str) -> None:
        self.url = url
        #: How it is named in all that is said.
        self.shown = shown

    @abstractmethod
    def about(self) -> About:
        """Ask for size and version.

        Raises:
            MillraceError: It cannot be told, and why.
        """

    @abstractmethod
    def stream(self, offset: int, length: int, about: About) -> Iterator[bytes]:
        """The bytes [offset, offset + length) in pieces, of the version that ``about`` tells of.

        Raises:
            ChangedError: It is another one now.
            MillraceError: It cannot be read, and why.
        """

    def pieces(self, ranges: Iterable[tuple[int, int]], about: About) -> Iterator[tuple[int, bytes]]:
        """The bytes of half-open ranges as `stream` gives them, each piece with its offset."""
        for first, last in ranges:
            at = first
            for piece in self.stream(first, last - first, about):
                yield at, piece
                at += len(piece)

    @abstractmethod
    def names(self, folders: bool = False) -> list[str]:
        """The names of the files in this folder, or of its folders, sorted.

        Raises:
            MillraceError: It cannot be listed, and why.
        """

    def check_writable(self) -> None:
        """See that the file can be written, and leave nothing.

        Raises:
            MillraceError: It cannot, and why.
        """
        raise RefusedError(f"{self.shown}: cannot be written", "name a place of hdfs://, s3:// or sftp://")

    def write(self, pieces: Iterable[bytes], n_bytes: int, begun: Callable[[str], None] = nobody) -> None:
        """Write the file anew. Nothing of it is to be seen before all of it is there, and what was there stays until then.

        Args:
            n_bytes: Of all pieces.
            begun: Told, before any of them is sent, what `discard` has to know if this process dies.

        Raises:
            MillraceError: It cannot be written, and why.
        """
        raise RefusedError(f"{self.shown}: cannot be written", "name a place of hdfs://, s3:// or sftp://")

    def discard(self, begun: str) -> bool:
        """Remove what a `write` that was cut off has left; whether there was anything.

        Args:
            begun: What that `write` told.

        Raises:
            MillraceError: It cannot be removed, and why.
        """
        raise RefusedError(f"{self.shown}: cannot be written", "name a place of hdfs://, s3:// or sftp://")

    def read(self, offset: int, length: int, about: About) -> bytes:
        """These bytes, all of them."""
        found = b"".join(self.stream(offset, length, about))
        if len(found) != length:
            raise self.short(len(found), length)
        return found

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Let go of connections."""

    def unfinished(self, path: str) -> str:
        """Where a file is written until it is whole; the same the next time, so that what is cut off does not stay."""
        folder, _, name = path.rpartition("/")
        return f"{folder}/.{name[-100:]}.{hashlib.sha256(self.url.encode()).hexdigest()[:12]}.part"

    def missing_folder(self) -> MissingError:
        return MissingError(f"{self.shown}: no such folder", "make it, or name another one")

    def changed(self) -> ChangedError:
        return ChangedError(f"{self.shown}: changed while it was read", "try again when nobody writes it")

    def short(self, n: int, length: int) -> UnreachableError:
        return UnreachableError(f"{self.shown}: the answer ended after {n:,} of {length:,} bytes", "try again")

    def denied(self, hint: str) -> DeniedError:
        return DeniedError(f"{self.shown}: permission denied", hint)

    def not_a_file(self) -> LocationError:
        return LocationError(f"{self.shown}: not a plain file", "name a file")

    def missing(self) -> MissingError:
        return MissingError(f"{self.shown}: no such file", "see that its name is right, and that it is still there")


def client(name: str, extra: str, shown: str) -> ModuleType:
    """Import the library that reads a kind of place.

    Raises:
        RefusedError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RefusedError(
            f"{shown}: reading it needs the Python package {name.partition('.')[0]}, which is not installed",
            f"pip install 'millrace[{extra}]'",
        ) from error


def first_line(error: BaseException) -> str:
    """What an error says, without stack traces of servers."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
