"""The way to the end after a signal. Pure."""

from __future__ import annotations

from millrace.schedule.protocol import Kill, Withdraw

#: Seconds that running tools get to end after the first signal.
GRACE_SECONDS = 20.0


class Interruption:
    """Nothing new is begun after the first signal; after a second one, or when time is up, what runs is ended."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._killed = False

    def __bool__(self) -> bool:
        """Whether there was a signal."""
        return self._since is not None

    def signalled(self, now: float) -> list[Withdraw | Kill]:
        """There is a signal; what is to be done."""
        if self._since is not None:
            return self._kill()
        self._since = now
        return [Withdraw()]

    def turn(self, now: float) -> list[Withdraw | Kill]:
        """What is to be done as time goes by."""
        return self._kill() if self._since is not None and now > self._since + GRACE_SECONDS else []

    def _kill(self) -> list[Withdraw | Kill]:
        actions: list[Withdraw | Kill] = [] if self._killed else [Kill()]
        self._killed = True
        return actions
