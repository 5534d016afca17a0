"""Failure detection between processes of an MPI job, by heartbeats and silence."""

from __future__ import annotations

import time
from collections.abc import Iterable

from millrace.cluster import messages as say
from millrace.cluster.transport.mpi_transport import MpiTransport

#: Seconds between heartbeats.
HEARTBEAT_INTERVAL_SECONDS = 1.0

#: Seconds without a message after which a process counts as lost.
MAX_SILENCE_SECONDS = 10.0

#: The same while a rank sets up its slots, makes folders and fingerprints programs.
MAX_SILENCE_AT_START_SECONDS = 120.0

#: The same once half of the ranks are ready: a multiple of the time that these took, as the others are not slow then.
#: At least ``MIN_STARTUP_WAIT_SECONDS``, at most ``MAX_SILENCE_AT_START_SECONDS``.
MAX_STARTUP_TIME_RATIO, MIN_STARTUP_WAIT_SECONDS = 5.0, 20.0

#: The same once the outputs are written. A process has only to answer then, and one that is dropped by mistake holds
#: nothing that is needed; but some launchers then report the whole job as failed. Heartbeats come each second; on two
#: cores with 8 processes and 64 computing tools (load 70) the longest interval was 3.8 s, with compilers running more
#: than 6 s.
MAX_SILENCE_AT_END_SECONDS = 10.0

#: Seconds that the others get to end their work and sync their results to disk.
MAX_GOODBYE_SECONDS = 15.0


class SilenceTimer:
    """The time since a process was last heard, without the time in which this process itself was stopped."""

    def __init__(self) -> None:
        self._turned = self.heard = time.monotonic()

    def measure_silence(self, now: float, *, heard: bool) -> float:
        """Return the seconds of silence at ``now``; to be called at each tick of the loop."""
        still = now - self._turned - 1.0
        self._turned = now
        if heard:
            self.heard = now
        elif still > 0:
            self.heard += still
        return now - self.heard


class StartupDeadline:
    """The deadline for ranks that start at the same time: a slow disk delays all of them, a frozen rank is alone.

    Args:
        begun: Time of their start, in seconds of any clock.
        n: Number of ranks.
        patience: Factor by which the usual limit is stretched.
    """

    def __init__(self, begun: float, n: int, patience: float = 1.0) -> None:
        self._begun, self._n, self._patience = begun, n, patience
        self._half: float | None = None

    def is_late(self, now: float, n_ready: int) -> bool:
        """Tell whether the ranks that are not among the ``n_ready`` ones have missed the deadline.

        >>> muster = StartupDeadline(0.0, 4)
        >>> muster.is_late(3.0, 2), muster.is_late(20.0, 3), muster.is_late(20.5, 3)
        (False, False, True)
        >>> StartupDeadline(0.0, 4).is_late(119.0, 1)
        False
        """
        if self._half is None and 2 * n_ready >= self._n:
            self._half = now - self._begun
        limit = MAX_SILENCE_AT_START_SECONDS
        if self._half is not None:
            limit = min(limit, max(MIN_STARTUP_WAIT_SECONDS, MAX_STARTUP_TIME_RATIO * self._half) * self._patience)
        return now - self._begun > limit


class FailureDetector:
    """The connections to ``ranks``: sends each a heartbeat, and finds those that are silent for too long."""

    def __init__(self, world: MpiTransport, ranks: Iterable[int]) -> None:
        self._world = world
        self._patience = {rank: SilenceTimer() for rank in ranks}
        self._told = dict.fromkeys(self._patience, 0.0)
        self._turned = 0.0
        #: Seconds of silence after which a process is lost.
        self.limit = MAX_SILENCE_AT_START_SECONDS
        #: Ranks that have sent ``say.NodeStopped``, and ranks that are lost.
        self.gone: set[int] = set()
        self.lost: set[int] = set()
        #: When the others were sent ``say.StopNode``.
        self.dismissed: float | None = None

    def record_dismissal(self, now: float, *, whole: bool) -> None:
        """Record that the others are sent ``say.StopNode`` now; ``whole``: the outputs are written."""
        self.dismissed = now
        self.limit = MAX_SILENCE_AT_END_SECONDS if whole else MAX_SILENCE_SECONDS

    def list_living_ranks(self) -> list[int]:
        """Return the ranks that are not lost."""
        return [rank for rank in self._patience if rank not in self.lost]

    def send_message(self, rank: int, message: say.Message) -> None:
        self._told[rank] = time.monotonic()
        self._world.send(rank, message)

    def record_message(self, rank: int, now: float) -> None:
        """Record that a message of ``rank`` has arrived."""
        if patience := self._patience.get(rank):
            patience.measure_silence(now, heard=True)

    def find_lost_ranks(self, now: float) -> list[tuple[int, str]]:
        """Continue sends and send heartbeats; return the ranks that are lost now, each with the reason.

        The caller adds those that it drops to ``lost``.
        """
        self._world.continue_sends()
        if now - self._turned < HEARTBEAT_INTERVAL_SECONDS / 4:
            return []
        self._turned = now
        failed = self._world.find_failed_ranks()
        found = []
        for rank, patience in self._patience.items():
            if rank in self.gone or rank in self.lost:
                continue
            limit = self._choose_silence_limit(patience)
            if rank in failed:
                found.append((rank, "its process is gone"))
            elif patience.measure_silence(now, heard=False) > limit:
                found.append((rank, f"no sign of life for {limit:.0f} s"))
            elif now - self._told[rank] > HEARTBEAT_INTERVAL_SECONDS:
                self.send_message(rank, say.PingAgent())
        return found

    def _choose_silence_limit(self, patience: SilenceTimer) -> float:
        """Return the silence limit of a process in seconds: longer while it ends its work."""
        if self.dismissed is not None and patience.heard > self.dismissed:
            return MAX_GOODBYE_SECONDS
        return self.limit
