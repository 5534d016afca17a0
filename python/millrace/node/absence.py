"""What failed while a filesystem was away from which tools read: nobody's fault. It waits until that is mounted anew.

A task that waits so is out as one that runs: no more than slots and their queues have are handed out meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from millrace.tasks import Ended, Ending, News

#: So long is waited from the first failure on; seconds.
LONGEST_SECONDS = 60.0

#: From one look to the next; seconds.
LOOK_SECONDS = 1.0

#: Endings that say nothing of what tools read.
OTHERS = frozenset([Ending.DONE, Ending.KILLED, Ending.MISPLACED, Ending.IO, Ending.UNEQUAL])


class Absence:
    """Passes on what the slots tell, and keeps failures back while a filesystem is away. Pure but for its looks.

    Args:
        unserved: Where the first filesystem was mounted that nobody serves now; empty if there is none.
        say: Takes a sentence for the user.
    """

    def __init__(self, unserved: Callable[[], str], say: Callable[[str], None]) -> None:
        self._unserved, self._say = unserved, say
        self._held: list[Ended] = []
        #: What is away; since then it is waited until, and looked at next.
        self._point = ""
        self._until = self._next = 0.0
        self._is_over = False

    def give_up(self) -> None:
        """Nobody waits any more."""
        self._is_over = True

    def pass_on(self, news: Sequence[News], now: float) -> list[News]:
        """What there is to tell at ``now``, in seconds.

        What had waited when a filesystem came back, or when it was given up, is `Ending.AWAY`; if it did not come back,
        failures are what they are.
        """
        failed = [each for each in news if isinstance(each, Ended) and _may_be_away(each)]
        if failed or (self._held and now >= self._next):
            self._look(now)
        if self._point and now < self._until and not self._is_over:
            self._held += failed
            return [each for each in news if each not in failed]
        held, self._held = self._held, []
        return [*news, *(held if self._point and not self._is_over else map(_away, held))]

    def _look(self, now: float) -> None:
        before, self._point, self._next = self._point, self._unserved(), now + LOOK_SECONDS
        if self._point and not before:
            self._until = now + LONGEST_SECONDS
            self._say(
                f"{self._point}: nobody serves what was mounted there any more; waiting {LONGEST_SECONDS:.0f} s at most for "
                "it to be mounted anew"
            )
        if before and not self._point:
            self._say(f"{before}: is served again; what failed meanwhile is run again")


def _may_be_away(ended: Ended) -> bool:
    return ended.ending not in OTHERS and not ended.out_of_memory


def _away(ended: Ended) -> Ended:
    return msgspec.structs.replace(ended, ending=Ending.AWAY)
