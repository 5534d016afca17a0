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
from millrace.pack.arriving import Arriving, Place
from millrace.pack.hits import Hits
from millrace.pack.layout import Kind, sections_so_far
from millrace.pack.recipe import Recipe
from millrace.pack.unpacking import Begin, Confirm, Here

#: Bytes of a pack from which on it is read.
_BEGIN = 64

#: Longest wait for more bytes at a time.
WAIT_SECONDS = 2.0


class Receiving:
    """A result that is being received.

    Args:
        dests: Files for its outputs, in order.
        confirm: Called with the recipe and the command before it is run.
    """

    def __init__(self, place: Place, dests: Sequence[Path], here: Here, confirm: Confirm) -> None:
        self._place, self._dests, self._here, self._confirm = place, dests, here, confirm
        self._begin: Begin | None = None
        self._n_hits = 0
        #: Whether a run is in progress.
        self.busy = False

    def run(self, arriving: Arriving) -> None:
        """Regenerate hits as they arrive until the pack is complete, then write the outputs.

        Raises:
            MillraceError: They cannot be written exactly; then none is. The regeneration is kept if the pack may go on.
        """
        size = 0
        while not arriving.whole:
            # Not for each piece: an incomplete pack is read from its begin each time.
            size = arriving.wait(max(_BEGIN, size + size // 8 + 1), WAIT_SECONDS)
            if size >= _BEGIN and not arriving.whole:
                self._look(size)
        made = unpacking.look(self._place.pack)
        self.check_outputs(made)
        unpacking.unpack(self._place.pack, made, self._dests, self._here, self._confirm, self._place.work)

    def check_outputs(self, made: Recipe) -> None:
        """Check that the user has named a file for each output.

        Raises:
            RefusedError: The numbers differ.
        """
        if len(made.outputs) != len(self._dests):
            names = ", ".join(each.name for each in made.outputs)
            raise RefusedError(
                f"the pack has {len(made.outputs)} outputs: {names}", "name a file for each, in this order"
            )

    def _look(self, size: int) -> None:
        """Regenerate the hits in the first ``size`` bytes."""
        first = next(sections_so_far(self._place.pack, size), None)
        if first is None:
            return
        if first.kind is not Kind.RECIPE:
            raise CorruptError("a pack says once, and first, what it is")
        made = recipe.decode(first.data())
        self.check_outputs(made)
        if files.find(made.codec):
            return
        found = unpacking.read_hits(sections_so_far(self._place.pack, size), made)
        if len(found) <= self._n_hits:
            return
        if self._begin is None:
            sections = sections_so_far(self._place.pack, size)
            self._place.work.mkdir(mode=0o700, exist_ok=True)  # in a private folder
            self._begin = unpacking.begin_here(sections, made, self._place.work, self._dests, self._here, self._confirm)
        self._n_hits = len(found)
        self._regenerate(self._begin, found)

    def _regenerate(self, begin: Begin, found: Sequence[Hits]) -> None:
        whole = begin.plan(begin.queries)
        part = begin.folder / "queries.part"
        begin_of_queries(begin, whole.use.inputs[0], found, part)
        plan = regenerate.without_outputs(begin.plan(part))
        batches = unpacking.cut(part, plan, found, begin.folder / "batch")
        blocks = begin.codec.found(plan.use, plan.command, found)
        regenerate.put_more(plan, zip(batches, blocks, strict=True))
        self.busy = True
        try:
            regenerate.run(plan)
        finally:
            self.busy = False


def begin_of_queries(begin: Begin, item: InputUse, found: Sequence[Hits], dest: Path) -> None:
    """Write the queries whose hits have arrived to ``dest``."""
    scratch = begin.folder / "batch"
    with dest.open("wb") as file:
        for _ in queries.batches(begin.queries, item, (each.queries for each in found), scratch):
            with scratch.open("rb") as batch:
                shutil.copyfileobj(batch, file)


def receive(receiving: Receiving, place: Place, given: IO[bytes], out: IO[bytes]) -> None:
    """Receive a pack from a sender, and write its outputs.

    Args:
        given: Stream from the sender; see ``millrace.pack.sending``.
        out: Stream to the sender.

    Raises:
        MillraceError: The outputs cannot be written, or the connection has ended; then the same command resumes.
    """
    line = _Line(receiving, place, given, out)
    try:
        receiving.run(line.begun())
    except CorruptError:
        place.remove()
        raise
    except MillraceError as error:
        raise (line.failed or error) from error
    place.remove()


class _Line:
    """A thread that reads from the sender."""

    def __init__(self, receiving: Receiving, place: Place, given: IO[bytes], out: IO[bytes]) -> None:
        self._receiving, self._place, self._given, self._out = receiving, place, given, out
        self._ready = threading.Event()
        self._arriving: Arriving | None = None
        #: Reason why no more bytes arrive.
        self.failed: MillraceError | None = None
        threading.Thread(target=self._read, name="receive", daemon=True).start()

    def begun(self) -> Arriving:
        """Wait for the answer of the sender; return the growing pack.

        Raises:
            MillraceError: There is no answer.
        """
        self._ready.wait()
        if self._arriving is None:
            assert self.failed
            raise self.failed
        return self._arriving

    def _read(self) -> None:
        try:
            sending.receive(self._place.have(), self._given, self._out, self._take)
        except (MillraceError, OSError) as error:
            self.failed = error if isinstance(error, MillraceError) else MillraceError(str(error))
            if self._arriving:
                self._arriving.fail(self.failed)
            if self._receiving.busy:
                os.kill(os.getpid(), signal.SIGTERM)  # the run ends in order on SIGTERM
        finally:
            self._ready.set()

    def _take(self, begin: int) -> Callable[[bytes], None]:
        if not begin:
            self._place.start_over()
        self._arriving = Arriving(self._place.pack)
        self._ready.set()
        return self._arriving.append
