"""Who wants to know that the loop turns."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Takes a loop that no longer turns for one that hangs; see `millrace.launch.supervisor_link.Supervision`."""

    def turned(self, records: int) -> None:
        """Hear that the loop has turned, and how many records are done."""
