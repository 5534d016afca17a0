"""Choice of the fragment of a database that is searched next. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class SharedScan:
    """Issues searches (batch, fragment) so that all batches use a fragment while it is in memory.

    The scan stays at one fragment until no batch waits for it, then goes on to the next one that a batch waits for,
    round and round. A batch joins at the current fragment, and has seen every fragment after one round: no batch waits
    longer, as the number of batches in progress is limited.

    On several nodes, each of which keeps some fragments in its memory, the scan has as many positions at once, which
    take turns: so each node finds tasks for its fragments.

    Source: circular shared scans, as in QPipe (Harizopoulos, Shkapenyuk, Ailamaki, SIGMOD 2005).

    >>> scan = SharedScan(3)
    >>> scan.add_batch(7, [1, 2, 3]); scan.pop_next_search()
    (7, 1)
    >>> scan.add_batch(8, [1, 2, 3]); [scan.pop_next_search() for _ in range(6)]
    [(8, 1), (7, 2), (8, 2), (7, 3), (8, 3), None]

    Args:
        n_fragments: Fragments are numbered from 1 to this.
        places: Maximum number of positions of the scan.
    """

    def __init__(self, n_fragments: int, places: int = 1) -> None:
        self._waiting: list[deque[int]] = [deque() for _ in range(n_fragments)]
        places = min(places, n_fragments)
        self._at = deque(place * n_fragments // places for place in range(places))

    def add_batch(self, batch: int, fragments: Iterable[int]) -> None:
        """Queue the searches of ``batch`` in ``fragments``."""
        for fragment in fragments:
            self._waiting[fragment - 1].append(batch)

    def drop_batch(self, batch: int) -> None:
        """Remove the waiting searches of ``batch``."""
        for waiting in self._waiting:
            if batch in waiting:
                waiting.remove(batch)

    def pop_next_search(self) -> tuple[int, int] | None:
        """Return the next search as (batch, fragment); None if no batch waits."""
        at = self._at.popleft()
        waits = [at] if self._waiting[at] else [each for each in self._list_from(at) if self._waiting[each]]
        # A fragment without another position is preferred; one with another position is better than none.
        at = next((each for each in waits if each not in self._at), waits[0] if waits else at)
        self._at.append(at)
        return (self._waiting[at].popleft(), at + 1) if waits else None

    def _list_from(self, at: int) -> Iterable[int]:
        """Return all fragments, beginning with ``at``."""
        return (*range(at, len(self._waiting)), *range(at))

    def __len__(self) -> int:
        """Return the number of searches not yet issued."""
        return sum(map(len, self._waiting))
