"""Interface of the strategies of ``--write``; its methods do nothing unless overridden.

A strategy in which two machines write one file at the same time is refused on filesystems that do not allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from millrace import _core
from millrace.cluster.journal_visibility import is_lazy_filesystem
from millrace.cluster.membership import JobMembership
from millrace.core.errors import RefusedError
from millrace.output.output_parts import ExtentWriter
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.write_extents import WriteExtents


def refuse_lazy_filesystem(plan: RunPlan, way: str) -> None:
    """Refuse a strategy by which machines write one file at the same time.

    Raises:
        RefusedError: The run directory is on a lazy filesystem (``is_lazy_filesystem``).
    """
    if is_lazy_filesystem(plan.run_dir):
        raise RefusedError(
            f"--write {way}: {plan.run_dir} is on a network filesystem on which two machines that write side by side "
            "may undo each other's bytes",
            "use --write merge, which lets one machine write at a time there",
        )


class WriteStrategy:
    """A strategy by which the processes of a job write its outputs; the coordinator's side."""

    #: Whether processes other than the coordinator write.
    shares = True

    #: Whether all processes write each part in one collective call.
    together = False

    def check_filesystem(self, plan: RunPlan) -> None:
        """Check that the filesystem of the run allows this strategy.

        Raises:
            RefusedError: It does not.
        """

    def create_extents(self, ranks: Iterable[int], *, in_turn: bool) -> WriteExtents[_core.OutputPiece] | None:
        """Create the assignment of one output to ranks; None: the coordinator writes it alone.

        Args:
            ranks: Ranks that can write.
            in_turn: Whether one machine must not write while another does.
        """
        return None

    def open_outputs(self, crew: JobMembership, paths: Mapping[int, Path], own: ExtentWriter) -> None:
        """Open outputs, at least one; ``own`` writes the parts of this process.

        Raises:
            RefusedError: These processes cannot use this strategy.
        """

    def write_ready_parts(self) -> None:
        """Take part in collective writes that all others are ready for."""

    def record_waiting_process(self, stream: int) -> None:
        """Record that another process waits in a collective write."""

    def drop_lost_rank(self, rank: int) -> None:
        """Continue without a lost process.

        Raises:
            LostError: This strategy needs all processes.
        """

    def finish_collective_calls(
        self, is_writing: Callable[[], bool], has_failed: Callable[[], bool], carry: Callable[[float], object]
    ) -> None:
        """Finish the collective writes in progress; no further part is assigned.

        Args:
            is_writing: Tells whether parts are still being written.
            has_failed: Tells whether this process cannot write any more.
            carry: Carries messages, for at most the given seconds.
        """

    def check_all_on_disk(self, crew: JobMembership, path: Path) -> None:
        """Check that all bytes of ``path`` are known to be on disk, after all ``say.NodeStopped``.

        Raises:
            LostError: They are not.
        """
