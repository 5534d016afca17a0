"""The contract of every place from which a file is read."""

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
    """The user has no permission to read there."""


class ExpiredError(DeniedError):
    """The user's credentials have expired."""


class MissingError(LocationError):
    """The file does not exist."""


class UnreachableError(LocationError):
    """The server does not answer, or stopped in the middle; a later try may succeed."""


class ChangedError(CorruptError):
    """The file has changed since it was first asked for."""


class About(Frozen, frozen=True):
    """The status of a file at a place."""

    size: int
    #: Differs after each change of the file, as far as the place can tell; empty: the place has no versions.
    version: str
    #: Time of the last change; 0: unknown.
    mtime_ns: int = 0
    #: ``md5:`` or ``sha256:`` and the digest, where the place knows it; else empty.
    checksum: str = ""
    #: Whether a part can be read without the bytes before it.
    has_ranges: bool = True
    #: Bytes of a block, where the place has blocks; else 0.
    block_bytes: int = 0


def nobody(word: str) -> None:
    """Ignore the token of a write, as default of ``begun``."""


class Location(ABC):
    """A file at a place, or a folder; for one thread."""

    def __init__(self, url: str, shown: str) -> None:
        self.url = url
        #: Its name in messages, without credentials.
        self.shown = shown

    @abstractmethod
    def about(self) -> About:
        """Ask for size and version.

        Raises:
            MillraceError: The place cannot be asked, and why.
        """

    @abstractmethod
    def stream(self, offset: int, length: int, about: About) -> Iterator[bytes]:
        """Yield the bytes [offset, offset + length) in pieces, of the version in ``about``.

        Raises:
            ChangedError: The file has another version now.
            MillraceError: It cannot be read, and why.
        """

    def pieces(self, ranges: Iterable[tuple[int, int]], about: About) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of half-open ranges in pieces as ``stream`` does, each with its offset."""
        for first, last in ranges:
            at = first
            for piece in self.stream(first, last - first, about):
                yield at, piece
                at += len(piece)

    @abstractmethod
    def names(self, folders: bool = False) -> list[str]:
        """List the names of the files in this folder, or of its folders, sorted.

        Raises:
            MillraceError: It cannot be listed, and why.
        """

    def check_writable(self) -> None:
        """Check that the file can be written, and leave nothing.

        Raises:
            MillraceError: It cannot, and why.
        """
        raise RefusedError(f"{self.shown}: cannot be written", "name a place of hdfs://, s3:// or sftp://")

    def write(self, pieces: Iterable[bytes], n_bytes: int, begun: Callable[[str], None] = nobody) -> None:
        """Write the file atomically: it appears only when complete, and the old file stays until then.

        Args:
            n_bytes: Total size of all pieces.
            begun: Called before the first piece is sent, with the token that ``discard`` needs if this process dies.

        Raises:
            MillraceError: It cannot be written, and why.
        """
        raise RefusedError(f"{self.shown}: cannot be written", "name a place of hdfs://, s3:// or sftp://")

    def discard(self, begun: str) -> bool:
        """Remove the rest of an interrupted ``write``; return whether there was any.

        Args:
            begun: The token of that ``write``.

        Raises:
            MillraceError: It cannot be removed, and why.
        """
        raise RefusedError(f"{self.shown}: cannot be written", "name a place of hdfs://, s3:// or sftp://")

    def read(self, offset: int, length: int, about: About) -> bytes:
        """Read exactly these bytes."""
        found = b"".join(self.stream(offset, length, about))
        if len(found) != length:
            raise self.short(len(found), length)
        return found

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close connections."""

    def unfinished(self, path: str) -> str:
        """Return the path of an unfinished file; the same in each try, so that the rest of an old one is replaced."""
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
    """Return the first line of an error, without stack traces of servers."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
