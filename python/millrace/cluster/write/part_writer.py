"""The writer of a node agent: the parts of outputs that the coordinator assigns to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.cluster import messages as say
from millrace.cluster.failures import SILENCE_SECONDS
from millrace.cluster.journal_visibility import is_lazy
from millrace.cluster.mpi import World
from millrace.output.parts import LEASE_SECONDS, ExtentWriter, number_of, paths_of

if TYPE_CHECKING:
    from millrace.cluster.write.collective import Together

#: Messages of the coordinator about output parts.
Order = say.Write | say.WriteNow | say.OpenTogether | say.CloseTogether


class PartWriter:
    """The parts of outputs that one node agent writes.

    Args:
        tell: Sends a message to the coordinator.
        wake: Called from another thread when there is something to report.
    """

    def __init__(
        self, world: World, setup: say.Setup, tell: Callable[[say.Plain], None], wake: Callable[[], None]
    ) -> None:
        self._world, self._tell = world, tell
        cwd, run_dir = Path(setup.cwd), Path(setup.run_dir)
        self._paths = paths_of(setup.use.outputs, setup.shared, cwd)
        #: Outputs that are the same files here as at the coordinator.
        self.sees = frozenset(
            stream for stream, path in self._paths.items() if number_of(path, run_dir) == setup.shared[stream]
        )
        self._together: Together | None = None
        self._parts: ExtentWriter | None = None
        if self.sees:
            self._parts = ExtentWriter(setup.use.outputs, cwd, lasting=is_lazy(run_dir), seconds=setup.sync, wake=wake)
            self.heard()

    def heard(self) -> None:
        """Renew the lease on assigned parts: the coordinator lives, so it has not reassigned them."""
        if self._parts:
            self._parts.allow(LEASE_SECONDS)

    def obey(self, order: Order) -> bool:
        """Execute a message of the coordinator; return false if it is not allowed in this state."""
        match order:
            case say.Write(part) if self._parts:
                self._parts.put(part)
            case say.WriteNow(stream, number) if self._parts:
                self._parts.release(stream, number)
            case say.OpenTogether(streams) if self._parts:
                from millrace.cluster.write.collective import Together  # few jobs write so

                self._together = Together(self._world, {stream: self._paths[stream] for stream in streams}, self._parts)
            case say.CloseTogether() if self._together:
                self._together.close()
                self._together = None
            case _:
                return False
        return True

    def turn(self) -> None:
        """Report written parts, and take part in collective writes.

        Raises:
            MillraceError: A part could not be written.
        """
        if not self._parts:
            return
        if self._parts.error:
            raise self._parts.error
        if written := self._parts.take():
            self._tell(say.Wrote(written))
        if self._together:
            for prepared in self._together.prepared():
                self._tell(say.ReadyToWrite(prepared.stream))
                self._world.flush(SILENCE_SECONDS)  # no message is sent during the call
                self._together.write(prepared)

    def close(self) -> None:
        """Sync the written parts to disk."""
        if self._parts:
            self._parts.close()
