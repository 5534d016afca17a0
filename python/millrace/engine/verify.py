"""Second looks: stretches of the input are run again at other boundaries, and the joined bytes are compared.

What a second run writes is committed like a result, as what a task of kind `millrace.tasks.Compare` wrote: so it works
wherever tasks work, and a run that is resumed goes on with what it has.
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

#: How often a piece is tried that fails: a sound tool may fail on a part alone, and is not accused for that.
TRIES = 2


class Piece(msgspec.Struct):
    """Records of a stretch that are run again in one go."""

    batch: Batch
    #: Which way of which stretch it belongs to.
    way: _Way
    attempt: int = 1
    #: What it gave; None: nothing yet, or it failed.
    task: Committed | None = None


class _Way(msgspec.Struct):
    """All pieces of a stretch that is run again in one way."""

    stretch: _Stretch
    pieces: list[Piece]
    n_open: int = 0
    #: Whether the tool finds what its outputs held before where it writes.
    over: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all pieces gave something."""
        return all(piece.task for piece in self.pieces)


class _Stretch(msgspec.Struct):
    batches: tuple[Extent, ...]
    #: Ways in which it is still to be run again, one after another: each in pieces of so many records.
    ways: list[list[int]]
    #: Ways in which it gave the same bytes.
    n_equal: int = 0
    found: Found | None = None
    #: Whether it failed, or gave something else, over outputs from before.
    differs_over: bool = False


class Verifier(msgspec.Struct):
    """Told what the engine does, it asks for pieces to be run; ``error`` is set when bytes differ.

    Args:
        stretches: What is looked at; see `stretches`.
        spool: Where the bytes of batches are.
        looks: What an earlier run wrote for comparison, by its records.
        results: What an earlier run committed, by its first record.
        before: Output files that were there before this run, which has not written anything yet. The first stretch is
            then run over them, too, and nothing is written before that.
    """

    plan: Plan
    stretches: Stretches
    spool: Path
    looks: Mapping[Extent, Committed]
    results: Mapping[int, Committed]
    before: Sequence[str] = ()
    error: UnverifiedError | None = None
    #: Stretches that were not compared as the second run failed.
    n_failed: int = 0
    _over_is_open: bool = False
    _total: int | None = None
    _kept: KeptBatches = msgspec.field(default_factory=KeptBatches)
    _queue: list[Piece] = msgspec.field(default_factory=list)
    _at_work: int = 0
    _serial: int = 0
    #: Why the tool failed on batches that were run in parts then.
    _reasons: dict[Extent, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._over_is_open = bool(self.before) and self.stretches.share != 0

    # What happens

    def cut(self, batch: Batch) -> None:
        """A batch was cut."""
        self.stretches.cut(batch.first, batch.last)

    def skipped(self, skipped: Skipped) -> None:
        """An earlier run committed this."""
        task = self.results.get(skipped.first)
        if skipped.batch and task and not task.quarantined:
            self.cut(skipped.batch)
            self.committed(skipped.batch, task, 0.0, 0.0)
        else:
            self.stretches.passed(skipped.first, skipped.last)
        if skipped.batch:
            remove_files(skipped.batch)

    def committed(self, batch: Batch, task: Committed, seconds: float, cpu_seconds: float) -> None:
        """A batch is committed; its files are about to be removed."""
        extent = (batch.first, batch.last)
        self.stretches.committed(*extent, seconds, batch.bytes, cpu_seconds)
        if extent in self.stretches.kept:
            self._kept.add(batch, task)
        self._kept.keep_only(self.stretches.kept.keys())

    def failed(self, batch: Batch, failure: Failure) -> None:
        """The tool failed on a batch, which is to be run in parts."""
        says_so = failure.result is Result.FAILED and failure.exit_status is not None
        if says_so and is_unknown(self.plan.use):
            self.stretches.suspect(batch.first, batch.last)
            self._reasons[batch.first, batch.last] = failure.reason

    def given_up(self, batch: Batch) -> None:
        """Records were given up."""
        self.stretches.given_up(batch.first, batch.last)

    def ended(self, records: int) -> None:
        """All of the input is cut."""
        self._total = records

    # What is to be run

    @property
    def done(self) -> bool:
        return not self._at_work and not self._queue

    def take(self, now: float, *, done: bool) -> list[Piece]:
        """Pieces to be run ``now``, in seconds of the run; ``done``: everything is committed or given up."""
        for batches in self.stretches.ready(self._total, now, done=done):
            self._begin(batches)
        self._kept.keep_only(self.stretches.kept.keys())
        self._over_is_open = self._over_is_open and not (done and self.done)
        pieces, self._queue = self._queue, []
        return pieces

    def holds_back(self) -> bool:
        """Whether nothing may be written yet, as the start of the input is being looked at."""
        return self.error is not None or self.stretches.start_is_open or self._over_is_open

    def is_urgent(self, piece: Piece) -> bool:
        """The start is looked at before anything else, so that a run that is not right ends soon."""
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
                stretch.ways = []  # it was the serial run but for that
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
        """A piece was run; ``task`` is what it gave, None if it failed."""
        if not task and piece.attempt < TRIES:
            piece.attempt += 1
            self._queue.append(piece)
            return
        piece.task = task
        piece.way.n_open -= 1
        if not piece.way.n_open:
            self._end_way(piece.way)

    # What it shows

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
            # Because of what was there, or is it never the same?
            stretch.differs_over = True
            self._add_way(stretch, [last - first for first, last in stretch.batches])

    def _judge_over(self, stretch: _Stretch, way: _Way) -> None:
        """The same once more, with nothing there."""
        self._over_is_open = stretch.differs_over = False
        if not way.is_whole:
            return  # it fails on parts, whatever is there
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
            # Other bytes for other pieces: is it the pieces, or is it never the same?
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
        """What was checked of so many records, in words; empty if there is nothing to say."""
        return outcome(self.plan, self.stretches, self.n_failed, records)
