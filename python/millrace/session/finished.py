"""The result of a run that reached its end."""

from __future__ import annotations

import msgspec

from millrace.report.summary import RunSummary


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that reached its end."""

    code: int
    #: Text for the user, or empty.
    text: str
    summary: RunSummary | None
