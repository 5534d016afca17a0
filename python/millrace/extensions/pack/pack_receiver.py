"""Receiver of a pack: it regenerates the hits that have arrived while more arrive.

Whenever new hits have arrived, a run regenerates them on ordinary slots. It is one run with ever more queries, so
nothing is computed twice, also after a stop. At the end the pack is unpacked as any other.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from millrace.core.errors import CorruptError, MillraceError, RefusedError
from millrace.core.tool_use import InputUse
from millrace.core.wait_loop import wait_until
from millrace.extensions.pack import (
    difference,
    layout,
    pack_destinations,
    pack_transfer,
    pack_unpacker,
    regeneration_run,
    result_codec,
)
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.layout import PackRecipe, SectionKind, read_complete_sections
from millrace.extensions.pack.pack_unpacker import Confirm, PreparedRegeneration, UnpackOptions
from millrace.host import file_lock
from millrace.host.file_lock import FileLock
from millrace.rundir import ownership


class ReceivingFolder:
    """The files beside a result that is being received; the names are the same at each start."""

    def __init__(self, dest: Path) -> None:
        self._dest = dest
        self.folder = dest.with_name(f".{dest.name}.receiving")
        #: The received bytes of the pack.
        self.pack = self.folder / "pack"
        #: Held by the receiving process.
        self.lock = self.folder / "lock"
        #: Folder of the regeneration.
        self.work = self.folder / "work"

    def acquire_lock(self, seconds: float, say: Callable[[str], None]) -> FileLock:
        """Take the lock of the receiver. If another process holds it, call ``say`` once and wait.

        Args:
            seconds: Longest wait.

        Raises:
            RefusedError: Another process holds the lock for longer.
        """
        held: list[file_lock.LockHeldError] = []

        def try_lock() -> FileLock | None:
            try:
                pack_destinations.claim_folder(self.folder)
                return file_lock.acquire_lock(self.lock)
            except FileNotFoundError:
                return None  # its last holder has just removed the folder
            except file_lock.LockHeldError as error:
                if not held:
                    say(f"{self._describe_holder(error)}; waiting for it")
                held.append(error)
                return None

        if found := wait_until(try_lock, seconds, nap=0.1):
            return found
        raise RefusedError(
            self._describe_holder(held[-1]) if held else f"{self.folder}: cannot be taken",
            "wait for it, or stop it, and send again",
        )

    def _describe_holder(self, error: file_lock.LockHeldError) -> str:
        return f"{self._dest}: another millrace ({error.words}) is receiving this"

    def remove(self) -> None:
        """Remove the folder, with the lock held. A process that waits for the lock may make it again at once."""
        self.discard_received()
        self.lock.unlink(missing_ok=True)
        with suppress(OSError):
            ownership.remove_folder(self.folder)

    def digest_received(self) -> tuple[int, str]:
        """Return the number of bytes received, and their SHA-256."""
        if not self.pack.exists():
            return 0, hashlib.sha256().hexdigest()
        with self.pack.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), digest

    def discard_received(self) -> None:
        """Remove the received bytes and the regeneration, as another pack follows."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.pack.unlink(missing_ok=True)


