"""The interface of an object that monitors the progress of the loop."""

from __future__ import annotations

from typing import Protocol


class LoopWatcher(Protocol):
    """Monitor that treats a loop without progress as hung; see ``millrace.launch.supervisor_link.SupervisorLink``."""

    def report_progress(self, records: int) -> None:
        """Report that the loop has completed a cycle, and how many records are done."""
