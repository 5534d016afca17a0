"""Verification: stretches of the input are run again at other batch boundaries, and the joined bytes are compared.

The output of a second run is committed like a result, under the task kind ``millrace.tasks.Compare``. So it works
wherever tasks work, and a resumed run continues with the committed pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace.committed import Committed
from millrace.engine.compared import Found, accusation, compare, not_over
from millrace.engine.kept_batches import KeptBatches, remove_files
from millrace.engine.looked_at import outcome, packed, tool_of
from millrace.errors import TogetherError, UnverifiedError
from millrace.node.batch import Batch, Skipped
from millrace.node.spool import recut
from millrace.plan.doubts import is_unknown
from millrace.plan.plan import Plan
from millrace.report.words import records
from millrace.schedule.protocol import Failure, Result
from millrace.schedule.stretches import Extent, Stretches, variants

#: Attempts for a piece that fails. A correct tool may fail on a part alone, so a failure is not an error.
TRIES = 2


class Piece(msgspec.Struct):
    """Records of a stretch that are run again in one task."""

    batch: Batch
    #: The rerun that it belongs to.
    way: _Way
    attempt: int = 1
    #: Its committed task; None: it is not done yet, or it failed.
    task: Committed | None = None


class _Way(msgspec.Struct):
    """All pieces of one rerun of a stretch, at certain boundaries."""

    stretch: _Stretch
    pieces: list[Piece]
    n_open: int = 0
    #: Whether the tool finds the earlier content of its outputs where it writes.
    over: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all pieces have succeeded."""
        return all(piece.task for piece in self.pieces)


class _Stretch(msgspec.Struct):
    """Consecutive batches that are verified together."""

    batches: tuple[Extent, ...]
    #: Reruns that are still to do, one after another; each a list of its pieces' numbers of records.
    ways: list[list[int]]
    #: Reruns that gave the same bytes.
    n_equal: int = 0
    found: Found | None = None
    #: Whether it failed, or gave other bytes, where its outputs already existed.
    differs_over: bool = False


