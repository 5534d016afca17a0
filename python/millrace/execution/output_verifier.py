"""Verification: stretches of the input are run again at other batch boundaries, and the joined bytes are compared.

The output of a second run is committed like a result, under the task kind ``millrace.core.tasks.CompareTask``. So it works
wherever tasks work, and a resumed run continues with the committed pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace.core.errors import TogetherError, UnverifiedError
from millrace.core.tasks import CommittedRecords
from millrace.core.text_format import format_records
from millrace.execution.batch_table import KeptBatches, remove_batch_files
from millrace.execution.verification_report import (
    MismatchedOutput,
    build_mismatch_error,
    build_overwrite_error,
    compare_output,
    describe_verification,
    find_packed_input,
    get_tool_name,
)
from millrace.node.batch_files import SkippedRecords, SpooledBatch, recut_batches
from millrace.planning.program_lookup import is_unknown_tool
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.protocol import AttemptResult, TaskFailure
from millrace.scheduler.verification_stretches import RecordExtent, VerificationStretches, list_variants

#: Attempts for a piece that fails. A correct tool may fail on a part alone, so a failure is not an error.
MAX_PIECE_ATTEMPTS = 2


class VerificationPiece(msgspec.Struct):
    """Records of a stretch that are run again in one task."""

    batch: SpooledBatch
    #: The rerun that it belongs to.
    way: _StretchRerun
    attempt: int = 1
    #: Its committed task; None: it is not done yet, or it failed.
    task: CommittedRecords | None = None


class _StretchRerun(msgspec.Struct):
    """All pieces of one rerun of a stretch, at certain boundaries."""

    stretch: _VerifiedStretch
    pieces: list[VerificationPiece]
    n_open: int = 0
    #: Whether the tool finds the earlier content of its outputs where it writes.
    over: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all pieces have succeeded."""
        return all(piece.task for piece in self.pieces)


class _VerifiedStretch(msgspec.Struct):
    """Consecutive batches that are verified together."""

    batches: tuple[RecordExtent, ...]
    #: Reruns that are still to do, one after another; each a list of its pieces' numbers of records.
    ways: list[list[int]]
    #: Reruns that gave the same bytes.
    n_equal: int = 0
    found: MismatchedOutput | None = None
    #: Whether it failed, or gave other bytes, where its outputs already existed.
    differs_over: bool = False


