"""The outputs of a job of several processes: the coordinator assigns parts to ranks, and handles no bytes itself.

Where an output has a header, a footer or numbers that run on, the rank that writes a block joins it. Who committed the
block has described it (``crates/millrace-core/src/join/layout.rs``), so the coordinator knows where it begins, and
tells the writer what the join must know of the blocks before. It writes the footer itself, at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.journal_visibility import is_lazy_filesystem
from millrace.cluster.membership import JobMembership
from millrace.cluster.write.rank_strategies import choose_write_strategy
from millrace.core.errors import MillraceError
from millrace.core.tasks import CommittedRecords
from millrace.core.text_format import format_records
from millrace.output.output_parts import (
    ExtentWriter,
    OrderedWriter,
    OutputPart,
    PartsWritten,
    ReorderBuffer,
    explain_lone_writer,
    read_inode_number,
)
from millrace.output.output_streams import OutputStreams, name_output_in_errors, resolve_destination
from millrace.output.saved_outputs import BlockSamples
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.write_extents import WriteExtents


def find_shared_outputs(plan: RunPlan, message: Callable[[str], None]) -> dict[int, int]:
    """Find the outputs that any process may write parts of, each with its inode number (``read_inode_number``).

    Their files exist already. For each other output the user is shown the reason, if ``--write`` names a strategy.

    Raises:
        RefusedError: See ``choose_write_strategy``.
    """
    found: dict[int, int] = {}
    if not choose_write_strategy(plan).shares:
        return found
    cwd = plan.command.cwd
    for stream, output in enumerate(plan.use.outputs):
        reason = explain_lone_writer(output, cwd, plan.run_dir)
        path = resolve_destination(output, cwd)
        if not reason and path and (number := read_inode_number(path, plan.run_dir)) is not None:
            found[stream] = number
        elif plan.job.write != "auto":
            name = "standard output" if output.path == "-" else output.path
            message(f"{name} is written by the coordinator: {reason}")
    return found


class ParallelOutput:
    """The parallel counterpart of ``millrace.output.output_parts.OrderedWriter``.

    All calls come from the thread that carries messages. This class queues messages and records received ones, but
    carries none: a caller that waits for the end has to carry them.

    Args:
        streams: All outputs, open at the coordinator.
        candidates: Outputs that all ranks may write, if all of them see the same files; each with its inode number.
        journals: The rank of each journal of this start, by path.
    """

    def __init__(
        self, plan: RunPlan, streams: OutputStreams, candidates: Mapping[int, int], crew: JobMembership,
        journals: Mapping[Path, int], wake: Callable[[], None], message: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._crew, self._journals = crew, journals
        cwd, self._strategy = plan.command.cwd, choose_write_strategy(plan)
        in_turn = is_lazy_filesystem(plan.run_dir)
        self._extents: dict[int, WriteExtents[_core.OutputPiece]] = {}
        self._places: dict[int, tuple[str, Path]] = {}
        for stream in candidates:
            output = plan.use.outputs[stream]
            path = resolve_destination(output, cwd)
            blind = [rank for rank in sorted(crew.ready) if stream not in crew.ready[rank].sees]
            if blind:
                message(
                    f"{output.path} is written by the coordinator: {crew.format_rank_name(blind[0])} does not see the same file"
                )
            elif path and (extents := self._strategy.create_extents(range(crew.world.size), in_turn=in_turn)):
                self._extents[stream] = extents
                self._places[stream] = (output.name, path)
        streams.skip_streams(self._extents)
        self._outputs = plan.use.outputs
        self._layouts = {stream: _core.OutputLayout(self._outputs[stream].join) for stream in self._extents}
        self._samples = {stream: BlockSamples(self._outputs[stream].join) for stream in self._extents}
        self._inodes = {stream: candidates[stream] for stream in self._extents}
        self._run_dir = plan.run_dir
        self._changed: dict[str, str] = {}
        self._alone = OrderedWriter(streams, wake)
        self._own = ExtentWriter(plan.use.outputs, cwd, self._inodes, lasting=in_turn, seconds=plan.job.sync, wake=wake)
        if self._places:
            self._strategy.open_outputs(crew, {stream: path for stream, (_, path) in self._places.items()}, self._own)
        self._ordered: ReorderBuffer[CommittedRecords] = ReorderBuffer()
        self._draining = self._settling = False
        self._misfit: MillraceError | None = None

    @property
    def error(self) -> BaseException | None:
        """The error after which nothing more is written."""
        return self._alone.error or self._own.error or self._misfit

    def add_task(self, task: CommittedRecords) -> None:
        """See ``OrderedWriter``."""
        self._alone.add_task(task)
        try:
            for _, _, ready in self._ordered.push(task.first, task.last, task):
                for block in ready.blocks if not self._misfit else ():
                    if block.stream in self._extents:
                        self._place_block(ready, block)
        except MillraceError as error:
            self._misfit = error

    def _place_block(self, task: CommittedRecords, block: _core.BlockRef) -> None:
        with name_output_in_errors(self._outputs[block.stream], format_records(task.first, task.last)):
            piece = self._layouts[block.stream].place(task.last - task.first, block)
        self._extents[block.stream].add_block(piece, self._journals.get(block.journal))
        self._samples[block.stream].add_piece(piece)

    # Messages

    def hand_out_writes(self, now: float) -> None:
        """Assign the parts that can be written now to ranks."""
        for written in self._own.pop_written():
            self._record_written(written)
        self._strategy.write_ready_parts()
        for stream, extents in self._extents.items():
            if self._settling:
                break
            for write in extents.issue_writes(now, last=self._draining):
                part = OutputPart(stream, write.number, write.pieces, write.held, self._strategy.together)
                if write.rank:
                    self._crew.send_to_rank(write.rank, say.WriteOutputPart(part))
                else:
                    self._own.add_part(part)
            for write in extents.release_writes():
                if write.rank:
                    self._crew.send_to_rank(write.rank, say.WriteHeldPart(stream, write.number))
                else:
                    self._own.release_part(stream, write.number)

    def record_written_parts(self, found: Sequence[PartsWritten]) -> None:
        """Record parts that another process has written."""
        for written in found:
            self._record_written(written)

    def record_waiting_process(self, stream: int) -> None:
        """Record that another process waits in a collective write."""
        self._strategy.record_waiting_process(stream)

    def _record_written(self, written: PartsWritten) -> None:
        for stream, number in written.parts:
            self._extents[stream].mark_written(number)
        for stream, number in written.safe:
            self._extents[stream].mark_synced([number])

    def drop_lost_rank(self, rank: int) -> None:
        """Drop a lost process; reassign the parts that it may not have written."""
        self._strategy.drop_lost_rank(rank)
        for extents in self._extents.values():
            extents.remove_rank(rank)

    # The end

    def drain_tasks(self, timeout_seconds: float) -> int | None:
        """See ``OrderedWriter``; never waits, as the others can only write while the caller carries messages."""
        self._draining = True
        done = self._alone.drain_tasks(0)
        if self.error or (done is not None and all(each.has_written_all for each in self._extents.values())):
            return self._ordered.next
        return None

    def finish_collective_calls(self, carry: Callable[[float], object]) -> None:
        """Begin no more writes, and finish the collective writes in progress.

        Args:
            carry: Carries messages, for at most the given seconds.
        """
        self._settling = True
        self._strategy.finish_collective_calls(self._is_writing, lambda: self.error is not None, carry)

    def _is_writing(self) -> bool:
        return any(each.is_writing for each in self._extents.values())

    def finish_outputs(self) -> dict[str, int]:
        """See ``OrderedWriter``; to be called after the others have synced their parts."""
        self._own.close()
        sizes = {}
        for stream, extents in self._extents.items():
            name, path = self._places[stream]
            for rank in {0, *self._crew.departed_ranks}:
                extents.mark_rank_synced(rank)
            self._strategy.check_all_on_disk(self._crew, path)
            end = self._layouts[stream].end()
            sizes[name] = extents.size + len(end)
            if read_inode_number(path, self._run_dir) != self._inodes[stream]:
                self._changed[name] = "is another file now" if path.exists() else "is gone"
                continue
            if left := extents.list_unsynced():  # written by ranks that were lost at the very end
                again = _core.PartWriter(str(path), self._outputs[stream].join)
                for write in left:
                    again.write(write.pieces)
                again.sync()
            if words := self._samples[stream].find_difference(path):
                self._changed[name] = words
            with path.open("r+b") as file:
                file.seek(extents.size)
                file.write(end)
                file.truncate()  # an earlier run may have left a longer file
                file.flush()
                os.fsync(file.fileno())
        return sizes | self._alone.finish_outputs()

    def find_changed_outputs(self) -> dict[str, str]:
        """See ``OrderedWriter``."""
        return self._changed | self._alone.find_changed_outputs()
