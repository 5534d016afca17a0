"""Effects of verification: batches are cut again at other boundaries, and the outputs of both runs are compared.

``millrace.scheduler.verification`` decides what runs again, and what a difference means. The output of a second run is
committed like a result, under the task kind ``millrace.core.tasks.CompareTask``. So it works wherever tasks work, and a
resumed run continues with the committed pieces.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import TogetherError, UnverifiedError
from millrace.core.tasks import CommittedRecords
from millrace.core.text_format import format_count, format_records
from millrace.core.tool_use import InputUse, OutputUse, ToolUse
from millrace.execution.batch_table import ensure_spooled
from millrace.node.batch_files import SkippedRecords, SpooledBatch, recut_batches
from millrace.planning.program_lookup import explain_doubts, is_unknown_tool
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.output_differences import (
    DifferenceExplanation,
    MismatchedOutput,
    explain_difference,
    find_first_difference,
    format_line,
)
from millrace.scheduler.verification import (
    CompareOutputs,
    OutputVerification,
    RecutStretch,
    ReleasePieces,
    ReportJointFailure,
    ReportMismatch,
    ReportOverwrite,
    RerunId,
    RunPiece,
    VerificationAction,
    VerificationStop,
)
from millrace.scheduler.verification_stretches import SHARE, RecordExtent, StretchChoice, VerificationStretches

#: Bytes of an output in which the first differing line and its likely cause are searched.
MAX_SHOWN_BYTES = 4 << 20

#: Unpacking command of each compression.
_UNPACKS = {"gzip": "zcat", "bgzf": "zcat", "zstd": "zstdcat", "bzip2": "bzcat", "xz": "xzcat"}


TaskExtents = Sequence[tuple[RecordExtent, CommittedRecords]]


class OutputVerifier:
    """Runner of the actions of ``OutputVerification``; their results are reported to it at once.

    Args:
        stretches: The parts of the input to verify; see ``choose_stretches``.
        spool: Folder with the bytes of batches.
        looks: Comparison tasks that an earlier run committed, by their records.
        results: Tasks that an earlier run committed, by their first record.
        before: Output files that existed before this run, which has not written anything yet.
    """

    def __init__(
        self, plan: RunPlan, stretches: VerificationStretches, spool: Path, looks: Mapping[RecordExtent, CommittedRecords],
        results: Mapping[int, CommittedRecords], before: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._plan, self._spool, self._results, self._before = plan, spool, results, before
        self.decisions = OutputVerification(
            stretches=stretches, earlier=looks, has_outputs=bool(before), is_packed=bool(find_packed_input(plan.use)),
            is_unknown=is_unknown_tool(plan.use), reverses_ends=bool(plan.job.verify) and is_unknown_tool(plan.use),
        )  # fmt: skip
        #: The reason to stop the run.
        self.error: UnverifiedError | None = None
        #: Committed batches with their files, and their tasks.
        self._kept: dict[RecordExtent, tuple[SpooledBatch, CommittedRecords]] = {}
        #: The pieces of each rerun.
        self._pieces: dict[RerunId, list[SpooledBatch]] = {}

    def add_skipped(self, skipped: SkippedRecords) -> None:
        """Add records that an earlier run committed."""
        task = self._results.get(skipped.first)
        if skipped.batch and task and not task.quarantined:
            self.decisions.add_batch(skipped.batch.first, skipped.batch.last)
            self.add_committed(skipped.batch, task, 0.0, 0.0)
        else:
            self.decisions.skip_batch(skipped.first, skipped.last)
        if skipped.batch:
            _remove_batch_files(skipped.batch)

    def add_committed(self, batch: SpooledBatch, task: CommittedRecords, seconds: float, cpu_seconds: float) -> None:
        """Add a committed batch, and link its files if it is verified: the caller is about to remove them."""
        self.decisions.record_commit(batch.first, batch.last, seconds, batch.bytes, cpu_seconds)
        if (batch.first, batch.last) in self.decisions.kept:
            self._kept[batch.first, batch.last] = (_link_batch_files(batch), task)
        self._remove_unneeded_batches()

    def pop_ready_pieces(self, now: float, *, done: bool) -> list[tuple[RunPiece, SpooledBatch]]:
        """Return the pieces to run ``now``, in seconds of the run, with their bytes.

        Args:
            done: Whether every batch is committed or quarantined.
        """
        self._run_actions(self.decisions.start_stretches(now, done=done))
        return [(piece, self._pieces[piece.rerun][piece.number]) for piece in self.decisions.pop_pieces()]

    def finish_piece(self, piece: RunPiece, task: CommittedRecords | None) -> None:
        """Record the end of a piece; ``task`` is its committed task, None if it failed."""
        self._run_actions(self.decisions.finish_piece(piece, task))

    def _run_actions(self, actions: Sequence[VerificationAction]) -> None:
        for action in actions:
            match action:
                case RecutStretch(rerun, batches, sizes):
                    pieces = self._pieces[rerun] = self._recut_stretch(rerun, batches, sizes)
                    self._run_actions(self.decisions.add_pieces(rerun, [(each.first, each.last) for each in pieces]))
                case ReleasePieces(rerun):
                    for piece in self._pieces.pop(rerun):
                        _remove_batch_files(piece)
                case CompareOutputs(rerun, batches, now):
                    mismatch = self._compare_outputs([(each, self._kept[each][1]) for each in batches], now)
                    self._run_actions(self.decisions.record_comparison(rerun, mismatch))
                case ReportMismatch() | ReportOverwrite() | ReportJointFailure():
                    self.error = self._build_error(action)
        self._remove_unneeded_batches()

    def _remove_unneeded_batches(self) -> None:
        for extent in self._kept.keys() - self.decisions.kept:
            _remove_batch_files(self._kept.pop(extent)[0])

    def _recut_stretch(
        self, rerun: RerunId, batches: Sequence[RecordExtent], sizes: Sequence[int]
    ) -> list[SpooledBatch]:
        use, job, cwd = self._plan.use, self._plan.job, self._plan.command.cwd
        kept, name = [self._kept[each][0] for each in batches], self._spool / f"look-{rerun}"
        return recut_batches(kept, sizes, use.inputs, cwd, job.record_start, job.record_end, name)

    def _compare_outputs(self, then: TaskExtents, now: TaskExtents) -> MismatchedOutput | None:
        found = (compare_output(number, output, then, now) for number, output in enumerate(self._plan.use.outputs))
        return next(filter(None, found), None)

    def _build_error(self, action: VerificationStop) -> UnverifiedError:
        tool = get_tool_name(self._plan)
        match action:
            case ReportMismatch():
                return build_mismatch_error(
                    tool, action, packed=find_packed_input(self._plan.use), view=self._plan.view
                )
            case ReportOverwrite():
                return build_overwrite_error(tool, self._before)
            case ReportJointFailure(extent, reason):
                return TogetherError(
                    f"{tool} fails on {format_records(*extent)} together, and on no part of them: {reason}",
                    "the command by itself fails there, too, or what it makes of a record depends on those before it: repair the input, or run it by itself",
                )

    def describe_outcome(self, records: int) -> str:
        """Describe what was verified of ``records`` records; empty if there is nothing to say."""
        plan, stretches, n_failed = self._plan, self.decisions.stretches, self.decisions.n_failed
        why = explain_doubts(plan.use, get_tool_name(plan))
        said = "; it treats each record by itself, as said with --independent" if plan.job.independent else ""
        unknown = f"{why}{said}: " if why else ""
        share = stretches.share
        if share == 0:
            return f"{unknown}not checked (--verify 0)" if unknown else ""
        if not records or (stretches.n_committed == 1 and stretches.one_is_serial):
            return f"{unknown}nothing to check, as all of the input was one task, which is the serial run itself"
        n = sum(last - first for first, last in stretches.checked)
        failed = f"; {format_count(n_failed, 'stretch')} not, as the tool failed on parts" if n_failed else ""
        if not n:
            return f"{unknown}not checked{failed}"
        how = "run again" if plan.use.cost.max_records == 1 else "cut elsewhere"
        rest = (
            f"; what it does only among the other {records - n:,} would not show"
            if is_unknown_tool(plan.use) and n < records
            else ""
        )
        return f"{unknown}{'checked on' if unknown else 'verified:'} {n:,} of {records:,} records {how}, all bytes equal{failed}{rest}"


def _link_batch_files(batch: SpooledBatch) -> SpooledBatch:
    """Return the batch with hard links of its own to its files."""
    ensure_spooled(batch)
    paths = []
    for path in batch.spooled:
        paths.append(path.with_name(f"kept-{batch.first}-{path.name}"))
        if path.exists():  # false where the files are the records themselves
            os.link(path, paths[-1])
    return msgspec.structs.replace(batch, spooled=tuple(paths))


def _remove_batch_files(batch: SpooledBatch) -> None:
    """Remove the files of a batch."""
    for path in batch.spooled:
        path.unlink(missing_ok=True)


def compare_output(number: int, output: OutputUse, then: TaskExtents, now: TaskExtents) -> MismatchedOutput | None:
    """Compare one output of both runs; return the difference, or None if the bytes are equal."""
    if output.layout != "file":
        return _compare_named_files(number, output, then, now)
    before, after = _select_blocks(number, then), _select_blocks(number, now)
    if not before and not after:
        return None
    was, is_now = (
        _core.joined(output.join, [(n, block) for _, n, block in each], output.volatile, MAX_SHOWN_BYTES)
        for each in (before, after)
    )
    if was == is_now:
        return None
    raw = [[_read_block_head(output, n, block)[0] for _, n, block in each] for each in (before, after)]
    difference = find_first_difference(was[0], is_now[0])
    where = _span_extents(then)
    if output.join == "concat":
        ends = [
            _locate_offset(difference.offset, each, texts) for each, texts in zip((before, after), raw, strict=True)
        ]
        where = max(first for first, _ in ends), min(last for _, last in ends)
    return MismatchedOutput(output.name, raw[0], raw[1], where, difference)


def _span_extents(tasks: TaskExtents) -> RecordExtent:
    return min(first for (first, _), _ in tasks), max(last for (_, last), _ in tasks)


def _select_blocks(number: int, tasks: TaskExtents) -> list[tuple[RecordExtent, int, _core.BlockRef]]:
    return [
        (extent, extent[1] - extent[0], block)
        for extent, task in tasks
        for block in task.blocks
        if block.stream == number
    ]


def _locate_offset(
    offset: int, blocks: Sequence[tuple[RecordExtent, int, _core.BlockRef]], texts: Sequence[bytes]
) -> RecordExtent:
    """Return the records of the block that holds byte ``offset`` of all blocks together."""
    for (extent, _, _), text in zip(blocks, texts, strict=True):
        if offset < len(text):
            return extent
        offset -= len(text)
    return blocks[-1][0] if blocks else (0, 2**63)


def _read_block_head(output: OutputUse, n_records: int, block: _core.BlockRef) -> tuple[bytes, int, int]:
    """Return the first bytes of a block, and the length and checksum of the whole block."""
    return _core.joined("concat", [(n_records, block)], output.volatile, MAX_SHOWN_BYTES)


def _compare_named_files(
    number: int, output: OutputUse, then: TaskExtents, now: TaskExtents
) -> MismatchedOutput | None:
    """Compare an output that consists of several files; of files with the same name, the last one counts."""
    files = [
        {block.name: _read_block_head(output, n, block) for _, n, block in _select_blocks(number, tasks)}
        for tasks in (then, now)
    ]
    for name in sorted(files[0].keys() | files[1].keys()):
        was, is_now = files[0].get(name), files[1].get(name)
        if was != is_now:
            where, before, after = _span_extents(then), was[0] if was else b"", is_now[0] if is_now else b""
            return MismatchedOutput(os.fsdecode(name), [before], [after], where, find_first_difference(before, after))
    return None


def _suggest_unpacking(path: str, compression: str, form: str, other: DifferenceExplanation) -> DifferenceExplanation:
    """Return the likely cause where the second run got the same records compressed to other bytes."""
    source = "< FILE" if path == "-" else path
    return DifferenceExplanation(
        f"the tool does not unpack its input, which is compressed ({compression}), or {other.what.rpartition(': ')[2]}",
        f"if it does not: {_UNPACKS[compression]} {source} | millrace run --format {form} -- ...; else {other.hint}",
    )


def build_mismatch_error(
    tool: str, report: ReportMismatch, *, packed: InputUse | None = None, view: str = ""
) -> UnverifiedError:
    """Build the error for a tool that gave other bytes when records were run again.

    Args:
        view: Description of the tool's view of the working folder; empty: the folder itself.
        packed: An input that was compressed to other bytes for the second run.
    """
    extent, found, repeatable = report.extent, report.mismatch, report.repeatable
    look = explain_difference(found.then, found.now, repeatable=repeatable)
    if packed and packed.packed and not repeatable:
        look = _suggest_unpacking(packed.path, packed.packed, packed.format, look)
    if view and not repeatable:
        look = DifferenceExplanation(
            f"the tool looks at more of its folder than links to what is in it show it ({view}), or {look.what}",
            f"if it does, work in a folder that millrace doctor finds well; else {look.hint}",
        )
    at, difference = found.records, found.difference
    how = ("in the opposite order" if report.reversed else "in other pieces") if repeatable else "as they were"
    not_serial = "may not be" if report.reversed else "is not"
    records = f"record {at[0] + 1}" if at[1] == at[0] + 1 else f"records {at[0] + 1} to {at[1]}"
    return UnverifiedError(
        f"verification failed: {tool} gave other bytes for records {extent[0] + 1} to {extent[1]} when they were run "
        f"again {how}\n"
        f"  {found.output}: first in line {difference.line + 1} of what they give, at {records}\n"
        f"    committed: {format_line(difference.then)}\n"
        f"    run again: {format_line(difference.now)}\n"
        f"  it looks like: {look.what}",
        f"{look.hint}; --verify 0 lets the output through as it is, which {not_serial} the serial tool's",
    )


def build_overwrite_error(tool: str, before: Sequence[str]) -> UnverifiedError:
    """Build the error for a tool that writes other bytes where its outputs already exist.

    Args:
        before: The outputs that already exist.
    """
    return UnverifiedError(
        f"{', '.join(before)}: is there already, and {tool} does not simply write over it: it adds to it, reads it, keeps it, or fails",
        f"it is as it was, and nothing was written: remove it with rm {shlex.join(before)}, or name another output; "
        "--verify 0 writes over it all the same",
    )


def get_tool_name(plan: RunPlan) -> str:
    """Return the name of the tool."""
    return Path(plan.command.argv[0]).name


def find_packed_input(use: ToolUse) -> InputUse | None:
    """Return an input that the tool gets compressed, or None.

    Each execution gets it compressed to other bytes, which reveals a tool that does not unpack it.
    """
    return next((item for item in use.inputs if item.packed), None)


def choose_stretches(plan: RunPlan, run_id: bytes, *, doubts_one: bool = False) -> VerificationStretches:
    """Choose the parts of the input to verify: as requested, else a small part if the tool or its version is unknown.

    Args:
        doubts_one: Whether a task for all of the input may not be the serial run itself, as outputs exist already, or an earlier start has run it.
    """
    share = plan.job.verify
    looks = 0.0 if share is None and not explain_doubts(plan.use, get_tool_name(plan)) else share
    return VerificationStretches(
        looks,
        run_id,
        divisible=plan.use.cost.max_records != 1,
        one_is_serial=not find_packed_input(plan.use) and not doubts_one,
    )


def choose_short_batches(plan: RunPlan, run_id: bytes) -> StretchChoice | None:
    """Choose which batches are cut short for verification; None where the user sets ``--verify`` or the batch size."""
    is_sampled = plan.job.verify is None and is_unknown_tool(plan.use) and plan.use.cost.max_records != 1
    return (
        StretchChoice(SHARE, run_id)
        if is_sampled and not plan.job.batch_size[0] and not plan.job.batch_size[1]
        else None
    )


def select_kept_batches(stretches: VerificationStretches, tasks: Sequence[CommittedRecords]) -> frozenset[int]:
    """Return first records of the committed batches that this run may verify: chosen ones, and the last two."""
    found = {task.first for task in tasks[-2:]} if stretches.share != 0 else set[int]()
    reached = 0
    for task in tasks:
        if task.first != reached or task.quarantined:
            stretches.skip_batch(reached, task.first)
        if not task.quarantined and stretches.add_batch(task.first, task.last):
            found.add(task.first)
        reached = task.last
    return frozenset(found)
