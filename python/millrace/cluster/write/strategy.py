"""What a way to write the outputs owes to the rest. What a way does not need, it leaves as it is here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from millrace import _core
from millrace.cluster.membership import Membership
from millrace.output.parts import ExtentWriter
from millrace.plan.plan import Plan
from millrace.schedule.extents import Extents


class WriteStrategy:
    """One way in which the processes of a job write its outputs, as the coordinator sees it."""

    #: Whether processes other than the coordinator write.
    shares = True

    #: Whether each part is written by all processes in one call.
    together = False

    def check(self, plan: Plan) -> None:
        """See whether outputs can be written so.

        Raises:
            RefusedError: Not where this run's are.
        """

    def extents(self, ranks: Iterable[int], *, in_turn: bool) -> Extents[_core.BlockRef] | None:
        """Who writes what of one output; None: the coordinator alone.

        Args:
            ranks: Who can write.
            in_turn: Whether one machine must not write while another does.
        """
        return None

    def open(self, crew: Membership, paths: Mapping[int, Path], own: ExtentWriter) -> None:
        """These outputs, at least one, are to be written so; ``own`` writes what is this process's to write.

        Raises:
            RefusedError: It is not possible among these processes.
        """

    def turn(self) -> None:
        """Do what is to be done beside the writes that are handed out."""

    def waits(self, stream: int) -> None:
        """Hear that another process waits in a call in which all write."""

    def lost(self, rank: int) -> None:
        """Do without a process.

        Raises:
            LostError: That is not possible.
        """

    def settle(
        self, is_writing: Callable[[], bool], has_failed: Callable[[], bool], carry: Callable[[float], object]
    ) -> None:
        """Let nobody wait in a call in which all write; nothing more is handed out.

        Args:
            is_writing: Whether parts are still being written.
            has_failed: Whether no more can be written here.
            carry: Carries messages, for at most so many seconds.
        """

    def check_end(self, crew: Membership, path: Path) -> None:
        """See that it is known what of ``path`` is on the disk, now that all have said goodbye.

        Raises:
            LostError: It is not.
        """
