"""Send a pack, which may still grow, and go on where an earlier sending ended. Bytes only: any two streams will do.

The receiver says first what it has: one line of JSON, `Have`. The sender answers with the place from which it goes on, one
line too: that place, if what the receiver has is the begin of the pack, or else 0. Then come pieces: the length, 4 bytes, little
endian, and the bytes; a piece of no bytes is the end.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from millrace import lock
from millrace.errors import MillraceError, RefusedError
from millrace.model import Frozen
from millrace.own import why_not_trusted
from millrace.pack import while_running
from millrace.waiting import until

Line = TypeVar("Line", bound=Frozen)

#: What both ends speak.
PROTOCOL = 1

#: Bytes of a piece.
PIECE = 1 << 16

_LENGTH = struct.Struct("<I")

#: Bytes of a line.
_LINE = 1 << 16

#: How often a pack that grows is looked at, in seconds.
LOOK_SECONDS = 0.2

#: How long more is waited for at a time, in seconds.
WAIT_SECONDS = 10.0


class Have(Frozen, frozen=True):
    """What the receiver says."""

    protocol: int
    #: Bytes that are there, and their SHA-256.
    bytes: int
    sha256: str


class From(Frozen, frozen=True):
    """What the sender answers: where it goes on."""

    bytes: int


class Source:
    """A pack: a file that is whole, or one that a run is writing.

    Raises:
        RefusedError: There is none.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._place = path, while_running.Place(path)
        self.grows = lock.is_held(self._place.lock) and not why_not_trusted(self._place.folder)
        try:
            self._file = (self._place.growing if self.grows else path).open("rb")
        except FileNotFoundError as error:
            raise RefusedError(
                f"{path}: no such file, and no run is packing into it", "check the path of the pack"
            ) from error

    def begins_with(self, size: int, sha256: str) -> bool:
        """Whether these are the digest of the first ``size`` bytes, as many as are there already."""
        self._file.seek(0)
        digest = hashlib.sha256()
        left = size
        while left and (data := self._file.read(min(left, PIECE))):
            digest.update(data)
            left -= len(data)
        return not left and digest.hexdigest() == sha256

    def pieces(self, begin: int, alive: Callable[[], bool]) -> Iterator[bytes]:
        """All from ``begin`` on, as it comes.

        Args:
            alive: Whether anybody takes it.

        Raises:
            MillraceError: The run that writes it has stopped, or nobody takes it any more.
        """
        self._file.seek(begin)
        while True:
            # Looked at before the last read, so that nothing comes between.
            whole = not self.grows or self._is_whole()
            if data := self._file.read(PIECE):
                yield data
            elif whole:
                return
            elif not lock.is_held(self._place.lock) and not self._is_whole():
                raise MillraceError(
                    f"{self._path}: the run that packs into it has stopped",
                    "type its command again, which resumes it, and send again",
                )
            elif not alive():
                raise _gone()
            else:
                until(lambda: self._has_more() or not alive(), WAIT_SECONDS, nap=LOOK_SECONDS)

    def _has_more(self) -> bool:
        return os.fstat(self._file.fileno()).st_size > self._file.tell() or not lock.is_held(self._place.lock)

    def _is_whole(self) -> bool:
        """Whether what was growing has got its name."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False


def send(source: Source, said: IO[bytes], out: IO[bytes], alive: Callable[[], bool]) -> int:
    """Send to whoever has said on ``said`` what it has; returns the bytes that were sent.

    Args:
        alive: Whether the connection still is.

    Raises:
        MillraceError: The other end is gone, or speaks otherwise.
    """
    have = read_line(said, Have)
    begin = have.bytes if source.begins_with(have.bytes, have.sha256) else 0
    write_line(out, From(begin))
    n = 0
    for data in source.pieces(begin, alive):
        put(out, data)
        n += len(data)
    put(out, b"")
    return n


def receive(
    have: tuple[int, str], given: IO[bytes], out: IO[bytes], take: Callable[[int], Callable[[bytes], None]]
) -> None:
    """Take what a sender sends, up to the end.

    Args:
        have: Bytes that are there, and their digest.
        take: Called with the place from which bytes come, which is 0 if what is there is of no use; returns what
            takes them, and an empty piece at the end.

    Raises:
        MillraceError: The connection has ended before.
    """
    write_line(out, Have(PROTOCOL, *have))
    taker = take(read_line(given, From).bytes)
    while data := _get(given):
        taker(data)
    taker(b"")


def put(out: IO[bytes], data: bytes) -> None:
    """Write a piece."""
    try:
        out.write(_LENGTH.pack(len(data)) + data)
        out.flush()
    except (BrokenPipeError, ConnectionError) as error:
        raise _gone() from error


def _get(given: IO[bytes]) -> bytes:
    size = _LENGTH.unpack(_exactly(given, _LENGTH.size))[0]
    if size > PIECE:
        raise RefusedError("the other end sends what is no piece of a pack", "use the same release at both ends")
    return _exactly(given, size)


def _exactly(given: IO[bytes], size: int) -> bytes:
    data = given.read(size)
    if len(data) != size:
        raise _gone()
    return data


def write_line(out: IO[bytes], value: Frozen) -> None:
    """Write a line of JSON."""
    try:
        out.write(msgspec.json.encode(value) + b"\n")
        out.flush()
    except (BrokenPipeError, ConnectionError) as error:
        raise _gone() from error


def read_line(given: IO[bytes], kind: type[Line]) -> Line:
    """Read what `write_line` has written.

    Raises:
        MillraceError: Nothing comes, or something else.
    """
    line = given.readline(_LINE)
    if not line.endswith(b"\n"):
        raise _gone()
    try:
        found = msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(
            "the other end does not speak as millrace does",
            "a shell there that prints something when it starts disturbs; or use the same release at both ends",
        ) from error
    if isinstance(found, Have) and found.protocol != PROTOCOL:
        raise RefusedError("the other end speaks another protocol", "use the same release at both ends")
    return found


def _gone() -> MillraceError:
    return MillraceError("the connection has ended", "nothing is lost: the same command goes on where it was")
