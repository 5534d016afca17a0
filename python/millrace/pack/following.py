"""A follower of the journals of a run: it packs the hits of finished batches from the searches of the fragments."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from millrace import _core
from millrace.blocks import map_blocks
from millrace.errors import CorruptError
from millrace.output.order import select_effective_tasks
from millrace.pack import hits
from millrace.pack.codec import NotPackableError, ResultCodec
from millrace.pack.difference import SectionSink
from millrace.pack.hits import BatchHits
from millrace.pack.layout import SectionKind
from millrace.plan.plan import RunPlan
from millrace.rundir import RunDir
from millrace.task_numbers import decode_task_kind
from millrace.tasks import SearchTask

#: The journals are read at intervals of at least so many seconds, and of this share of the elapsed time: a long run is
#: read about as often as a short one, so its hits make few sections.
POLL_INTERVAL_SECONDS, POLL_INTERVAL_SHARE = 0.5, 0.02

#: Batches in one section.
MAX_SECTION_BATCHES = 4096


class JournalFollower:
    """A thread that writes the hits of finished batches to a pack, in input order, while the run goes on.

    Args:
        most: Queries up to which neighbours are merged into one batch.
    """

    def __init__(self, plan: RunPlan, codec: ResultCodec, writer: SectionSink, most: int) -> None:
        assert plan.use.fragmented  # what has no candidates is not followed
        self._rundir, self._writer, self._most = RunDir(plan.run_dir), writer, most
        self._fragments = range(1, plan.use.n_fragments + 1)
        self._hits_of = codec.make_candidate_reader(plan.use, plan.command)
        #: Records whose hits are written, or wait to be merged.
        self.reached = 0
        self._waiting: list[BatchHits] = []
        #: The batches that are written.
        self.batches: list[BatchHits] = []
        #: Set once the journals are those of this run.
        self.begun = threading.Event()
        self.error: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._poll_journals, name="pack", daemon=True)
        self._thread.start()

    def write_remaining_hits(self) -> None:
        """Write the remaining hits, after the end of the run.

        Raises:
            MillraceError: The journals cannot be read, or are incomplete.
        """
        self.close()
        if self.error:
            raise self.error
        self._write_new_hits(last=True)

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()

    def _poll_journals(self) -> None:
        started = time.monotonic()
        try:
            while not self._end.wait(max(POLL_INTERVAL_SECONDS, POLL_INTERVAL_SHARE * (time.monotonic() - started))):
                if self.begun.is_set():
                    self._write_new_hits()
        except BaseException as error:
            self.error = error

    def _write_new_hits(self, *, last: bool = False) -> None:
        tasks = [task for path in self._rundir.list_journals() for task in _core.scan(str(path), False).tasks]
        found: dict[tuple[int, int], dict[int, _core.BlockRef]] = {}
        for task in tasks:
            if isinstance(kind := decode_task_kind(task.fragment), SearchTask):
                found.setdefault((task.first, task.last), {}).setdefault(kind.fragment, task.blocks[0])
        fresh: list[BatchHits] = []
        for done in select_effective_tasks(tasks):
            if done.first > self.reached:
                break
            if done.last > self.reached:
                fresh.append(self._collect_batch_hits(done.first, done.last, found))
                self.reached = done.last
        fresh = merge_small_batches([*self._waiting, *fresh], self._most)
        # The last may still become larger.
        self._waiting = [fresh.pop()] if fresh and not last and fresh[-1].queries < self._most else []
        self.batches += fresh
        if len(self.batches) > hits.MAX_BATCHES:
            raise NotPackableError(
                "the result is of more batches of queries than a pack may have", "run it with a larger --batch"
            )
        for at in range(0, len(fresh), MAX_SECTION_BATCHES):
            self._writer.add(SectionKind.HITS, hits.encode_hits(fresh[at : at + MAX_SECTION_BATCHES]))

    def _collect_batch_hits(
        self, first: int, last: int, found: dict[tuple[int, int], dict[int, _core.BlockRef]]
    ) -> BatchHits:
        blocks = found.get((first, last), {})
        if any(fragment not in blocks for fragment in self._fragments):
            raise CorruptError(
                f"{self._rundir.path}: what was found for records {first + 1} to {last} is not in the journals",
                "this must not happen: please report it",
            )
        with map_blocks([blocks[fragment] for fragment in self._fragments]) as texts:
            return self._hits_of(last - first, texts)


def merge_small_batches(batches: Sequence[BatchHits], most: int) -> list[BatchHits]:
    """Merge neighbours that have up to ``most`` queries in all; an entry that several have hit is kept once.

    >>> merge_small_batches([BatchHits(1, [4]), BatchHits(2, [1, 4]), BatchHits(9, [7])], 3)
    [BatchHits(queries=3, entries=[1, 4], more=b''), BatchHits(queries=9, entries=[7], more=b'')]
    """
    found: list[BatchHits] = []
    for batch in batches:
        before = found[-1] if found else None
        if before and before.queries + batch.queries <= most:
            entries = sorted({*before.entries, *batch.entries})
            found[-1] = BatchHits(before.queries + batch.queries, entries, before.more + batch.more)
        else:
            found.append(batch)
    return found
