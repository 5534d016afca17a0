"""Which fragment of a database is searched next, and how what was found is finished. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from millrace.task_numbers import MOST_SLICES

#: Seconds of the searches of a query, in all fragments, for which its candidates are worth another slice: there are few
#: with very many rows each, too.
SECONDS_A_SLICE = 2.0

#: Slices for each slot that has nothing else to do: how many rows a subject has is not known before.
SLICES_A_SLOT = 3

#: How many times more a slice must be worth if slots have other things to do: the query may take longer than they have.
WORTH_WHEN_BUSY = 32

#: Bytes of a list of hits, about a hundred for each, from which on a search of its candidates takes much longer than
#: the tool's start.
WORTH_A_SEARCH = 1 << 18


def finish_parts(n_queries: int, found_bytes: int, idle: int) -> int:
    """In how many parts the candidates of a batch are searched, by query, all at once.

    More than one only for slots that would have nothing to do; the search of one query is never cut.

    Args:
        found_bytes: Size of the lists of hits of all fragments.
        idle: Slots that nothing waits for.

    >>> finish_parts(100, 10 << 20, 4), finish_parts(3, 10 << 20, 4), finish_parts(100, 600 << 10, 4)
    (4, 3, 2)
    """
    return max(1, min(n_queries, idle, found_bytes // WORTH_A_SEARCH))


def n_slices(found_bytes: int, seconds: float, idle: int, slots: int, passes: int = 1) -> int:
    """In how many slices the candidates of one query are searched; 1: all in one.

    Args:
        found_bytes: Size of the lists of hits of all fragments.
        seconds: Time that the searches of the fragments have taken.
        idle: Slots that nothing waits for.
        slots: All slots.
        passes: How often each candidate is searched if there are slices.

    >>> n_slices(2 << 20, 3.0, 4, 8), n_slices(600 << 10, 9.0, 4, 8), n_slices(99 << 20, 9.0, 4, 8)
    (8, 4, 12)
    >>> n_slices(2 << 20, 3.0, 1, 8), n_slices(50 << 20, 3.0, 0, 8), n_slices(50 << 20, 999.0, 0, 8)
    (1, 6, 8)
    >>> n_slices(2 << 20, 3.0, 2, 8, passes=2), n_slices(2 << 20, 3.0, 3, 8, passes=2)
    (1, 8)
    """
    worth = max(found_bytes // WORTH_A_SEARCH, int(seconds / SECONDS_A_SLICE))
    if idle > passes:
        return max(1, min(worth, SLICES_A_SLOT * idle, MOST_SLICES))
    return max(1, min(worth // WORTH_WHEN_BUSY, slots, MOST_SLICES))


class SharedScan:
    """Hands out searches (batch, fragment) so that a fragment is used by all batches while it is in memory.

    The scan stands at one fragment until no batch waits for it, then goes on to the next one that a batch waits for,
    round and round. A batch joins wherever the scan stands, and has seen every fragment after one round: no batch
    waits longer, as only so many are at work at a time.

    On several nodes, each of which keeps some fragments in its memory, the scan stands at as many places at once, which
    take turns: so each node finds tasks against what it has.

    Source: circular shared scans, as in QPipe (Harizopoulos, Shkapenyuk, Ailamaki, SIGMOD 2005).

    >>> scan = SharedScan(3)
    >>> scan.add(7, [1, 2, 3]); scan.next()
    (7, 1)
    >>> scan.add(8, [1, 2, 3]); [scan.next() for _ in range(6)]
    [(8, 1), (7, 2), (8, 2), (7, 3), (8, 3), None]

    Args:
        n_fragments: Fragments are numbered from 1 to this.
        places: Where the scan stands at once, at most.
    """

    def __init__(self, n_fragments: int, places: int = 1) -> None:
        self._waiting: list[deque[int]] = [deque() for _ in range(n_fragments)]
        places = min(places, n_fragments)
        self._at = deque(place * n_fragments // places for place in range(places))

    def add(self, batch: int, fragments: Iterable[int]) -> None:
        """Let ``batch`` wait for its search in ``fragments``."""
        for fragment in fragments:
            self._waiting[fragment - 1].append(batch)

    def drop(self, batch: int) -> None:
        """Forget what ``batch`` waits for."""
        for waiting in self._waiting:
            if batch in waiting:
                waiting.remove(batch)

    def next(self) -> tuple[int, int] | None:
        """The next search as (batch, fragment); None if no batch waits."""
        at = self._at.popleft()
        waits = [at] if self._waiting[at] else [each for each in self._from(at) if self._waiting[each]]
        # Rather where no other place is; where one is, before nothing is done.
        at = next((each for each in waits if each not in self._at), waits[0] if waits else at)
        self._at.append(at)
        return (self._waiting[at].popleft(), at + 1) if waits else None

    def _from(self, at: int) -> Iterable[int]:
        """All fragments, from one of them on."""
        return (*range(at, len(self._waiting)), *range(at))

    def __len__(self) -> int:
        """Searches not yet handed out."""
        return sum(map(len, self._waiting))
