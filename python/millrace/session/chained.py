"""Connections of a run to the other phases of its job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from millrace.job import Job
from millrace.model import InputUse
from millrace.node.feed import Source
from millrace.node.lent import Lender


class Chained(Lender, Protocol):
    """Connections of one phase to the others."""

    def source(
        self, item: InputUse, job: Job, spool: Path, failed: Callable[[BaseException], None]
    ) -> Source | None:  # fmt: skip
        """Open an input that another phase still writes; return None if none does.

        Args:
            failed: Called with an error of reading it while it grows.
        """

    def begun(self) -> None:
        """Announce that the outputs hold only bytes of this run from now on."""

    def wrote(self, path: str) -> None:
        """Announce that the file of one record is complete."""
