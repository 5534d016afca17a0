"""Strategies of ``--write`` in which ranks write by themselves, the choice among all strategies, and the agent's writer.

``coordinator``: the coordinator alone writes all outputs, not only those that are no concatenations. ``individual``:
all ranks write the blocks that they hold at once; the file has holes until the end. ``merge``, the default: each
extent (the blocks that are ready) is written by the rank that holds most of it. That rank fetches the other bytes
first. Several ranks write at the same time, each its own extent, where the filesystem allows it. Elsewhere they write
one after the other, so the file never has a hole; the next writers fetch in the meantime.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.failure_detection import MAX_SILENCE_SECONDS
from millrace.cluster.journal_visibility import is_lazy_filesystem
from millrace.cluster.transport.mpi_transport import MpiTransport
from millrace.cluster.write.write_strategy import WriteStrategy, refuse_lazy_filesystem
from millrace.output.output_parts import LEASE_SECONDS, ExtentWriter, map_output_paths, read_inode_number
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.write_extents import (
    MAX_EXTENT_BYTES,
    MIN_EXTENT_BYTES,
    Block,
    OneLaneExtents,
    RankWrite,
    WriteExtents,
    WriteLane,
)

if TYPE_CHECKING:
    from millrace.cluster.write.collective_strategy import CollectiveOutputs


#: Messages of the coordinator about output parts.
Order = say.WriteOutputPart | say.WriteHeldPart | say.OpenCollectiveOutputs | say.CloseCollectiveOutputs


class AgentPartWriter:
    """The parts of outputs that one node agent writes.

    Args:
        tell: Sends a message to the coordinator.
        wake: Called from another thread when there is something to report.
    """

    def __init__(
        self, world: MpiTransport, setup: say.SetUpNode, tell: Callable[[say.Plain], None], wake: Callable[[], None]
    ) -> None:
        self._world, self._tell = world, tell
        cwd, run_dir = Path(setup.cwd), Path(setup.run_dir)
        self._paths = map_output_paths(setup.use.outputs, setup.shared, cwd)
        #: Outputs that are the same files here as at the coordinator.
        self.sees = frozenset(
            stream for stream, path in self._paths.items() if read_inode_number(path, run_dir) == setup.shared[stream]
        )
        self._together: CollectiveOutputs | None = None
        self._parts: ExtentWriter | None = None
        if self.sees:
            self._parts = ExtentWriter(
                setup.use.outputs, cwd, setup.shared, lasting=is_lazy_filesystem(run_dir), seconds=setup.sync, wake=wake
            )
            self.renew_lease()

    def renew_lease(self) -> None:
        """Renew the lease on assigned parts: the coordinator lives, so it has not reassigned them."""
        if self._parts:
            self._parts.renew_lease(LEASE_SECONDS)

    def execute_order(self, order: Order) -> bool:
        """Execute a message of the coordinator; return false if it is not allowed in this state."""
        match order:
            case say.WriteOutputPart(part) if self._parts:
                self._parts.add_part(part)
            case say.WriteHeldPart(stream, number) if self._parts:
                self._parts.release_part(stream, number)
            case say.OpenCollectiveOutputs(streams) if self._parts:
                from millrace.cluster.write.collective_strategy import CollectiveOutputs  # few jobs write so

                self._together = CollectiveOutputs(
                    self._world, {stream: self._paths[stream] for stream in streams}, self._parts
                )
            case say.CloseCollectiveOutputs() if self._together:
                self._together.close()
                self._together = None
            case _:
                return False
        return True

    def report_written_parts(self) -> None:
        """Report written parts, and take part in collective writes.

        Raises:
            MillraceError: A part could not be written.
        """
        if not self._parts:
            return
        if self._parts.error:
            raise self._parts.error
        if written := self._parts.pop_written():
            self._tell(say.OutputPartsWritten(written))
        if self._together:
            for prepared in self._together.pop_prepared_parts():
                self._tell(say.CollectiveWriteReady(prepared.stream))
                self._world.flush_sends(MAX_SILENCE_SECONDS)  # no message is sent during the call
                self._together.write_prepared_part(prepared)

    def close(self) -> None:
        """Sync the written parts to disk."""
        if self._parts:
            self._parts.close()


class CoordinatorWriteStrategy(WriteStrategy):
    """The strategy ``coordinator``; see the module."""

    shares = False


class IndividualWriteStrategy(WriteStrategy):
    """The strategy ``individual``; see the module."""

    def check_filesystem(self, plan: RunPlan) -> None:
        """See ``WriteStrategy``."""
        refuse_lazy_filesystem(plan, "individual")

    def create_extents(self, ranks: Iterable[int], *, in_turn: bool) -> WriteExtents[_core.OutputPiece]:
        """See ``WriteStrategy``."""
        return IndividualExtents(ranks)


class IndividualExtents(WriteExtents[Block]):
    """The assignment of one output: a lane for each rank."""

    def __init__(self, ranks: Iterable[int]) -> None:
        super().__init__(ranks)
        self._lanes: dict[int, WriteLane[Block]] = defaultdict(WriteLane)

    def _queue_block(self, offset: int, block: Block, holder: int | None) -> None:
        rank = holder if holder is not None and holder in self._ranks else self._choose_rank()
        self._given[rank] += block.length
        self._lanes[rank].add_block(offset, block, holder)

    @property
    def _has_waiting_blocks(self) -> bool:
        return any(lane.blocks for lane in self._lanes.values())

    def _begin_writes(self, now: float, *, last: bool) -> list[RankWrite[Block]]:
        busy = {write.rank for write in self._in_flight.values()}
        return [
            self._issue_write(rank, [(at, block) for at, block, _ in lane.pop_blocks()])
            for rank, lane in self._lanes.items()
            if rank not in busy and lane.blocks and (last or lane.is_ready(now))
        ]

    def remove_rank(self, rank: int) -> None:
        """See ``WriteExtents``."""
        super().remove_rank(rank)
        if lane := self._lanes.pop(rank, None):
            heir = self._lanes[self._choose_rank()]
            heir.blocks.extend(lane.blocks)
            heir.size += lane.size


#: Extents in flight where one is written after the other: the bytes of the next ones are fetched ahead.
MAX_EXTENTS_IN_FLIGHT = 3


class MergeWriteStrategy(WriteStrategy):
    """The strategy ``merge``; see the module."""

    def create_extents(self, ranks: Iterable[int], *, in_turn: bool) -> WriteExtents[_core.OutputPiece]:
        """See ``WriteStrategy``."""
        return MergedExtents(ranks, in_turn=in_turn)


class MergedExtents(OneLaneExtents[Block]):
    """The assignment of one output: merged extents, each for the rank that holds most of it.

    Args:
        ranks: Ranks that can write.
        in_turn: Whether one extent is written after the other.
    """

    def __init__(self, ranks: Iterable[int], *, in_turn: bool = False) -> None:
        super().__init__(ranks)
        self._in_turn = in_turn
        #: Numbers of assigned extents that must not be written yet.
        self._held: set[int] = set()

    def _begin_writes(self, now: float, *, last: bool) -> list[RankWrite[Block]]:
        found, line = [], self._line
        while line.blocks and (last or line.is_ready(now)) and (idle := self._find_idle_ranks()):
            # Spread the waiting blocks over all ranks that could write now.
            share = MAX_EXTENT_BYTES if self._in_turn else max(MIN_EXTENT_BYTES, line.size // len(idle))
            extent = [*line.pop_blocks(min(share, MAX_EXTENT_BYTES))]
            held = self._in_turn and bool(self._in_flight)
            pieces = [(at, block) for at, block, _ in extent]
            found.append(self._issue_write(self._choose_main_holder(extent, idle), pieces, held=held))
        return found

    def _find_idle_ranks(self) -> set[int]:
        """Return the ranks that may begin an extent now."""
        if self._in_turn and len(self._in_flight) >= MAX_EXTENTS_IN_FLIGHT:
            return set()
        return self._ranks - {write.rank for write in self._in_flight.values()}

    def _choose_main_holder(self, extent: Iterable[tuple[int, Block, int | None]], ranks: Iterable[int]) -> int:
        holds: Counter[int] = Counter()
        for _, block, holder in extent:
            if holder is not None:
                holds[holder] += block.length
        return max(ranks, key=lambda rank: (holds[rank], -self._given[rank], -rank))

    def _issue_write(self, rank: int, pieces: Iterable[tuple[int, Block]], *, held: bool = False) -> RankWrite[Block]:
        write = super()._issue_write(rank, pieces, held=held)
        self._given[rank] += write.size
        if held:
            self._held.add(write.number)
        return write

    def release_writes(self) -> list[RankWrite[Block]]:
        """Release the first held write if everything before it is written; return it, or none."""
        if self._again or not self._held or len(self._held) < len(self._in_flight):
            return []
        first = min(self._held, key=lambda number: self._in_flight[number].pieces[0][0])
        self._held.remove(first)
        return [self._in_flight[first]]

    def _prepare_rewrite(self, write: RankWrite[Block]) -> RankWrite[Block]:
        again = msgspec.structs.replace(write, held=write.number in self._held)
        self._held.discard(write.number)
        return again


def choose_write_strategy(plan: RunPlan) -> WriteStrategy:
    """Choose the strategy that ``--write`` names.

    Raises:
        RefusedError: The filesystem of the run does not allow it.
    """
    found = _create_strategy(plan.job.write)
    found.check_filesystem(plan)
    return found


def _create_strategy(way: str) -> WriteStrategy:
    match way:
        case "coordinator":
            return CoordinatorWriteStrategy()
        case "individual":
            return IndividualWriteStrategy()
        case "collective":
            from millrace.cluster.write.collective_strategy import CollectiveWriteStrategy  # few jobs write so

            return CollectiveWriteStrategy()
        case _:
            return MergeWriteStrategy()
