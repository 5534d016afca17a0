"""Connections of a run to the other phases of its job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from millrace.job import JobSpec
from millrace.model import InputUse
from millrace.node.feed import InputSource
from millrace.node.lent import SlotLender


class PhaseConnections(SlotLender, Protocol):
    """Connections of one phase to the others."""

    def open_source(
        self, item: InputUse, job: JobSpec, spool: Path, failed: Callable[[BaseException], None]
    ) -> InputSource | None:  # fmt: skip
        """Open an input that another phase still writes; return None if none does.

        Args:
            failed: Called with an error of reading it while it grows.
        """

    def announce_start(self) -> None:
        """Announce that the outputs hold only bytes of this run from now on."""

    def announce_file(self, path: str) -> None:
        """Announce that the file of one record is complete."""
