"""How a run ended."""

from __future__ import annotations

import msgspec

from millrace.report.summary import Summary


class Finished(msgspec.Struct, frozen=True):
    """A run that got to its end."""

    code: int
    #: Text for the user, or empty.
    text: str
    summary: Summary | None
