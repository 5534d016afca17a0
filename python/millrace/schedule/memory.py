"""How many tools run side by side on a node where memory runs out. Pure: what became of a task in, how many from now on out.

While nothing is killed for lack of memory, nothing changes. A kill beside others brings the number down, to between
half and three quarters, by what the tool took and what there is. As long as what the tools take shows that there is
room for more, it grows again.
"""

from __future__ import annotations

import msgspec

#: Part of the memory that tools may take together, as measured, for more of them to be let in.
ROOM = 0.9

#: Tasks done in a row, for each of those that are let in, before more are.
CALM = 16


class Allowance(msgspec.Struct, dict=True):
    """How many tools may run side by side.

    Args:
        slots: Slots of the node.
        limit_bytes: Memory that there is.
    """

    slots: int
    limit_bytes: int
    #: Tasks done in a row, and the most memory that one of them took.
    _calm: int = 0
    _peak: int = 0

    def __post_init__(self) -> None:
        #: Tools side by side, at most.
        self.allowed = self.slots

    def ended(self, *, out_of_memory: bool, side_by_side: int, peak_bytes: int) -> bool:
        """A task came to its end. Whether `allowed` is another number now.

        Args:
            out_of_memory: A process of it was killed for lack of memory.
            side_by_side: Tools that ran at once while it did, itself included, at most.
            peak_bytes: Memory that it took, at most; of one that was killed, what it had taken by then.
        """
        before = self.allowed
        if out_of_memory:
            self._calm = self._peak = 0
            if side_by_side > 1:
                self.allowed = min(self.allowed, self._fewer(side_by_side, peak_bytes))
        elif self.allowed < self.slots:
            self._grow(peak_bytes)
        return self.allowed != before

    def _fewer(self, side_by_side: int, peak_bytes: int) -> int:
        """What is let in after a kill: less than ran, but one peak does not tell what all others take."""
        fits = self.limit_bytes // max(peak_bytes, 1)
        return max(1, side_by_side // 2, min(fits, side_by_side * 3 // 4))

    def _grow(self, peak_bytes: int) -> None:
        self._calm += 1
        self._peak = max(self._peak, peak_bytes, 1)
        if self._calm >= CALM * self.allowed:
            fits = int(ROOM * self.limit_bytes) // self._peak
            self.allowed = max(self.allowed, min(self.slots, 2 * self.allowed, fits))
            self._calm = self._peak = 0
