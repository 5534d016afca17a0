"""How long a process of an MPI job sleeps between looks for messages."""

from __future__ import annotations

#: Shortest and longest nap between looks for messages, in seconds; it grows while nothing comes.
NAP_SECONDS = (0.0002, 0.005)

#: How much a nap is longer than the one before.
GROWTH = 2.0