class OutputVerifier(msgspec.Struct):
    """State machine of the verification: it gets the engine's events and returns pieces to run.

    ``error`` is set when bytes differ.

    Args:
        stretches: The parts of the input to verify; see ``millrace.execution.verification_report.choose_stretches``.
        spool: Folder with the bytes of batches.
        looks: Comparison tasks that an earlier run committed, by their records.
        results: Tasks that an earlier run committed, by their first record.
        before: Output files that existed before this run, which has not written anything yet. The first stretch is then
            also run over them, and nothing is written before that.
    """

    plan: RunPlan
    stretches: VerificationStretches
    spool: Path
    looks: Mapping[RecordExtent, CommittedRecords]
    results: Mapping[int, CommittedRecords]
    before: Sequence[str] = ()
    error: UnverifiedError | None = None
    #: Stretches that were not compared because the second run failed.
    n_failed: int = 0
    _over_is_open: bool = False
    _total: int | None = None
    _kept: KeptBatches = msgspec.field(default_factory=KeptBatches)
    _queue: list[VerificationPiece] = msgspec.field(default_factory=list)
    _at_work: int = 0
    _serial: int = 0
    #: Reasons why the tool failed on batches that were then run in parts.
    _reasons: dict[RecordExtent, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._over_is_open = bool(self.before) and self.stretches.share != 0

    # Events

    def add_batch(self, batch: SpooledBatch) -> None:
        """Add a batch that was cut."""
        self.stretches.add_batch(batch.first, batch.last)

    def add_skipped(self, skipped: SkippedRecords) -> None:
        """Add records that an earlier run committed."""
        task = self.results.get(skipped.first)
        if skipped.batch and task and not task.quarantined:
            self.add_batch(skipped.batch)
            self.add_committed(skipped.batch, task, 0.0, 0.0)
        else:
            self.stretches.skip_batch(skipped.first, skipped.last)
        if skipped.batch:
            remove_batch_files(skipped.batch)

    def add_committed(self, batch: SpooledBatch, task: CommittedRecords, seconds: float, cpu_seconds: float) -> None:
        """Add a committed batch, and link its files if it is verified: the caller is about to remove them."""
        extent = (batch.first, batch.last)
        self.stretches.record_commit(*extent, seconds, batch.bytes, cpu_seconds)
        if extent in self.stretches.kept:
            self._kept.add_batch(batch, task)
        self._kept.keep_only(self.stretches.kept.keys())

    def record_failure(self, batch: SpooledBatch, failure: TaskFailure) -> None:
        """Record that the tool failed on a batch, which is then run in parts."""
        says_so = failure.result is AttemptResult.FAILED and failure.exit_status is not None
        if says_so and is_unknown_tool(self.plan.use):
            self.stretches.add_suspect(batch.first, batch.last)
            self._reasons[batch.first, batch.last] = failure.reason

    def record_quarantine(self, batch: SpooledBatch) -> None:
        """Record that a batch was quarantined."""
        self.stretches.drop_records(batch.first, batch.last)

    def end_input(self, records: int) -> None:
        """Set the number of records: all of the input is cut."""
        self._total = records

    # Pieces to run

    @property
    def is_done(self) -> bool:
        return not self._at_work and not self._queue

    def pop_ready_pieces(self, now: float, *, done: bool) -> list[VerificationPiece]:
        """Return the pieces to run ``now``, in seconds of the run, and clear the queue.

        Args:
            done: Whether every batch is committed or quarantined.
        """
        for batches in self.stretches.pop_ready_stretches(self._total, now, done=done):
            self._start_stretch(batches)
        self._kept.keep_only(self.stretches.kept.keys())
        self._over_is_open = self._over_is_open and not (done and self.is_done)
        pieces, self._queue = self._queue, []
        return pieces

    def should_hold_output(self) -> bool:
        """Tell whether nothing may be written yet, because the start of the input is being verified."""
        return self.error is not None or self.stretches.is_start_open or self._over_is_open

    def is_urgent(self, piece: VerificationPiece) -> bool:
        """Tell whether a piece runs before anything else: the start does, so that a wrong run ends soon."""
        stretch = piece.way.stretch
        return stretch.batches[0][0] == 0 or stretch.found is not None

    def _start_stretch(self, batches: tuple[RecordExtent, ...]) -> None:
        seconds = sum(self.stretches.kept[each] for each in batches)
        at_end = batches[-1][1] == self._total
        ways = list_variants(
            batches, seconds, at_start=batches[0][0] == 0, at_end=at_end, whole=self.plan.use.cost.max_records != 1
        )
        self._at_work += 1
        stretch = _VerifiedStretch(batches, ways)
        if self._over_is_open and self._at_work == 1:
            if batches == ((0, self._total),) and not find_packed_input(self.plan.use):
                stretch.ways = []  # apart from the existing outputs it was the serial run
            self._add_rerun(stretch, [last - first for first, last in batches], over=True)
        else:
            self._start_next_rerun(stretch)

    def _start_next_rerun(self, stretch: _VerifiedStretch) -> None:
        if stretch.ways:
            self._add_rerun(stretch, stretch.ways.pop(0))
        else:
            self._finish_stretch(stretch)

    def _add_rerun(self, stretch: _VerifiedStretch, sizes: Sequence[int], *, over: bool = False) -> None:
        use, job, cwd = self.plan.use, self.plan.job, self.plan.command.cwd
        self._serial += 1
        name = self.spool / f"look-{self._serial}"
        found = recut_batches(
            self._kept.list_batches(stretch.batches), sizes, use.inputs, cwd, job.record_start, job.record_end, name
        )
        way = _StretchRerun(stretch, [], over=over)
        way.pieces = [VerificationPiece(batch, way) for batch in found]
        for piece in way.pieces:
            piece.task = None if over else self.looks.get((piece.batch.first, piece.batch.last))
            if not piece.task:
                way.n_open += 1
                self._queue.append(piece)
        if not way.n_open:
            self._end_rerun(way)

    def finish_piece(self, piece: VerificationPiece, task: CommittedRecords | None) -> None:
        """Record the end of a piece; ``task`` is its committed task, None if it failed."""
        if not task and piece.attempt < MAX_PIECE_ATTEMPTS:
            piece.attempt += 1
            self._queue.append(piece)
            return
        piece.task = task
        piece.way.n_open -= 1
        if not piece.way.n_open:
            self._end_rerun(piece.way)

    # Results

    def _end_rerun(self, way: _StretchRerun) -> None:
        stretch = way.stretch
        for piece in way.pieces:
            remove_batch_files(piece.batch)
        for piece in way.pieces:
            if not piece.task and self.stretches.has_suspect(piece.batch.first, piece.batch.last):
                self.error = self.error or self._build_together_error(piece.batch)
        if way.over:
            self._evaluate_overwrite_rerun(stretch, way)
            return
        if stretch.differs_over:
            self._evaluate_fresh_rerun(stretch, way)
        elif way.pieces and way.is_complete:
            self._evaluate_rerun(stretch, way)
        self._start_next_rerun(stretch)

    def _evaluate_overwrite_rerun(self, stretch: _VerifiedStretch, way: _StretchRerun) -> None:
        if way.is_complete and not self._compare_rerun(stretch, way):
            self._over_is_open = False
            stretch.n_equal += not stretch.ways
            self._start_next_rerun(stretch)
        else:
            # Run once more, without the existing outputs: are they the cause, or do the bytes always differ?
            stretch.differs_over = True
            self._add_rerun(stretch, [last - first for first, last in stretch.batches])

    def _evaluate_fresh_rerun(self, stretch: _VerifiedStretch, way: _StretchRerun) -> None:
        """Compare the repetition that found no existing outputs, and set the error if they were the cause."""
        self._over_is_open = stretch.differs_over = False
        if not way.is_complete:
            return  # it fails on parts, with and without existing outputs
        if found := self._compare_rerun(stretch, way):
            self._set_mismatch_error(stretch, found, repeatable=False)
        else:
            self.error = self.error or build_overwrite_error(get_tool_name(self.plan), self.before)

    def _evaluate_rerun(self, stretch: _VerifiedStretch, way: _StretchRerun) -> None:
        found = self._compare_rerun(stretch, way)
        if not found:
            stretch.n_equal += 1
        elif [(piece.batch.first, piece.batch.last) for piece in way.pieces] == [*stretch.batches]:
            self._set_mismatch_error(stretch, stretch.found or found, repeatable=False)
        elif not stretch.found:
            stretch.found = found
            # Other bytes for other pieces: run the same pieces again to see whether the bytes always differ.
            stretch.ways = [[last - first for first, last in stretch.batches]]

    def _finish_stretch(self, stretch: _VerifiedStretch) -> None:
        if stretch.found:
            self._set_mismatch_error(stretch, stretch.found, repeatable=True)
        elif stretch.n_equal:
            self.stretches.mark_equal(stretch.batches)
        else:
            self.n_failed += 1
        self._at_work -= 1
        self.stretches.release_stretch(stretch.batches)
        self._kept.keep_only(self.stretches.kept.keys())

    def _build_together_error(self, batch: SpooledBatch) -> TogetherError:
        extent = next(each for each in self._reasons if batch.first <= each[0] and each[1] <= batch.last)
        return TogetherError(
            f"{get_tool_name(self.plan)} fails on {format_records(*extent)} together, and on no part of them: {self._reasons[extent]}",
            "the command by itself fails there, too, or what it makes of a record depends on those before it: repair the input, or run it by itself",
        )

    def _compare_rerun(self, stretch: _VerifiedStretch, way: _StretchRerun) -> MismatchedOutput | None:
        then = self._kept.list_results(stretch.batches)
        now = [((piece.batch.first, piece.batch.last), piece.task) for piece in way.pieces if piece.task]
        for number, output in enumerate(self.plan.use.outputs):
            if found := compare_output(number, output, then, now):
                return found
        return None

    def _set_mismatch_error(self, stretch: _VerifiedStretch, found: MismatchedOutput, *, repeatable: bool) -> None:
        extent = (stretch.batches[0][0], stretch.batches[-1][1])
        self.error = self.error or build_mismatch_error(
            get_tool_name(self.plan),
            extent,
            found,
            repeatable=repeatable,
            packed=find_packed_input(self.plan.use),
            view=self.plan.view,
        )

    def describe_outcome(self, records: int) -> str:
        """Describe what was verified of ``records`` records; empty if there is nothing to say."""
        return describe_verification(self.plan, self.stretches, self.n_failed, records)
