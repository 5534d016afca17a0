"""Division of the slots of one pool among the phases with tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.model import FrozenValue


class SlotNeed(FrozenValue, frozen=True):
    """The slots that one phase has and could use."""

    #: Tasks that are waiting or running.
    wanted: int = 0
    #: Slots that it may use.
    allowed: int = 0
    #: Running tools by the phase's last message; after a cut, more than ``allowed`` until they end.
    running: int = 0

    @property
    def held(self) -> int:
        """Slots that no other phase may use now."""
        return max(self.allowed, self.running)


def compute_slot_targets(wanted: Sequence[int], slots: int) -> list[int]:
    """Return the number of slots each phase should have; ``wanted`` is in the order of the job, shape (n_phases,).

    The first phase with tasks keeps half of the slots, rounded up, as the later phases depend on it. Later phases share
    the rest, one slot each in turn. No slot stays idle while a task waits.

    >>> compute_slot_targets([5, 5, 0], 4), compute_slot_targets([5, 1, 0], 4), compute_slot_targets([0, 0, 9], 2), compute_slot_targets([9, 9, 9], 1)
    ([2, 2, 0], [3, 1, 0], [0, 0, 2], [1, 0, 0])
    """
    given = [0] * len(wanted)
    waiting = [number for number, tasks in enumerate(wanted) if tasks > 0]
    if not waiting:
        return given
    first = waiting[0]
    given[first] = min(wanted[first], slots if len(waiting) == 1 else (slots + 1) // 2)
    left = slots - given[first]
    while left:
        takers = [number for number in waiting[1:] if given[number] < wanted[number]][:left]
        if not takers:
            break
        for number in takers:
            given[number] += 1
        left -= len(takers)
    given[first] += min(left, wanted[first] - given[first])
    return given


def allot_slots(needs: Sequence[SlotNeed], slots: int) -> list[int]:
    """Return the number of slots each phase may use now, so that the slots held never exceed ``slots`` in all.

    A phase that gets fewer slots frees them as its tools end; only then other phases get them.

    >>> allot_slots([SlotNeed(wanted=4, allowed=2, running=2), SlotNeed(wanted=1)], 2)
    [1, 0]
    >>> allot_slots([SlotNeed(wanted=4, allowed=1, running=1), SlotNeed(wanted=1)], 2)
    [1, 1]
    """
    aims = compute_slot_targets([need.wanted for need in needs], slots)
    lower = [min(need.allowed, aim) for need, aim in zip(needs, aims, strict=True)]
    free = slots - sum(max(low, need.running) for low, need in zip(lower, needs, strict=True))
    found = []
    for need, low, aim in zip(needs, lower, aims, strict=True):
        unused = max(need.running - low, 0)  # tools still running in slots to be freed
        more = max(min(aim - low, free + unused), 0)
        free -= max(more - unused, 0)
        found.append(low + more)
    return found
