"""Which stretches of the input are run again at other boundaries, and at which ones. Pure.

A stretch is a run of records whose batches are committed: as a rule two neighbours. What the tool writes for the same
records in other pieces must join to the same bytes. The first two batches and the last two always are a stretch;
others are chosen by their first record, so that a resumed run chooses alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

#: First record and the one after the last.
Extent = tuple[int, int]

#: Share of the input that is looked at, besides both ends, if the user names none.
SHARE = 0.1

#: What that may cost, as part of the time that the tool takes, but for so many seconds.
COST, FREE_SECONDS = 0.03, 2.0

#: Seconds that records run alone may take in a stretch, and how many there are at most.
ALONE_SECONDS, MOST_ALONE = 0.5, 8


@dataclass
class Stretches:
    """Told of batches as they are cut, in input order, and as they are committed, in any order.

    Args:
        share: Of the input that is looked at; None: `SHARE`, if it costs little; 0: nothing is.
        key: What makes the choice of this run.
    """

    share: float | None
    key: bytes
    #: The committed batches that are needed, or may be.
    kept: dict[Extent, float] = field(default_factory=dict)
    #: Batches whose bytes are the same at other boundaries: see `equal`.
    checked: set[Extent] = field(default_factory=set)
    n_committed: int = 0
    _head: Extent | None = None
    #: Chosen, and not yet all committed.
    _open: list[Extent] = field(default_factory=list)
    _given_out: list[Extent] = field(default_factory=list)
    #: The last two of those that are committed.
    _last: list[Extent] = field(default_factory=list)
    _has_end: bool = False
    _spent: float = 0.0
    _seconds: float = 0.0

    # Batches as they are cut

    def cut(self, first: int, last: int) -> bool:
        """The next batch in input order; whether it is part of a stretch."""
        if self.share == 0 or first == last:
            return False
        if self._head and self._head[1] == first:
            self._open.append((self._head[0], last))
            self._head = None
            return True
        self._close()
        if first == 0 or self._chosen(first):
            self._head = (first, last)
        return self._head is not None

    def passed(self, first: int, last: int) -> None:
        """The next batch in input order has no bytes that could be looked at."""
        self._close()

    def _close(self) -> None:
        if self._head:
            self._open.append(self._head)
            self._head = None

    def _chosen(self, first: int) -> bool:
        share = SHARE if self.share is None else self.share
        digest = hashlib.blake2b(first.to_bytes(8, "little"), key=self.key, digest_size=8).digest()
        # A chosen batch takes its neighbour with it.
        return int.from_bytes(digest, "little") < share / (2 - share) * 2**64

    # Batches as they are committed

    def committed(self, first: int, last: int, seconds: float) -> None:
        """A batch is committed; the tool took so long for it."""
        if self.share == 0 or first == last:
            return
        self.n_committed += 1
        self._seconds += seconds
        extent = (first, last)
        self._last = sorted([*self._last, extent])[-2:]
        if self._is_wanted(extent):
            self.kept[extent] = seconds
        self._drop()

    def given_up(self, first: int, last: int) -> None:
        """Records have no result: a stretch with them is not looked at."""
        self._open = [each for each in self._open if last <= each[0] or each[1] <= first]

    def _is_wanted(self, extent: Extent) -> bool:
        first, last = extent
        at_work = (*self._open, *self._given_out, *([self._head] if self._head else []))
        return extent in self._last or any(each[0] <= first and last <= each[1] for each in at_work)

    def _drop(self) -> None:
        self.kept = {extent: seconds for extent, seconds in self.kept.items() if self._is_wanted(extent)}

    # Stretches

    def ready(self, total: int | None, *, done: bool) -> list[tuple[Extent, ...]]:
        """Stretches to look at now, as the batches they consist of; each is to be `released` in the end.

        Args:
            total: Records of the input, once all of it is cut; None before.
            done: Everything is committed or given up.
        """
        if total is not None:
            self._head = None  # it is the last one, which the end has
            self._add_the_end(total, done=done)
        found = []
        for stretch in list(self._open):
            if batches := self._batches_of(stretch):
                self._open.remove(stretch)
                if self._is_worth_it(batches):
                    self._given_out.append(stretch)
                    found.append(batches)
        if done:
            self._open.clear()
        self._drop()
        return found

    def _batches_of(self, stretch: Extent) -> tuple[Extent, ...]:
        """The committed batches of a stretch; none if one is missing."""
        inside = sorted(each for each in self.kept if stretch[0] <= each[0] and each[1] <= stretch[1])
        at = stretch[0]
        for first, last in inside:
            if first != at:
                return ()
            at = last
        return tuple(inside) if at == stretch[1] else ()

    def _add_the_end(self, total: int, *, done: bool) -> None:
        """The last two batches are a stretch, once it is known that they are the last."""
        if not self._last or self._has_end:
            return
        before, last = self._last[0], self._last[-1]
        are_neighbours = before[1] == last[0]
        known = (*self._open, *self._given_out)
        if not (done or (are_neighbours and last[1] == total)):
            return
        self._has_end = True
        # One task for all of the input is the serial run itself.
        if last not in (*self.checked, (0, total)) and not any(
            each[0] <= last[0] and last[1] <= each[1] for each in known
        ):
            self._open.append((before[0] if are_neighbours else last[0], last[1]))

    def _is_worth_it(self, batches: Sequence[Extent]) -> bool:
        seconds = sum(self.kept[each] for each in batches)
        at_an_end = batches[0][0] == 0 or self._last[-1] in batches
        if self.share is None and not at_an_end and self._spent + seconds > max(FREE_SECONDS, COST * self._seconds):
            return False
        self._spent += seconds
        return True

    def equal(self, batches: Sequence[Extent]) -> None:
        """What was written for this stretch is the same at other boundaries."""
        self.checked.update(batches)

    def released(self, batches: Sequence[Extent]) -> None:
        """The bytes of a stretch are not needed any more."""
        self._given_out.remove((batches[0][0], batches[-1][1]))
        self._drop()


def variants(
    batches: Sequence[Extent], seconds: float, *, at_start: bool, at_end: bool, whole: bool
) -> list[list[int]]:
    """How many records the pieces of a stretch have, in each way in which it is run again.

    All as one piece shows what the tool writes at each start or end, counts, or carries over the boundary; records of
    their own at both ends of the input show what it carries over each record, and what it does at its first.

    Args:
        seconds: That the tool took for these batches.
        whole: Whether the tool takes more than one record at a time.

    >>> variants([(0, 3), (3, 9)], 0.1, at_start=True, at_end=False, whole=True)
    [[9], [1, 1, 1, 1, 1, 1, 1, 1, 1]]
    >>> variants([(40, 50), (50, 90)], 0.4, at_start=False, at_end=True, whole=True)
    [[48, 1, 1]]
    >>> variants([(4, 5)], 0.4, at_start=False, at_end=True, whole=True)
    [[1]]
    """
    sizes = [last - first for first, last in batches]
    n = sum(sizes)
    if not whole or n == 1:
        return [sizes]
    found = [[n]] if len(sizes) > 1 else [[n // 2, n - n // 2]]
    alone = min(n - 1, MOST_ALONE, max(1, int(ALONE_SECONDS * len(sizes) / max(seconds, 1e-3))))
    if at_start:
        found.append([*[1] * alone, n - alone])
    elif at_end and alone > 1:
        found = [[n - alone, *[1] * alone]]  # once: batches here may be large, and the run waits for it
    return [each for at, each in enumerate(found) if each != sizes and each not in found[:at]] or [sizes]
