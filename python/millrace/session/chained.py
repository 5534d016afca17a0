"""What a run has of the others in a job of several phases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from millrace.job import Job
from millrace.model import InputUse
from millrace.node.feed import Source
from millrace.node.lent import Lender


class Chained(Lender, Protocol):
    """The links of one phase with the others."""

    def source(
        self, item: InputUse, job: Job, spool: Path, failed: Callable[[BaseException], None]
    ) -> Source | None:  # fmt: skip
        """The records of an input that another phase still writes; None: none does.

        Args:
            failed: Takes what goes wrong while it grows.
        """

    def begun(self) -> None:
        """What is in the outputs is of this run from now on."""

    def wrote(self, path: str) -> None:
        """A file of its own for a record is whole."""
