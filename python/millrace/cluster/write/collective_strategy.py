"""``--write collective``: all processes write an extent in one call of MPI-IO, which redistributes the bytes.

Such a call waits for every process, so none may be lost. Each reads its blocks first, sends ``say.CollectiveWriteReady``, and then
calls; the coordinator calls last, after the messages of all others. So it never waits for a lost process, and the others
wait for its messages only as long as the slowest of them reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.failure_detection import MAX_SILENCE_SECONDS
from millrace.cluster.membership import JobMembership
from millrace.cluster.transport.mpi_transport import MpiTransport
from millrace.cluster.write.write_strategy import WriteStrategy, refuse_lazy_filesystem
from millrace.core.errors import LostError, MillraceError, RefusedError
from millrace.core.wait_loop import wait_until
from millrace.output.output_parts import ExtentWriter, PreparedPart
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.write_extents import Block, OneLaneExtents, RankWrite, WriteExtents

#: Seconds between checks for pending writes, at the end.
POLL_INTERVAL_SECONDS = 0.05


class CollectiveWriteStrategy(WriteStrategy):
    """The strategy ``collective``; see the module."""

    together = True

    def __init__(self) -> None:
        self._crew: JobMembership | None = None
        self._rounds: CollectiveRounds | None = None

    def check_filesystem(self, plan: RunPlan) -> None:
        """See ``WriteStrategy``."""
        refuse_lazy_filesystem(plan, "collective")

    def create_extents(self, ranks: Iterable[int], *, in_turn: bool) -> WriteExtents[_core.OutputPiece]:
        """See ``WriteStrategy``."""
        return CollectiveExtents(ranks)

    def open_outputs(self, crew: JobMembership, paths: Mapping[int, Path], own: ExtentWriter) -> None:
        """See ``WriteStrategy``."""
        if any(len(ranks) > 1 for ranks in crew.partitions.values()):
            # A leader in a collective call forwards no messages, which the call may wait for.
            raise RefusedError(
                "--write collective: not with partitions", "use --write merge, or a larger --partition-size"
            )
        crew.send_to_all(say.OpenCollectiveOutputs([*paths]))
        crew.world.flush_sends(MAX_SILENCE_SECONDS)
        self._crew, self._rounds = (
            crew,
            CollectiveRounds(CollectiveOutputs(crew.world, paths, own), crew.world.size - 1),
        )

    def write_ready_parts(self) -> None:
        """Take part in the collective writes that all others wait in."""
        if self._rounds:
            self._rounds.write_ready_parts()

    def record_waiting_process(self, stream: int) -> None:
        """See ``WriteStrategy``."""
        if self._rounds:
            self._rounds.record_ready_process(stream)

    def drop_lost_rank(self, rank: int) -> None:
        """See ``WriteStrategy``."""
        if self._crew and self._rounds:
            self._rounds = None  # the others wait for it
            self._crew.world.broken = True
            raise LostError(
                f"{self._crew.format_rank_name(rank)} is lost, and with --write collective all must write",
                "nothing that was done is lost: the same command resumes",
            )

    def finish_collective_calls(
        self, is_writing: Callable[[], bool], has_failed: Callable[[], bool], carry: Callable[[float], object]
    ) -> None:
        """See ``WriteStrategy``."""
        if not self._crew or not self._rounds:
            return

        def is_written() -> bool:
            if is_writing():
                carry(POLL_INTERVAL_SECONDS)
            return not is_writing()

        if not wait_until(is_written, MAX_SILENCE_SECONDS, enough=has_failed):
            self._crew.world.broken = True  # some wait for ever in the call, and end with this process
            return
        self._crew.send_to_all(say.CloseCollectiveOutputs())
        self._crew.world.flush_sends(MAX_SILENCE_SECONDS)
        self._rounds.close()
        self._rounds = None

    def check_all_on_disk(self, crew: JobMembership, path: Path) -> None:
        """See ``WriteStrategy``."""
        if len(crew.departed_ranks) < crew.world.size - 1:
            # The MPI library chooses which rank writes which bytes: those of the lost rank are unknown.
            raise LostError(f"a node was lost while {path} came to the disk", "the same command resumes")


class CollectiveExtents(OneLaneExtents[Block]):
    """The assignment of one output: every rank takes part in each extent, with the blocks that it holds."""

    def _begin_writes(self, now: float, *, last: bool) -> list[RankWrite[Block]]:
        line = self._line
        if not line.blocks or not (last or line.is_ready(now)) or self._in_flight:
            return []
        shares: dict[int, list[tuple[int, Block]]] = {rank: [] for rank in sorted(self._ranks)}
        for at, block, holder in line.pop_blocks():
            shares[holder if holder is not None and holder in self._ranks else self._choose_rank()].append((at, block))
        return [self._issue_write(rank, pieces) for rank, pieces in shares.items()]

    def _issue_write(self, rank: int, pieces: Iterable[tuple[int, Block]], *, held: bool = False) -> RankWrite[Block]:
        write = super()._issue_write(rank, pieces, held=held)
        self._given[rank] += write.size
        return write


class CollectiveFile:
    """A file open for writing in all processes; each method is collective.

    Raises:
        RefusedError: MPI-IO cannot open it.
    """

    def __init__(self, world: MpiTransport, path: Path) -> None:
        self._mpi, comm = world.get_file_communicator()
        self._path = path
        try:
            self._file = self._mpi.File.Open(comm, str(path), self._mpi.MODE_WRONLY)
        except self._mpi.Exception as error:
            raise RefusedError(
                f"--write collective: the MPI-IO of this MPI cannot open {path}: {error}", "use --write merge"
            ) from error

    def write(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Write these bytes at their offsets, in order, while the other ranks write theirs.

        Raises:
            MillraceError: MPI-IO reports an error.
        """
        mpi = self._mpi
        kind: Any = mpi.BYTE
        if pieces:
            kind = mpi.BYTE.Create_hindexed([len(content) for _, content in pieces], [at for at, _ in pieces]).Commit()
        try:
            self._file.Set_view(0, mpi.BYTE, kind)
            self._file.Write_all([b"".join(content for _, content in pieces), mpi.BYTE])
        except mpi.Exception as error:
            raise MillraceError(
                f"{self._path}: MPI-IO: {error}", "the same command with --write merge resumes"
            ) from error
        if pieces:
            kind.Free()

    def close(self) -> None:
        self._file.Close()


