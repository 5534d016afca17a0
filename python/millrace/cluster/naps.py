"""How long a process of an MPI job sleeps between looks for messages."""

from __future__ import annotations

from millrace.waiting import Naps

#: Shortest and longest nap between looks for messages, in seconds; it grows while nothing comes.
NAP_SECONDS = (0.0002, 0.005)

#: How much a nap is longer than the one before.
GROWTH = 2.0


def naps(shortest: float = NAP_SECONDS[0]) -> Naps:
    """Naps between looks for messages, of which the first takes so many seconds."""
    return Naps(shortest, NAP_SECONDS[1], GROWTH)
