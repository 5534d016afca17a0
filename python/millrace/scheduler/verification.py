"""Verification of a run: in which pieces a stretch runs again, in which order, and what equal or other bytes mean. Pure.

Events in, actions out, as with ``BatchScheduler``. ``VerificationStretches`` chooses the stretches. The bytes are
elsewhere: ``millrace.execution.output_verifier`` cuts the pieces and compares the outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import NewType

import msgspec

from millrace.core.tasks import CommittedRecords, CompareTask
from millrace.scheduler.output_differences import MismatchedOutput
from millrace.scheduler.protocol import AttemptResult, TaskFailure
from millrace.scheduler.verification_stretches import RecordExtent, VerificationStretches, list_variants

#: Attempts for a piece that fails. A correct tool may fail on a part alone, so a failure is not an error.
MAX_PIECE_ATTEMPTS = 2

RerunId = NewType("RerunId", int)

#: A rerun of records cut elsewhere.
RECUT = CompareTask()


# Actions


class RecutStretch(msgspec.Struct, frozen=True):
    """Cut the records of ``batches``, in that order, into pieces of about ``sizes`` records, then report ``add_pieces``."""

    rerun: RerunId
    batches: tuple[RecordExtent, ...]
    sizes: Sequence[int]


class ReleasePieces(msgspec.Struct, frozen=True):
    """Free the bytes of the pieces of a rerun."""

    rerun: RerunId


class CompareOutputs(msgspec.Struct, frozen=True):
    """Compare the outputs of ``batches`` with those of all pieces of a rerun, then report ``record_comparison``."""

    rerun: RerunId
    batches: tuple[RecordExtent, ...]
    pieces: Sequence[tuple[RecordExtent, CommittedRecords]]


class ReportMismatch(msgspec.Struct, frozen=True):
    """Stop the run: the tool gave other bytes for the records of ``extent``."""

    extent: RecordExtent
    mismatch: MismatchedOutput
    #: Whether the tool gives the same bytes when it runs on the same pieces.
    repeatable: bool
    #: Whether its batches were run in the opposite order.
    reversed: bool = False


class ReportOverwrite(msgspec.Struct, frozen=True):
    """Stop the run: the tool fails, or gives other bytes, only where its outputs already exist."""


class ReportJointFailure(msgspec.Struct, frozen=True):
    """Stop the run: the tool fails on the records of ``extent`` together, and on no part of them."""

    extent: RecordExtent
    reason: str


VerificationStop = ReportMismatch | ReportOverwrite | ReportJointFailure
VerificationAction = RecutStretch | ReleasePieces | CompareOutputs | VerificationStop


class RunPiece(msgspec.Struct, frozen=True):
    """Run a piece in one task, then report ``finish_piece``."""

    rerun: RerunId
    #: Its number among the pieces of the rerun.
    number: int
    #: Whether it runs before anything else: the start does, so that a wrong run ends soon.
    urgent: bool
    kind: CompareTask
    attempt: int = 1


# State


class _VerifiedStretch(msgspec.Struct):
    """Consecutive batches that are verified together."""

    batches: tuple[RecordExtent, ...]
    #: Reruns that are still to do, one after another; each a list of its pieces' numbers of records.
    variants: list[list[int]]
    #: Reruns that gave the same bytes.
    n_equal: int = 0
    mismatch: MismatchedOutput | None = None
    #: Whether its batches are still to be run in the opposite order, if the other reruns gave the same bytes.
    to_reverse: bool = False
    #: Whether it failed, or gave other bytes, where its outputs already existed.
    differs_over: bool = False

    @property
    def extent(self) -> RecordExtent:
        return self.batches[0][0], self.batches[-1][1]

    @property
    def sizes(self) -> list[int]:
        """Numbers of records of the batches."""
        return [last - first for first, last in self.batches]


class _StretchRerun(msgspec.Struct):
    """One rerun of a stretch, at certain boundaries."""

    stretch: _VerifiedStretch
    kind: CompareTask
    #: The pieces, and the committed task of each; None: it is not done yet, or it failed.
    pieces: Sequence[RecordExtent] = ()
    results: list[CommittedRecords | None] = []
    n_open: int = 0


def _order_batches(stretch: _VerifiedStretch, kind: CompareTask) -> tuple[RecordExtent, ...]:
    return stretch.batches[::-1] if kind.reversed else stretch.batches


class OutputVerification(msgspec.Struct, kw_only=True):
    """State machine of the verification: events in, actions out.

    Carry out the actions in the order given, and report their results at once. Once it has returned an action that
    stops the run, it returns no other that does.
    """

    stretches: VerificationStretches
    #: Pieces that an earlier run committed, by their records.
    earlier: Mapping[RecordExtent, CommittedRecords] = {}
    #: Whether outputs already exist, and nothing is written yet. The first stretch is then also run over them.
    has_outputs: bool = False
    #: Whether each execution gets an input compressed to other bytes.
    is_packed: bool = False
    #: Whether the tool is unknown: it may fail on records because they are together.
    is_unknown: bool = True
    #: Whether both ends of the input are run in the opposite order, too, which shows what sorts its records.
    reverses_ends: bool = False
    #: Stretches that were not compared because the second run failed.
    n_failed: int = 0
    _over_is_open: bool = False
    _has_stopped: bool = False
    _total: int | None = None
    _ids: Iterator[RerunId] = msgspec.field(default_factory=lambda: map(RerunId, count(1)))
    _reruns: dict[RerunId, _StretchRerun] = msgspec.field(default_factory=dict)
    _queue: list[RunPiece] = msgspec.field(default_factory=list)
    #: Number of stretches that are being verified.
    _n_open: int = 0
    #: Reasons why the tool failed on batches that were then run in parts.
    _reasons: dict[RecordExtent, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._over_is_open = self.has_outputs and self.stretches.share != 0

    # State

    @property
    def is_done(self) -> bool:
        """Whether no stretch is being verified."""
        return not self._n_open and not self._queue

    def should_hold_output(self) -> bool:
        """Tell whether nothing may be written yet, because the start of the input is being verified."""
        return self._has_stopped or self.stretches.is_start_open or self._over_is_open

    @property
    def kept(self) -> Collection[RecordExtent]:
        """The committed batches whose bytes are or may be needed."""
        return self.stretches.kept.keys()

    # Events of the run

    def add_batch(self, first: int, last: int) -> None:
        """Add the next batch in input order."""
        self.stretches.add_batch(first, last)

    def skip_batch(self, first: int, last: int) -> None:
        """Skip the next batch in input order, whose bytes cannot be verified."""
        self.stretches.skip_batch(first, last)

    def record_commit(self, first: int, last: int, seconds: float, n_bytes: int, cpu_seconds: float) -> None:
        """Record that a batch of ``n_bytes`` is committed, and the time and CPU time that the tool took for it."""
        self.stretches.record_commit(first, last, seconds, n_bytes, cpu_seconds)

    def record_quarantine(self, first: int, last: int) -> None:
        """Record that a batch was quarantined."""
        self.stretches.drop_records(first, last)

    def record_failure(self, first: int, last: int, failure: TaskFailure) -> None:
        """Record that the tool failed on a batch, which is then run in parts."""
        has_exited = failure.result is AttemptResult.FAILED and failure.exit_status is not None
        if has_exited and self.is_unknown:
            self.stretches.add_suspect(first, last)
            self._reasons[first, last] = failure.reason

    def end_input(self, records: int) -> None:
        """Set the number of records: all of the input is cut."""
        self._total = records

    def start_stretches(self, now: float, *, done: bool) -> list[VerificationAction]:
        """Start to verify the stretches that are ready ``now``, in seconds of the run.

        Args:
            done: Whether every batch is committed or quarantined.
        """
        actions: list[VerificationAction] = []
        for batches in self.stretches.pop_ready_stretches(self._total, now, done=done):
            actions += self._start_stretch(batches)
        self._over_is_open = self._over_is_open and not (done and self.is_done)
        return actions

    def pop_pieces(self) -> list[RunPiece]:
        """Return the pieces to run, and clear the queue."""
        pieces, self._queue = self._queue, []
        return pieces

    # Events of a rerun

    def add_pieces(self, rerun: RerunId, pieces: Sequence[RecordExtent]) -> list[VerificationAction]:
        """Add the pieces of a rerun: reply to ``RecutStretch``."""
        item = self._reruns[rerun]
        item.pieces = pieces
        item.results = [self.earlier.get(piece) if item.kind == RECUT else None for piece in pieces]
        urgent = item.stretch.extent[0] == 0 or item.stretch.mismatch is not None
        missing = [number for number, result in enumerate(item.results) if not result]
        self._queue += [RunPiece(rerun, number, urgent, item.kind) for number in missing]
        item.n_open = len(missing)
        return [] if missing else self._end_rerun(rerun)

    def finish_piece(self, piece: RunPiece, result: CommittedRecords | None) -> list[VerificationAction]:
        """Record the end of a piece; ``result`` is its committed task, None if it failed."""
        if not result and piece.attempt < MAX_PIECE_ATTEMPTS:
            self._queue.append(msgspec.structs.replace(piece, attempt=piece.attempt + 1))
            return []
        item = self._reruns[piece.rerun]
        item.results[piece.number] = result
        item.n_open -= 1
        return [] if item.n_open else self._end_rerun(piece.rerun)

    def record_comparison(self, rerun: RerunId, mismatch: MismatchedOutput | None) -> list[VerificationAction]:
        """Record what a comparison has found; None: all bytes are equal. Reply to ``CompareOutputs``."""
        item = self._reruns.pop(rerun)
        stretch = item.stretch
        if item.kind.over:
            if mismatch:
                return self._repeat_without_outputs(stretch)
            self._over_is_open = False
            stretch.n_equal += not stretch.variants
            return self._start_next_rerun(stretch)
        return [*self._judge_comparison(item, mismatch), *self._start_next_rerun(stretch)]

    def _judge_comparison(self, item: _StretchRerun, mismatch: MismatchedOutput | None) -> list[VerificationAction]:
        stretch = item.stretch
        stop: VerificationStop | None = None
        if item.kind.reversed:
            stop = ReportMismatch(stretch.extent, mismatch, repeatable=True, reversed=True) if mismatch else None
        elif stretch.differs_over:  # were the existing outputs the cause?
            self._over_is_open = stretch.differs_over = False
            stop = ReportMismatch(stretch.extent, mismatch, repeatable=False) if mismatch else ReportOverwrite()
        elif not mismatch:
            stretch.n_equal += 1
        elif [*item.pieces] == [*stretch.batches]:
            stop = ReportMismatch(stretch.extent, stretch.mismatch or mismatch, repeatable=False)
        elif not stretch.mismatch:
            stretch.mismatch = mismatch
            # Other bytes for other pieces: run the same pieces again to see whether the bytes always differ.
            stretch.variants = [stretch.sizes]
        return self._stop_once(stop) if stop else []

    # Reruns of a stretch

    def _start_stretch(self, batches: tuple[RecordExtent, ...]) -> list[VerificationAction]:
        seconds = sum(self.stretches.kept[each] for each in batches)
        at_start, at_end = batches[0][0] == 0, batches[-1][1] == self._total
        variants = list_variants(batches, seconds, at_start=at_start, at_end=at_end, whole=self.stretches.divisible)
        self._n_open += 1
        to_reverse = self.reverses_ends and len(batches) > 1 and self.stretches.divisible and (at_start or at_end)
        stretch = _VerifiedStretch(batches, variants, to_reverse=to_reverse)
        if not self._over_is_open or self._n_open > 1:
            return self._start_next_rerun(stretch)
        if batches == ((0, self._total),) and not self.is_packed:
            stretch.variants = []  # apart from the existing outputs it was the serial run
        return self._start_rerun(stretch, stretch.sizes, CompareTask(over=True))

    def _start_next_rerun(self, stretch: _VerifiedStretch) -> list[VerificationAction]:
        if stretch.variants:
            return self._start_rerun(stretch, stretch.variants.pop(0))
        if stretch.to_reverse and stretch.n_equal and not stretch.mismatch:
            stretch.to_reverse = False
            return self._start_rerun(stretch, [sum(stretch.sizes)], CompareTask(reversed=True))
        return self._end_stretch(stretch)

    def _start_rerun(
        self, stretch: _VerifiedStretch, sizes: list[int], kind: CompareTask = RECUT
    ) -> list[VerificationAction]:
        rerun = next(self._ids)
        self._reruns[rerun] = _StretchRerun(stretch, kind)
        return [RecutStretch(rerun, _order_batches(stretch, kind), sizes)]

    def _end_rerun(self, rerun: RerunId) -> list[VerificationAction]:
        """Compare a rerun in which all pieces have succeeded; leave another one uncompared."""
        item = self._reruns[rerun]
        stretch = item.stretch
        actions: list[VerificationAction] = [ReleasePieces(rerun)]
        succeeded = [(piece, result) for piece, result in zip(item.pieces, item.results, strict=True) if result]
        if len(succeeded) == len(item.pieces) and (item.pieces or item.kind.over or stretch.differs_over):
            return [*actions, CompareOutputs(rerun, _order_batches(stretch, item.kind), succeeded)]
        del self._reruns[rerun]
        for (first, last), result in zip(item.pieces, item.results, strict=True):
            if not result and self.stretches.has_suspect(first, last):
                actions += self._stop_once(self._make_joint_failure(first, last))
        if item.kind.over:
            return [*actions, *self._repeat_without_outputs(stretch)]
        if stretch.differs_over:  # it fails on parts, with and without existing outputs
            self._over_is_open = stretch.differs_over = False
        return [*actions, *self._start_next_rerun(stretch)]

    def _repeat_without_outputs(self, stretch: _VerifiedStretch) -> list[VerificationAction]:
        """Run once more, without the existing outputs: are they the cause, or do the bytes always differ?"""
        stretch.differs_over = True
        return self._start_rerun(stretch, stretch.sizes)

    def _end_stretch(self, stretch: _VerifiedStretch) -> list[VerificationAction]:
        self._n_open -= 1
        self.stretches.release_stretch(stretch.batches)
        if stretch.mismatch:
            return self._stop_once(ReportMismatch(stretch.extent, stretch.mismatch, repeatable=True))
        if stretch.n_equal:
            self.stretches.mark_equal(stretch.batches)
        else:
            self.n_failed += 1
        return []

    def _make_joint_failure(self, first: int, last: int) -> ReportJointFailure:
        extent = next(each for each in self._reasons if first <= each[0] and each[1] <= last)
        return ReportJointFailure(extent, self._reasons[extent])

    def _stop_once(self, stop: VerificationStop) -> list[VerificationAction]:
        is_first, self._has_stopped = not self._has_stopped, True
        return [stop] if is_first else []
