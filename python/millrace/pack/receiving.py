"""Receiver of a pack: it regenerates the hits that have arrived while more arrive.

Whenever new hits have arrived, a run regenerates them on ordinary slots. It is one run with ever more queries, so
nothing is computed twice, also after a stop. At the end the pack is unpacked as any other.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from millrace.errors import CorruptError, MillraceError, RefusedError
from millrace.model import InputUse
from millrace.pack import files, queries, recipe, regenerate, sending, unpacking
from millrace.pack.arriving import GrowingPack, ReceivingFolder
from millrace.pack.hits import BatchHits
from millrace.pack.layout import SectionKind, read_complete_sections
from millrace.pack.recipe import PackRecipe
from millrace.pack.unpacking import Confirm, PreparedRegeneration, UnpackOptions

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

    def run(self, arriving: GrowingPack) -> None:
        """Regenerate hits as they arrive until the pack is complete, then write the outputs.

        Raises:
            MillraceError: They cannot be written exactly; then none is. The regeneration is kept if the pack may go on.
        """
        size = 0
        while not arriving.whole:
            # Not for each piece: an incomplete pack is read from its begin each time.
            size = arriving.wait_for_bytes(max(_MIN_START_BYTES, size + size // 8 + 1), WAIT_SECONDS)
            if size >= _MIN_START_BYTES and not arriving.whole:
                self._regenerate_received(size)
        made = unpacking.read_recipe(self._place.pack)
        self.check_output_count(made)
        unpacking.unpack_outputs(self._place.pack, made, self._dests, self._here, self._confirm, self._place.work)

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
        made = recipe.decode_recipe(first.unpack_bytes())
        self.check_output_count(made)
        if files.find_file_codec(made.codec):
            return
        found = unpacking.read_hits(read_complete_sections(self._place.pack, size), made)
        if len(found) <= self._n_hits:
            return
        if self._begin is None:
            sections = read_complete_sections(self._place.pack, size)
            self._place.work.mkdir(mode=0o700, exist_ok=True)  # in a private folder
            self._begin = unpacking.prepare_regeneration(
                sections, made, self._place.work, self._dests, self._here, self._confirm
            )
        self._n_hits = len(found)
        self._regenerate_hits(self._begin, found)

    def _regenerate_hits(self, begin: PreparedRegeneration, found: Sequence[BatchHits]) -> None:
        whole = begin.plan_for_queries(begin.queries)
        part = begin.folder / "queries.part"
        write_first_queries(begin, whole.use.inputs[0], found, part)
        plan = regenerate.keep_outputs_in_journal(begin.plan_for_queries(part))
        batches = unpacking.cut_matching_batches(part, plan, found, begin.folder / "batch")
        blocks = begin.codec.format_search_blocks(plan.use, plan.command, found)
        regenerate.extend_search_journal(plan, zip(batches, blocks, strict=True))
        self.busy = True
        try:
            regenerate.run_regeneration(plan)
        finally:
            self.busy = False


def write_first_queries(begin: PreparedRegeneration, item: InputUse, found: Sequence[BatchHits], dest: Path) -> None:
    """Write the queries whose hits have arrived to ``dest``."""
    scratch = begin.folder / "batch"
    with dest.open("wb") as file:
        for _ in queries.cut_query_batches(begin.queries, item, (each.queries for each in found), scratch):
            with scratch.open("rb") as batch:
                shutil.copyfileobj(batch, file)


def receive_pack(receiving: PackReceiver, place: ReceivingFolder, given: IO[bytes], out: IO[bytes]) -> None:
    """Receive a pack from a sender, and write its outputs.

    Args:
        given: Stream from the sender; see ``millrace.pack.sending``.
        out: Stream to the sender.

    Raises:
        MillraceError: The outputs cannot be written, or the connection has ended; then the same command resumes.
    """
    line = _ReceiverThread(receiving, place, given, out)
    try:
        receiving.run(line.wait_for_start())
    except CorruptError:
        place.remove()
        raise
    except MillraceError as error:
        raise (line.failed or error) from error
    place.remove()


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
            sending.receive_pieces(self._place.digest_received(), self._given, self._out, self._open_growing_pack)
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
