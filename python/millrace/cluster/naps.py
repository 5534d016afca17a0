"""The back-off of a process of an MPI job between polls for messages."""

from __future__ import annotations

from millrace.waiting import PollBackoff

#: Shortest and longest nap between polls for messages, in seconds; naps grow while no message arrives.
NAP_SECONDS = (0.0002, 0.005)

#: Ratio of a nap to the one before.
GROWTH = 2.0


def create_message_naps(shortest: float = NAP_SECONDS[0]) -> PollBackoff:
    """Create the back-off between polls for messages; its first nap takes ``shortest`` seconds."""
    return PollBackoff(shortest, NAP_SECONDS[1], GROWTH)
