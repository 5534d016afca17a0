"""A follower of the journals of a run: it packs the hits of finished batches from the searches of the fragments."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from millrace import _core
from millrace.blocks import views
from millrace.errors import CorruptError
from millrace.output.order import effective_tasks
from millrace.pack import hits
from millrace.pack.codec import Codec, NotPackable
from millrace.pack.difference import Appended
from millrace.pack.hits import Hits
from millrace.pack.layout import Kind
from millrace.plan.plan import Plan
from millrace.rundir import RunDir
from millrace.task_numbers import kind_of
from millrace.tasks import Search

#: The journals are read at intervals of at least so many seconds, and of this share of the elapsed time: a long run is
#: read about as often as a short one, so its hits make few sections.
LOOK_SECONDS, LOOK_SHARE = 0.5, 0.02

#: Batches in one section.
BATCHES = 4096


class Follower:
    """A thread that writes the hits of finished batches to a pack, in input order, while the run goes on.

    Args:
        most: Queries up to which neighbours are merged into one batch.
    """

    def __init__(self, plan: Plan, codec: Codec, writer: Appended, most: int) -> None:
        assert plan.use.fragmented  # what has no candidates is not followed
        self._rundir, self._writer, self._most = RunDir(plan.run_dir), writer, most
        self._fragments = range(1, plan.use.n_fragments + 1)
        self._hits_of = codec.candidates(plan.use, plan.command)
        #: Records whose hits are written, or wait to be merged.
        self.reached = 0
        self._waiting: list[Hits] = []
        #: The batches that are written.
        self.batches: list[Hits] = []
        #: Set once the journals are those of this run.
        self.begun = threading.Event()
        self.error: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="pack", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Write the remaining hits, after the end of the run.

        Raises:
            MillraceError: The journals cannot be read, or are incomplete.
        """
        self.close()
        if self.error:
            raise self.error
        self._look(last=True)

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()

    def _follow(self) -> None:
        started = time.monotonic()
        try:
            while not self._end.wait(max(LOOK_SECONDS, LOOK_SHARE * (time.monotonic() - started))):
                if self.begun.is_set():
                    self._look()
        except BaseException as error:
            self.error = error

    def _look(self, *, last: bool = False) -> None:
        tasks = [task for path in self._rundir.journals() for task in _core.scan(str(path), False).tasks]
        found: dict[tuple[int, int], dict[int, _core.BlockRef]] = {}
        for task in tasks:
            if isinstance(kind := kind_of(task.fragment), Search):
                found.setdefault((task.first, task.last), {}).setdefault(kind.fragment, task.blocks[0])
        fresh: list[Hits] = []
        for done in effective_tasks(tasks):
            if done.first > self.reached:
                break
            if done.last > self.reached:
                fresh.append(self._hits(done.first, done.last, found))
                self.reached = done.last
        fresh = together([*self._waiting, *fresh], self._most)
        # The last may still become larger.
        self._waiting = [fresh.pop()] if fresh and not last and fresh[-1].queries < self._most else []
        self.batches += fresh
        if len(self.batches) > hits.MAX_BATCHES:
            raise NotPackable(
                "the result is of more batches of queries than a pack may have", "run it with a larger --batch"
            )
        for at in range(0, len(fresh), BATCHES):
            self._writer.add(Kind.HITS, hits.encode(fresh[at : at + BATCHES]))

    def _hits(self, first: int, last: int, found: dict[tuple[int, int], dict[int, _core.BlockRef]]) -> Hits:
        blocks = found.get((first, last), {})
        if any(fragment not in blocks for fragment in self._fragments):
            raise CorruptError(
                f"{self._rundir.path}: what was found for records {first + 1} to {last} is not in the journals",
                "this must not happen: please report it",
            )
        with views([blocks[fragment] for fragment in self._fragments]) as texts:
            return self._hits_of(last - first, texts)


def together(batches: Sequence[Hits], most: int) -> list[Hits]:
    """Merge neighbours that have up to ``most`` queries in all; an entry that several have hit is kept once.

    >>> together([Hits(1, [4]), Hits(2, [1, 4]), Hits(9, [7])], 3)
    [Hits(queries=3, entries=[1, 4], more=b''), Hits(queries=9, entries=[7], more=b'')]
    """
    found: list[Hits] = []
    for batch in batches:
        before = found[-1] if found else None
        if before and before.queries + batch.queries <= most:
            entries = sorted({*before.entries, *batch.entries})
            found[-1] = Hits(before.queries + batch.queries, entries, before.more + batch.more)
        else:
            found.append(batch)
    return found
