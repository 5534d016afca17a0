"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.report.summary import Summary


@dataclass(frozen=True)
class Finished:
    """A run that got to its end."""

    code: int
    #: Text for the user, or empty.
    text: str
    summary: Summary | None
