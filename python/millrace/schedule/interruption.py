"""The steps that end a run after a signal. Pure."""

from __future__ import annotations

from millrace.schedule.protocol import KillTasks, WithdrawTasks

#: Seconds that running tools may go on after the first signal.
GRACE_SECONDS = 20.0


class RunInterruption:
    """Starts nothing new after the first signal; after a second one, or the grace time, kills running tools."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._killed = False

    def __bool__(self) -> bool:
        """Return whether there was a signal."""
        return self._since is not None

    def handle_signal(self, now: float) -> list[WithdrawTasks | KillTasks]:
        """Handle a signal; return the actions."""
        if self._since is not None:
            return self._kill_once()
        self._since = now
        return [WithdrawTasks()]

    def check_grace_time(self, now: float) -> list[WithdrawTasks | KillTasks]:
        """Return the actions that are due at ``now``."""
        return self._kill_once() if self._since is not None and now > self._since + GRACE_SECONDS else []

    def _kill_once(self) -> list[WithdrawTasks | KillTasks]:
        actions: list[WithdrawTasks | KillTasks] = [] if self._killed else [KillTasks()]
        self._killed = True
        return actions
