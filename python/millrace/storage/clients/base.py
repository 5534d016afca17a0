"""The contract of every place from which a file is read."""

from __future__ import annotations

import hashlib
import importlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

from millrace.core.errors import CorruptError, MillraceError, RefusedError
from millrace.core.tool_use import FrozenValue

#: Bytes of a piece.
PIECE_BYTES = 1 << 20

#: Failures in a row, without a byte between them, after which a server is given up.
MAX_TRIES = 5

#: Pause before the second try; it doubles before each further one.
PAUSE_SECONDS = 0.2


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


class FileStatus(FrozenValue, frozen=True):
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


def ignore_token(word: str) -> None:
    """Ignore the token of a write, as default of ``begun``."""


class FileLocation(ABC):
    """A file at a place, or a folder; for one thread."""

    def __init__(self, url: str, shown: str) -> None:
        self.url = url
        #: Its name in messages, without credentials.
        self.shown = shown

    @abstractmethod
    def query_status(self) -> FileStatus:
        """Ask for size and version.

        Raises:
            MillraceError: The place cannot be asked, and why.
        """

    @abstractmethod
    def stream_bytes(self, offset: int, length: int, about: FileStatus) -> Iterator[bytes]:
        """Yield the bytes [offset, offset + length) in pieces, of the version in ``about``.

        Raises:
            ChangedError: The file has another version now.
            MillraceError: It cannot be read, and why.
        """

    def stream_ranges(self, ranges: Iterable[tuple[int, int]], about: FileStatus) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of half-open ranges in pieces as ``stream_bytes`` does, each with its offset."""
        for first, last in ranges:
            at = first
            for piece in self.stream_bytes(first, last - first, about):
                yield at, piece
                at += len(piece)

    def stream_with_retries(
        self, ranges: Iterable[tuple[int, int]], about: FileStatus, pause: Callable[[float], None] = time.sleep
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of half-open ranges as ``stream_ranges`` does, all of them, and try again where the server fails.

        Raises:
            UnreachableError: It failed ``MAX_TRIES`` times in a row without giving a byte.
            ChangedError: The file has another version now.
            MillraceError: It cannot be read, and why.
        """
        left = deque((first, last) for first, last in ranges if first < last)
        n_bytes, n_read, n_failed = sum(last - first for first, last in left), 0, 0
        while left:
            try:
                for at, piece in self.stream_ranges([*left], about):
                    yield at, piece
                    n_read, n_failed = n_read + len(piece), 0
                    _, last = left.popleft()
                    if (end := at + len(piece)) < last:
                        left.appendleft((end, last))
                if left:
                    raise self.make_short_error(n_read, n_bytes)
            except UnreachableError:
                n_failed += 1
                if n_failed >= MAX_TRIES or not left:
                    raise
                pause(PAUSE_SECONDS * 2**n_failed)

    @abstractmethod
    def list_names(self, folders: bool = False) -> list[str]:
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

    def write_file(self, pieces: Iterable[bytes], n_bytes: int, begun: Callable[[str], None] = ignore_token) -> None:
        """Write the file atomically: it appears only when complete, and the old file stays until then.

        Args:
            n_bytes: Total size of all pieces.
            begun: Called before the first piece is sent, with the token that ``discard_write`` needs if this process dies.

        Raises:
            MillraceError: It cannot be written, and why.
        """
        raise RefusedError(f"{self.shown}: cannot be written", "name a place of hdfs://, s3:// or sftp://")

    def discard_write(self, begun: str) -> bool:
        """Remove the rest of an interrupted ``write_file``; return whether there was any.

        Args:
            begun: The token of that ``write_file``.

        Raises:
            MillraceError: It cannot be removed, and why.
        """
        raise RefusedError(f"{self.shown}: cannot be written", "name a place of hdfs://, s3:// or sftp://")

    def read_bytes(self, offset: int, length: int, about: FileStatus) -> bytes:
        """Read exactly these bytes."""
        found = b"".join(self.stream_bytes(offset, length, about))
        if len(found) != length:
            raise self.make_short_error(len(found), length)
        return found

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close connections."""

    def make_unfinished_path(self, path: str) -> str:
        """Return the path of an unfinished file; the same in each try, so that the rest of an old one is replaced."""
        folder, _, name = path.rpartition("/")
        return f"{folder}/.{name[-100:]}.{hashlib.sha256(self.url.encode()).hexdigest()[:12]}.part"

    def make_missing_folder_error(self) -> MissingError:
        return MissingError(f"{self.shown}: no such folder", "make it, or name another one")

    def make_changed_error(self) -> ChangedError:
        return ChangedError(f"{self.shown}: changed while it was read", "try again when nobody writes it")

    def make_short_error(self, n: int, length: int) -> UnreachableError:
        return UnreachableError(f"{self.shown}: the answer ended after {n:,} of {length:,} bytes", "try again")

    def make_denied_error(self, hint: str) -> DeniedError:
        return DeniedError(f"{self.shown}: permission denied", hint)

    def make_not_a_file_error(self) -> LocationError:
        return LocationError(f"{self.shown}: not a plain file", "name a file")

    def make_missing_error(self) -> MissingError:
        return MissingError(f"{self.shown}: no such file", "see that its name is right, and that it is still there")


def import_client(name: str, extra: str, shown: str) -> ModuleType:
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


def extract_first_line(error: BaseException) -> str:
    """Return the first line of an error, without stack traces of servers."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