class CollectiveOutputs:
    """The outputs that one process writes collectively."""

    def __init__(self, world: MpiTransport, paths: Mapping[int, Path], parts: ExtentWriter) -> None:
        self._parts = parts
        self._files = {stream: CollectiveFile(world, path) for stream, path in sorted(paths.items())}

    def pop_prepared_parts(self) -> list[PreparedPart]:
        """Return the parts that this process has read and can write now; each once."""
        return self._parts.pop_prepared()

    def write_prepared_part(self, prepared: PreparedPart) -> None:
        """Write a part together with all other ranks; blocks until they do."""
        self._files[prepared.stream].write(prepared.pieces)
        self._parts.confirm_written(prepared.stream, prepared.number)

    def close(self) -> None:
        """Close all files, together with all other ranks."""
        for file in self._files.values():
            file.close()
        self._files.clear()


class CollectiveRounds:
    """The coordinator's side: it enters the collective write of a stream after all other ranks."""

    def __init__(self, together: CollectiveOutputs, n_others: int) -> None:
        self._together, self._n_others = together, n_others
        self._ready: dict[int, int] = {}
        self._own: dict[int, PreparedPart] = {}

    def record_ready_process(self, stream: int) -> None:
        """Record that another process is ready to write."""
        self._ready[stream] = self._ready.get(stream, 0) + 1

    def write_ready_parts(self) -> None:
        """Write the parts that all others are ready for."""
        for prepared in self._together.pop_prepared_parts():
            self._own[prepared.stream] = prepared
        for stream in [stream for stream in self._own if self._ready.get(stream) == self._n_others]:
            del self._ready[stream]
            self._together.write_prepared_part(self._own.pop(stream))

    def close(self) -> None:
        """Close all files; collective."""
        self._together.close()
