"""Transfer of a pack, which may still grow, over any two byte streams; and the cost of each way to send a result.

First the receiver writes how many bytes it has, as one line of JSON (``ReceivedState``). The sender answers with its start
offset, also one line (``ResumePosition``): their number, if they are a prefix of the pack, else 0. Pieces follow: the length in
4 bytes, little endian, and the bytes. An empty piece is the end.

The costs are measured on a sample. A transfer that was cut is resumed at its end.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from millrace import _core
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.tool_use import FrozenValue
from millrace.core.wait_loop import wait_until
from millrace.extensions.pack import hits, live_packing
from millrace.extensions.pack.layout import LEVEL, OriginalOutput
from millrace.extensions.pack.regeneration_trial import TransferMethod
from millrace.extensions.pack.result_codec import NotPackableError
from millrace.extensions.pack.result_packer import PackOptions, ResultPacker
from millrace.host import file_lock
from millrace.host.permissions import find_trust_problem
from millrace.planning.run_plan import RunPlan

#: Bytes of a result that are compressed as a sample.
SAMPLE_PIECE_BYTES = 8 << 20

#: Estimated bytes of a pack besides its hits: recipe and differences.
OVERHEAD_BYTES = 1000


def measure_transfer_methods(
    plan: RunPlan, outputs: Sequence[Path], wishes: PackOptions, folder: Path, say: Callable[[str], None]
) -> tuple[list[TransferMethod], str]:
    """Return the ways to send ``outputs`` with their costs, and the reason why they cannot be packed as hits, or "".

    Args:
        folder: Folder in which the sample is regenerated.
    """
    start = time.process_time()  # the start-up time of one of our commands
    size = sum(path.stat().st_size for path in outputs)
    found = [TransferMethod("as it is", size), _measure_compression(outputs, size)]
    try:
        found.append(
            _measure_packing(
                ResultPacker(plan, outputs, list_undigested_outputs(plan, outputs), folder / "pack", wishes, say),
                folder,
                start,
            )
        )
    except NotPackableError as error:
        return found, str(error)
    return found, ""


def list_undigested_outputs(plan: RunPlan, outputs: Sequence[Path]) -> tuple[OriginalOutput, ...]:
    """Describe the outputs without digests, as a sample is compared with none."""
    pairs = zip(plan.use.outputs, outputs, strict=True)
    return tuple(OriginalOutput(name=use.name, bytes=path.stat().st_size, sha256="0" * 64) for use, path in pairs)


def _measure_compression(outputs: Sequence[Path], size: int) -> TransferMethod:
    """Estimate compression by zstd, from the begin of the largest output."""
    with max(outputs, key=lambda path: path.stat().st_size).open("rb") as file:
        piece = file.read(SAMPLE_PIECE_BYTES)
    begun = time.monotonic()
    small = _core.squeeze(piece, LEVEL)
    packed = time.monotonic()
    _core.restore(small, len(piece))
    restored = time.monotonic()
    share = size / max(len(piece), 1)
    return TransferMethod("zstd -19", round(len(small) * share), (packed - begun) * share, (restored - packed) * share)


def _measure_packing(packing: ResultPacker, folder: Path, start: float) -> TransferMethod:
    """Estimate packing as hits: read all hits, and regenerate the first batches.

    Args:
        start: Start-up seconds of one of our commands: ``pack`` and ``send`` here, ``receive`` there.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        begun = time.monotonic()
        made = packing.make_recipe()
        described = time.monotonic()
        packing.make_recipe()  # timed again, as ``pack`` will find the database in the cache
        batches = packing.cut_queries(scratch)
        found = packing.find_hits(scratch, batches)
        read = time.monotonic()
        again = packing.run_trial(scratch / "trial", made, batches, found).cost.estimate_total_seconds()
    size = len(_core.squeeze(hits.encode_hits(found), LEVEL)) + OVERHEAD_BYTES
    # The other end reads its database, too.
    return TransferMethod("packed", size, 2 * start + read - described + again, start + described - begun + again)


Line = TypeVar("Line", bound=FrozenValue)

#: Version of the protocol.
PROTOCOL = 1

#: Bytes of a piece.
PIECE_BYTES = 1 << 16

_LENGTH = struct.Struct("<I")

#: Bytes of a line.
_MAX_LINE_BYTES = 1 << 16

#: Interval at which the size of a growing pack is polled.
POLL_INTERVAL_SECONDS = 0.2

#: Longest wait for more bytes at a time.
WAIT_SECONDS = 10.0


class ReceivedState(FrozenValue, frozen=True):
    """First line of the receiver."""

    protocol: int
    #: Number of bytes received earlier, and their SHA-256.
    bytes: int
    sha256: str


class ResumePosition(FrozenValue, frozen=True):
    """Answer of the sender: the offset of the first byte that it sends."""

    bytes: int


