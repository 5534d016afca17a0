"""Connections with some other processes of an MPI job: what is said to them, and whether they are still there."""

from __future__ import annotations

import time
from collections.abc import Iterable

from millrace.cluster import messages as say
from millrace.cluster.mpi import World

#: Seconds between signs of life.
SIGN_OF_LIFE_SECONDS = 1.0

#: Seconds without a sign of life after which the other is lost.
SILENCE_SECONDS = 10.0

#: The same while a rank gets ready: folders are made, programs are looked at.
SILENCE_AT_START_SECONDS = 120.0

#: The same once half of the ranks are ready, in the times that these took: the others are not slow then. At least
#: `LEAST_WAIT_SECONDS`, at most what it would be otherwise.
TIMES, LEAST_WAIT_SECONDS = 5.0, 20.0

#: The same once the outputs are written. Nobody has anything to do then but to answer, and who is done without by
#: mistake has nothing that is needed; but some launchers then call the whole job a failure. A sign of life comes each
#: second; on two cores with 8 processes and 64 tools that compute, a load of 70, the longest time between two was 3.8 s, and
#: where compilers ran, too, more than 6 s.
SILENCE_AT_END_SECONDS = 10.0

#: Seconds that the others get to end what they do and bring their results to the disk.
LONGEST_GOODBYE_SECONDS = 15.0


class SilenceTimer:
    """When the other was last heard; time in which this process itself stood still does not count."""

    def __init__(self) -> None:
        self._turned = self.heard = time.monotonic()

    def turn(self, now: float, *, heard: bool) -> float:
        """A turn of the loop at ``now``; returns the seconds of silence."""
        still = now - self._turned - 1.0
        self._turned = now
        if heard:
            self.heard = now
        elif still > 0:
            self.heard += still
        return now - self.heard


class StartupDeadline:
    """How long to wait for ranks that get ready side by side: what is slow is slow for all, and a rank that froze is alone.

    Args:
        begun: When they began, in seconds of any clock.
        n: How many they are.
        patience: How many times the usual time they may take.
    """

    def __init__(self, begun: float, n: int, patience: float = 1.0) -> None:
        self._begun, self._n, self._patience = begun, n, patience
        self._half: float | None = None

    def is_late(self, now: float, n_ready: int) -> bool:
        """Whether those that are not among the ``n_ready`` ones are given up.

        >>> muster = StartupDeadline(0.0, 4)
        >>> muster.is_late(3.0, 2), muster.is_late(20.0, 3), muster.is_late(20.5, 3)
        (False, False, True)
        >>> StartupDeadline(0.0, 4).is_late(119.0, 1)
        False
        """
        if self._half is None and 2 * n_ready >= self._n:
            self._half = now - self._begun
        limit = SILENCE_AT_START_SECONDS
        if self._half is not None:
            limit = min(limit, max(LEAST_WAIT_SECONDS, TIMES * self._half) * self._patience)
        return now - self._begun > limit


class FailureDetector:
    """Connections with ``ranks``, of which each hears something now and then and is missed when it says nothing."""

    def __init__(self, world: World, ranks: Iterable[int]) -> None:
        self._world = world
        self._patience = {rank: SilenceTimer() for rank in ranks}
        self._told = dict.fromkeys(self._patience, 0.0)
        self._turned = 0.0
        #: Seconds of silence after which a process is lost.
        self.limit = SILENCE_AT_START_SECONDS
        #: Who has said goodbye, and who is lost.
        self.gone: set[int] = set()
        self.lost: set[int] = set()
        #: When the others were told that it is over.
        self.dismissed: float | None = None

    def dismiss(self, now: float, *, whole: bool) -> None:
        """The others are told that it is over; ``whole``: the outputs are written."""
        self.dismissed = now
        self.limit = SILENCE_AT_END_SECONDS if whole else SILENCE_SECONDS

    def living(self) -> list[int]:
        """Those that are not lost."""
        return [rank for rank in self._patience if rank not in self.lost]

    def tell(self, rank: int, message: say.Message) -> None:
        self._told[rank] = time.monotonic()
        self._world.send(rank, message)

    def heard(self, rank: int, now: float) -> None:
        """A message of ``rank`` has come."""
        if patience := self._patience.get(rank):
            patience.turn(now, heard=True)

    def turn(self, now: float) -> list[tuple[int, str]]:
        """Carry on with what is being sent, give signs of life; returns who is lost now, and why.

        The caller takes those that it gives up into `lost`.
        """
        self._world.push()
        if now - self._turned < SIGN_OF_LIFE_SECONDS / 4:
            return []
        self._turned = now
        failed = self._world.failed()
        found = []
        for rank, patience in self._patience.items():
            if rank in self.gone or rank in self.lost:
                continue
            limit = self._limit_of(patience)
            if rank in failed:
                found.append((rank, "its process is gone"))
            elif patience.turn(now, heard=False) > limit:
                found.append((rank, f"no sign of life for {limit:.0f} s"))
            elif now - self._told[rank] > SIGN_OF_LIFE_SECONDS:
                self.tell(rank, say.Ping())
        return found

    def _limit_of(self, patience: SilenceTimer) -> float:
        """Seconds of silence after which a process is lost; one that is about to end its work may be busy with it."""
        if self.dismissed is not None and patience.heard > self.dismissed:
            return LONGEST_GOODBYE_SECONDS
        return self.limit
