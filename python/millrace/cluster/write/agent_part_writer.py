"""The writer of a node agent: the parts of outputs that the coordinator assigns to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.cluster import messages as say
from millrace.cluster.failure_detection import MAX_SILENCE_SECONDS
from millrace.cluster.journal_visibility import is_lazy_filesystem
from millrace.cluster.transport.mpi_transport import MpiTransport
from millrace.output.output_parts import LEASE_SECONDS, ExtentWriter, map_output_paths, read_inode_number

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
                setup.use.outputs, cwd, lasting=is_lazy_filesystem(run_dir), seconds=setup.sync, wake=wake
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