class Verifier(msgspec.Struct):
    """State machine of the verification: it gets the engine's events and returns pieces to run.

    ``error`` is set when bytes differ.

    Args:
        stretches: The parts of the input to verify; see ``millrace.engine.looked_at.stretches``.
        spool: Folder with the bytes of batches.
        looks: Comparison tasks that an earlier run committed, by their records.
        results: Tasks that an earlier run committed, by their first record.
        before: Output files that existed before this run, which has not written anything yet. The first stretch is then
            also run over them, and nothing is written before that.
    """

    plan: Plan
    stretches: Stretches
    spool: Path
    looks: Mapping[Extent, Committed]
    results: Mapping[int, Committed]
    before: Sequence[str] = ()
    error: UnverifiedError | None = None
    #: Stretches that were not compared because the second run failed.
    n_failed: int = 0
    _over_is_open: bool = False
    _total: int | None = None
    _kept: KeptBatches = msgspec.field(default_factory=KeptBatches)
    _queue: list[Piece] = msgspec.field(default_factory=list)
    _at_work: int = 0
    _serial: int = 0
    #: Reasons why the tool failed on batches that were then run in parts.
    _reasons: dict[Extent, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._over_is_open = bool(self.before) and self.stretches.share != 0

    # Events

    def cut(self, batch: Batch) -> None:
        """Add a batch that was cut."""
        self.stretches.cut(batch.first, batch.last)

    def skipped(self, skipped: Skipped) -> None:
        """Add records that an earlier run committed."""
        task = self.results.get(skipped.first)
        if skipped.batch and task and not task.quarantined:
            self.cut(skipped.batch)
            self.committed(skipped.batch, task, 0.0, 0.0)
        else:
            self.stretches.passed(skipped.first, skipped.last)
        if skipped.batch:
            remove_files(skipped.batch)

    def committed(self, batch: Batch, task: Committed, seconds: float, cpu_seconds: float) -> None:
        """Add a committed batch, and link its files if it is verified: the caller is about to remove them."""
        extent = (batch.first, batch.last)
        self.stretches.committed(*extent, seconds, batch.bytes, cpu_seconds)
        if extent in self.stretches.kept:
            self._kept.add(batch, task)
        self._kept.keep_only(self.stretches.kept.keys())

    def failed(self, batch: Batch, failure: Failure) -> None:
        """Record that the tool failed on a batch, which is then run in parts."""
        says_so = failure.result is Result.FAILED and failure.exit_status is not None
        if says_so and is_unknown(self.plan.use):
            self.stretches.suspect(batch.first, batch.last)
            self._reasons[batch.first, batch.last] = failure.reason

    def given_up(self, batch: Batch) -> None:
        """Record that a batch was quarantined."""
        self.stretches.given_up(batch.first, batch.last)

    def ended(self, records: int) -> None:
        """Set the number of records: all of the input is cut."""
        self._total = records

    # Pieces to run

    @property
    def done(self) -> bool:
        return not self._at_work and not self._queue

    def take(self, now: float, *, done: bool) -> list[Piece]:
        """Return the pieces to run ``now``, in seconds of the run, and clear the queue.

        Args:
            done: Whether every batch is committed or quarantined.
        """
        for batches in self.stretches.ready(self._total, now, done=done):
            self._begin(batches)
        self._kept.keep_only(self.stretches.kept.keys())
        self._over_is_open = self._over_is_open and not (done and self.done)
        pieces, self._queue = self._queue, []
        return pieces

    def holds_back(self) -> bool:
        """Tell whether nothing may be written yet, because the start of the input is being verified."""
        return self.error is not None or self.stretches.start_is_open or self._over_is_open

    def is_urgent(self, piece: Piece) -> bool:
        """Tell whether a piece runs before anything else: the start does, so that a wrong run ends soon."""
        stretch = piece.way.stretch
        return stretch.batches[0][0] == 0 or stretch.found is not None

    def _begin(self, batches: tuple[Extent, ...]) -> None:
        seconds = sum(self.stretches.kept[each] for each in batches)
        at_end = batches[-1][1] == self._total
        ways = variants(
            batches, seconds, at_start=batches[0][0] == 0, at_end=at_end, whole=self.plan.use.cost.max_records != 1
        )
        self._at_work += 1
        stretch = _Stretch(batches, ways)
        if self._over_is_open and self._at_work == 1:
            if batches == ((0, self._total),) and not packed(self.plan.use):
                stretch.ways = []  # apart from the existing outputs it was the serial run
            self._add_way(stretch, [last - first for first, last in batches], over=True)
        else:
            self._go_on(stretch)

    def _go_on(self, stretch: _Stretch) -> None:
        if stretch.ways:
            self._add_way(stretch, stretch.ways.pop(0))
        else:
            self._settle(stretch)

    def _add_way(self, stretch: _Stretch, sizes: Sequence[int], *, over: bool = False) -> None:
        use, job, cwd = self.plan.use, self.plan.job, self.plan.command.cwd
        self._serial += 1
        name = self.spool / f"look-{self._serial}"
        found = recut(
            self._kept.batches(stretch.batches), sizes, use.inputs, cwd, job.record_start, job.record_end, name
        )
        way = _Way(stretch, [], over=over)
        way.pieces = [Piece(batch, way) for batch in found]
        for piece in way.pieces:
            piece.task = None if over else self.looks.get((piece.batch.first, piece.batch.last))
            if not piece.task:
                way.n_open += 1
                self._queue.append(piece)
        if not way.n_open:
            self._end_way(way)

    def looked(self, piece: Piece, task: Committed | None) -> None:
        """Record the end of a piece; ``task`` is its committed task, None if it failed."""
        if not task and piece.attempt < TRIES:
            piece.attempt += 1
            self._queue.append(piece)
            return
        piece.task = task
        piece.way.n_open -= 1
        if not piece.way.n_open:
            self._end_way(piece.way)

    # Results

    def _end_way(self, way: _Way) -> None:
        stretch = way.stretch
        for piece in way.pieces:
            remove_files(piece.batch)
        for piece in way.pieces:
            if not piece.task and self.stretches.has_suspect(piece.batch.first, piece.batch.last):
                self.error = self.error or self._fails_together(piece.batch)
        if way.over:
            self._end_over(stretch, way)
            return
        if stretch.differs_over:
            self._judge_over(stretch, way)
        elif way.pieces and way.is_whole:
            self._judge(stretch, way)
        self._go_on(stretch)

    def _end_over(self, stretch: _Stretch, way: _Way) -> None:
        if way.is_whole and not self._compared(stretch, way):
            self._over_is_open = False
            stretch.n_equal += not stretch.ways
            self._go_on(stretch)
        else:
            # Run once more, without the existing outputs: are they the cause, or do the bytes always differ?
            stretch.differs_over = True
            self._add_way(stretch, [last - first for first, last in stretch.batches])

    def _judge_over(self, stretch: _Stretch, way: _Way) -> None:
        """Compare the repetition that found no existing outputs, and set the error if they were the cause."""
        self._over_is_open = stretch.differs_over = False
        if not way.is_whole:
            return  # it fails on parts, with and without existing outputs
        if found := self._compared(stretch, way):
            self._accuse(stretch, found, repeatable=False)
        else:
            self.error = self.error or not_over(tool_of(self.plan), self.before)

    def _judge(self, stretch: _Stretch, way: _Way) -> None:
        found = self._compared(stretch, way)
        if not found:
            stretch.n_equal += 1
        elif [(piece.batch.first, piece.batch.last) for piece in way.pieces] == [*stretch.batches]:
            self._accuse(stretch, stretch.found or found, repeatable=False)
        elif not stretch.found:
            stretch.found = found
            # Other bytes for other pieces: run the same pieces again to see whether the bytes always differ.
            stretch.ways = [[last - first for first, last in stretch.batches]]

    def _settle(self, stretch: _Stretch) -> None:
        if stretch.found:
            self._accuse(stretch, stretch.found, repeatable=True)
        elif stretch.n_equal:
            self.stretches.equal(stretch.batches)
        else:
            self.n_failed += 1
        self._at_work -= 1
        self.stretches.released(stretch.batches)
        self._kept.keep_only(self.stretches.kept.keys())

    def _fails_together(self, batch: Batch) -> TogetherError:
        extent = next(each for each in self._reasons if batch.first <= each[0] and each[1] <= batch.last)
        return TogetherError(
            f"{tool_of(self.plan)} fails on {records(*extent)} together, and on no part of them: {self._reasons[extent]}",
            "the command by itself fails there, too, or what it makes of a record depends on those before it: repair the input, or run it by itself",
        )

    def _compared(self, stretch: _Stretch, way: _Way) -> Found | None:
        then = self._kept.results(stretch.batches)
        now = [((piece.batch.first, piece.batch.last), piece.task) for piece in way.pieces if piece.task]
        for number, output in enumerate(self.plan.use.outputs):
            if found := compare(number, output, then, now):
                return found
        return None

    def _accuse(self, stretch: _Stretch, found: Found, *, repeatable: bool) -> None:
        extent = (stretch.batches[0][0], stretch.batches[-1][1])
        self.error = self.error or accusation(
            tool_of(self.plan),
            extent,
            found,
            repeatable=repeatable,
            packed=packed(self.plan.use),
            view=self.plan.view,
        )

    def outcome(self, records: int) -> str:
        """Describe what was verified of ``records`` records; empty if there is nothing to say."""
        return outcome(self.plan, self.stretches, self.n_failed, records)
