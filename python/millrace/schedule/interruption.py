"""The steps that end a run after a signal. Pure."""

from __future__ import annotations

from millrace.schedule.protocol import Kill, Withdraw

#: Seconds that running tools may go on after the first signal.
GRACE_SECONDS = 20.0


class Interruption:
    """Starts nothing new after the first signal; after a second one, or the grace time, kills running tools."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._killed = False

    def __bool__(self) -> bool:
        """Return whether there was a signal."""
        return self._since is not None

    def signalled(self, now: float) -> list[Withdraw | Kill]:
        """Handle a signal; return the actions."""
        if self._since is not None:
            return self._kill()
        self._since = now
        return [Withdraw()]

    def turn(self, now: float) -> list[Withdraw | Kill]:
        """Return the actions that are due at ``now``."""
        return self._kill() if self._since is not None and now > self._since + GRACE_SECONDS else []

    def _kill(self) -> list[Withdraw | Kill]:
        actions: list[Withdraw | Kill] = [] if self._killed else [Kill()]
        self._killed = True
        return actions
