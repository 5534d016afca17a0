"""Limit of the tools that run side by side on a node where memory runs out. Pure: ends of tasks in, the limit out.

While nothing is killed for lack of memory, nothing changes. A kill beside other tasks lowers the limit, to between half
and three quarters, by the memory of the tool and of the node. As long as the measured memory of the tools leaves room
for more, the limit grows again.
"""

from __future__ import annotations

import msgspec

#: Maximum share of the memory that tools may take together, as measured, for the limit to grow.
MAX_MEMORY_SHARE = 0.9

#: Tasks that must be done in a row, for each allowed tool, before the limit grows.
MIN_DONE_IN_A_ROW = 16


class MemoryAllowance(msgspec.Struct, dict=True):
    """Limit of the tools that may run side by side.

    Args:
        slots: Number of slots of the node.
        limit_bytes: Memory of the node, in bytes.
    """

    slots: int
    limit_bytes: int
    #: Number of tasks done in a row, and the peak memory of them, in bytes.
    _calm: int = 0
    _peak: int = 0

    def __post_init__(self) -> None:
        #: Maximum number of tools that run side by side.
        self.allowed = self.slots

    def record_task(self, *, out_of_memory: bool, side_by_side: int, peak_bytes: int) -> bool:
        """Learn from a task that ended; return whether ``allowed`` has changed.

        Args:
            out_of_memory: A process of it was killed for lack of memory.
            side_by_side: Maximum number of tools that ran at once while it did, itself included.
            peak_bytes: Its peak memory in bytes; if it was killed, up to then.
        """
        before = self.allowed
        if out_of_memory:
            self._calm = self._peak = 0
            if side_by_side > 1:
                self.allowed = min(self.allowed, self._compute_reduced(side_by_side, peak_bytes))
        elif self.allowed < self.slots:
            self._grow_allowed(peak_bytes)
        return self.allowed != before

    def _compute_reduced(self, side_by_side: int, peak_bytes: int) -> int:
        """Return the limit after a kill: less than ran, though one peak does not show what all others take."""
        fits = self.limit_bytes // max(peak_bytes, 1)
        return max(1, side_by_side // 2, min(fits, side_by_side * 3 // 4))

    def _grow_allowed(self, peak_bytes: int) -> None:
        self._calm += 1
        self._peak = max(self._peak, peak_bytes, 1)
        if self._calm >= MIN_DONE_IN_A_ROW * self.allowed:
            fits = int(MAX_MEMORY_SHARE * self.limit_bytes) // self._peak
            self.allowed = max(self.allowed, min(self.slots, 2 * self.allowed, fits))
            self._calm = self._peak = 0