class GrowingPack:
    """A pack that grows: one thread appends, another reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab")
        self._more = threading.Condition()
        self._size = self._file.tell()
        #: Whether all bytes are there.
        self.whole = False
        self.error: BaseException | None = None

    def append(self, data: bytes) -> None:
        """Append bytes; empty bytes end the pack and fsync it."""
        self._file.write(data)
        self._file.flush()
        if not data:
            os.fsync(self._file.fileno())
            self._file.close()  # a file that is open would stay in a folder on NFS
        with self._more:
            self._size += len(data)
            self.whole = not data
            self._more.notify_all()

    def report_failure(self, error: BaseException) -> None:
        """Record that the pack ends early, and wake the reader."""
        self._file.close()
        with self._more:
            self.error = error
            self._more.notify_all()

    def wait_for_bytes(self, enough: int, seconds: float) -> int:
        """Wait for ``enough`` bytes, the end of the pack or ``seconds``; return the number of bytes there.

        Raises:
            BaseException: The error given to ``report_failure``.
        """
        with self._more:
            self._more.wait_for(lambda: self.whole or self.error is not None or self._size >= enough, seconds)
            if self.error:
                raise self.error
            return self._size


#: Bytes of a pack from which on it is read.
_MIN_START_BYTES = 64

#: Longest wait for more bytes at a time.
WAIT_SECONDS = 2.0


class PackReceiver:
    """A result that is being received.

    Args:
        dests: Files for its outputs, in order.
        confirm: Called with the recipe and the command before it is run.
    """

    def __init__(self, place: ReceivingFolder, dests: Sequence[Path], here: UnpackOptions, confirm: Confirm) -> None:
        self._place, self._dests, self._here, self._confirm = place, dests, here, confirm
        self._begin: PreparedRegeneration | None = None
        self._n_hits = 0
        #: Whether a run is in progress.
        self.busy = False

    def run(self, arriving: GrowingPack) -> str:
        """Regenerate hits as they arrive until the pack is complete, then write the outputs; return why they are right.

        Raises:
            MillraceError: They cannot be written exactly; then none is. The regeneration is kept if the pack may go on.
        """
        size = 0
        while not arriving.whole:
            # Not for each piece: an incomplete pack is read from its begin each time.
            size = arriving.wait_for_bytes(max(_MIN_START_BYTES, size + size // 8 + 1), WAIT_SECONDS)
            if size >= _MIN_START_BYTES and not arriving.whole:
                self._regenerate_received(size)
        made = pack_unpacker.read_recipe(self._place.pack)
        self.check_output_count(made)
        return pack_unpacker.unpack_outputs(
            self._place.pack, made, self._dests, self._here, self._confirm, self._place.work
        )

    def check_output_count(self, made: PackRecipe) -> None:
        """Check that the user has named a file for each output.

        Raises:
            RefusedError: The numbers differ.
        """
        if len(made.outputs) != len(self._dests):
            names = ", ".join(each.name for each in made.outputs)
            raise RefusedError(
                f"the pack has {len(made.outputs)} outputs: {names}", "name a file for each, in this order"
            )

    def _regenerate_received(self, size: int) -> None:
        """Regenerate the hits in the first ``size`` bytes."""
        first = next(read_complete_sections(self._place.pack, size), None)
        if first is None:
            return
        if first.kind is not SectionKind.RECIPE:
            raise CorruptError("a pack says once, and first, what it is")
        made = layout.decode_recipe(first.unpack_bytes())
        self.check_output_count(made)
        if difference.find_file_codec(made.codec):
            return
        found = pack_unpacker.read_hits(read_complete_sections(self._place.pack, size), made)
        if len(found) <= self._n_hits:
            return
        if self._begin is None:
            sections = read_complete_sections(self._place.pack, size)
            self._place.work.mkdir(mode=0o700, exist_ok=True)  # in a private folder
            texts = pack_unpacker.read_texts(read_complete_sections(self._place.pack, size), made)
            self._begin = pack_unpacker.prepare_regeneration(
                sections, made, texts, self._place.work, self._dests, self._here, self._confirm
            )
        self._n_hits = len(found)
        self._regenerate_hits(self._begin, found)

    def _regenerate_hits(self, begin: PreparedRegeneration, found: Sequence[BatchHits]) -> None:
        whole = begin.plan_for_queries(begin.queries)
        part = begin.folder / "queries.part"
        write_first_queries(begin, whole.use.inputs[0], found, part)
        plan = regeneration_run.keep_outputs_in_journal(begin.plan_for_queries(part))
        batches = pack_unpacker.cut_matching_batches(part, plan, found, begin.folder / "batch")
        blocks = begin.codec.format_search_blocks(plan.use, plan.command, found)
        regeneration_run.extend_search_journal(plan, zip(batches, blocks, strict=True))
        self.busy = True
        try:
            begin.run_regeneration(plan, part)
        finally:
            self.busy = False


def write_first_queries(begin: PreparedRegeneration, item: InputUse, found: Sequence[BatchHits], dest: Path) -> None:
    """Write the queries whose hits have arrived to ``dest``."""
    scratch = begin.folder / "batch"
    with dest.open("wb") as file:
        for _ in result_codec.cut_query_batches(begin.queries, item, (each.queries for each in found), scratch):
            with scratch.open("rb") as batch:
                shutil.copyfileobj(batch, file)


def receive_pack(receiving: PackReceiver, place: ReceivingFolder, given: IO[bytes], out: IO[bytes]) -> str:
    """Receive a pack from a sender, and write its outputs; return in words why they are right.

    Args:
        given: Stream from the sender; see ``millrace.extensions.pack.pack_transfer``.
        out: Stream to the sender.

    Raises:
        MillraceError: The outputs cannot be written, or the connection has ended; then the same command resumes.
    """
    line = _ReceiverThread(receiving, place, given, out)
    try:
        why = receiving.run(line.wait_for_start())
    except CorruptError:
        place.remove()
        raise
    except MillraceError as error:
        raise (line.failed or error) from error
    place.remove()
    return why


class _ReceiverThread:
    """A thread that reads from the sender."""

    def __init__(self, receiving: PackReceiver, place: ReceivingFolder, given: IO[bytes], out: IO[bytes]) -> None:
        self._receiving, self._place, self._given, self._out = receiving, place, given, out
        self._ready = threading.Event()
        self._arriving: GrowingPack | None = None
        #: Reason why no more bytes arrive.
        self.failed: MillraceError | None = None
        threading.Thread(target=self._receive_stream, name="receive", daemon=True).start()

    def wait_for_start(self) -> GrowingPack:
        """Wait for the answer of the sender; return the growing pack.

        Raises:
            MillraceError: There is no answer.
        """
        self._ready.wait()
        if self._arriving is None:
            assert self.failed
            raise self.failed
        return self._arriving

    def _receive_stream(self) -> None:
        try:
            pack_transfer.receive_pieces(self._place.digest_received(), self._given, self._out, self._open_growing_pack)
        except (MillraceError, OSError) as error:
            self.failed = error if isinstance(error, MillraceError) else MillraceError(str(error))
            if self._arriving:
                self._arriving.report_failure(self.failed)
            if self._receiving.busy:
                os.kill(os.getpid(), signal.SIGTERM)  # the run ends in order on SIGTERM
        finally:
            self._ready.set()

    def _open_growing_pack(self, begin: int) -> Callable[[bytes], None]:
        if not begin:
            self._place.discard_received()
        self._arriving = GrowingPack(self._place.pack)
        self._ready.set()
        return self._arriving.append