class PackSource:
    """A pack to send: a complete file, or one that a run is writing.

    Raises:
        RefusedError: There is neither.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._place = path, live_packing.LivePackFolder(path)
        self.grows = file_lock.is_held(self._place.lock) and not find_trust_problem(self._place.folder)
        try:
            self._file = (self._place.growing if self.grows else path).open("rb")
        except FileNotFoundError as error:
            raise RefusedError(
                f"{path}: no such file, and no run is packing into it", "check the path of the pack"
            ) from error

    def has_prefix(self, size: int, sha256: str) -> bool:
        """Tell whether the pack has at least ``size`` bytes, and the first ``size`` have this SHA-256."""
        self._file.seek(0)
        digest = hashlib.sha256()
        left = size
        while left and (data := self._file.read(min(left, PIECE_BYTES))):
            digest.update(data)
            left -= len(data)
        return not left and digest.hexdigest() == sha256

    def read_pieces(self, begin: int, alive: Callable[[], bool]) -> Iterator[bytes]:
        """Yield the bytes from ``begin`` on, and wait for more while the pack grows.

        Args:
            alive: Whether the connection is open.

        Raises:
            MillraceError: The run that packs has stopped, or the connection has ended.
        """
        self._file.seek(begin)
        while True:
            # Checked before the last read, so that no byte is appended in between.
            whole = not self.grows or self._is_whole()
            if data := self._file.read(PIECE_BYTES):
                yield data
            elif whole:
                return
            elif not file_lock.is_held(self._place.lock) and not self._is_whole():
                raise MillraceError(
                    f"{self._path}: the run that packs into it has stopped",
                    "type its command again, which resumes it, and send again",
                )
            elif not alive():
                raise _make_connection_error()
            else:
                wait_until(lambda: self._has_more() or not alive(), WAIT_SECONDS, nap=POLL_INTERVAL_SECONDS)

    def _has_more(self) -> bool:
        return os.fstat(self._file.fileno()).st_size > self._file.tell() or not file_lock.is_held(self._place.lock)

    def _is_whole(self) -> bool:
        """Tell whether the growing file has been renamed to its final path."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False


def send_pack(source: PackSource, said: IO[bytes], out: IO[bytes], alive: Callable[[], bool]) -> int:
    """Send a pack to a receiver; return the number of bytes sent.

    Args:
        said: Stream from the receiver; ``out`` goes to it.
        alive: Whether the connection is open.

    Raises:
        MillraceError: The connection has ended, or uses another protocol.
    """
    have = read_line(said, ReceivedState)
    begin = have.bytes if source.has_prefix(have.bytes, have.sha256) else 0
    write_line(out, ResumePosition(begin))
    n = 0
    for data in source.read_pieces(begin, alive):
        write_piece(out, data)
        n += len(data)
    write_piece(out, b"")
    return n


def receive_pieces(
    have: tuple[int, str], given: IO[bytes], out: IO[bytes], take: Callable[[int], Callable[[bytes], None]]
) -> None:
    """Receive pieces from a sender up to the end.

    Args:
        have: Number of bytes received earlier, and their SHA-256.
        given: Stream from the sender; ``out`` goes to it.
        take: Called with the offset of the first byte, 0 if the earlier bytes are useless; returns a function for each
            piece, and an empty one at the end.

    Raises:
        MillraceError: The connection has ended early.
    """
    write_line(out, ReceivedState(PROTOCOL, *have))
    taker = take(read_line(given, ResumePosition).bytes)
    while data := _read_piece(given):
        taker(data)
    taker(b"")


def write_piece(out: IO[bytes], data: bytes) -> None:
    """Write a piece."""
    try:
        out.write(_LENGTH.pack(len(data)) + data)
        out.flush()
    except (BrokenPipeError, ConnectionError) as error:
        raise _make_connection_error() from error


def _read_piece(given: IO[bytes]) -> bytes:
    size = _LENGTH.unpack(_read_exactly(given, _LENGTH.size))[0]
    if size > PIECE_BYTES:
        raise RefusedError("the other end sends what is no piece of a pack", "use the same release at both ends")
    return _read_exactly(given, size)


def _read_exactly(given: IO[bytes], size: int) -> bytes:
    data = given.read(size)
    if len(data) != size:
        raise _make_connection_error()
    return data


def write_line(out: IO[bytes], value: FrozenValue) -> None:
    """Write a line of JSON."""
    try:
        out.write(msgspec.json.encode(value) + b"\n")
        out.flush()
    except (BrokenPipeError, ConnectionError) as error:
        raise _make_connection_error() from error


def read_line(given: IO[bytes], kind: type[Line]) -> Line:
    """Read a line that ``write_line`` has written.

    Raises:
        MillraceError: The connection has ended, or the line is something else.
    """
    line = given.readline(_MAX_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise _make_connection_error()
    try:
        found = msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(
            "the other end does not speak as millrace does",
            "a shell there that prints something when it starts disturbs; or use the same release at both ends",
        ) from error
    if isinstance(found, ReceivedState) and found.protocol != PROTOCOL:
        raise RefusedError("the other end speaks another protocol", "use the same release at both ends")
    return found


def _make_connection_error() -> MillraceError:
    return MillraceError("the connection has ended", "nothing is lost: the same command goes on where it was")
