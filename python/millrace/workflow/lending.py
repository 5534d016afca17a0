"""Who gets how many of the slots: those of one pool, lent to the phases that have something to do. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.model import Frozen


class Need(Frozen, frozen=True):
    """What one phase has of the slots, and could use."""

    #: Tasks that wait or run.
    wanted: int = 0
    #: Slots that it may use.
    allowed: int = 0
    #: Tools that run, by its last word: more than ``allowed`` until they end.
    running: int = 0

    @property
    def held(self) -> int:
        """Slots that nobody else may use now."""
        return max(self.allowed, self.running)


def targets(wanted: Sequence[int], slots: int) -> list[int]:
    """How many slots each phase should have; ``wanted`` is in the order of the job, shape (n_phases,).

    The first that waits keeps half of them, rounded up, as all that follows comes from it; what follows shares the
    rest, one each in turn; and no slot stays idle while a task waits.

    >>> targets([5, 5, 0], 4), targets([5, 1, 0], 4), targets([0, 0, 9], 2), targets([9, 9, 9], 1)
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


def lend(needs: Sequence[Need], slots: int) -> list[int]:
    """How many slots each phase may use from now on: never more held in all than there are.

    A phase that is to have fewer gives them back as its tools end; only then others get them.

    >>> lend([Need(wanted=4, allowed=2, running=2), Need(wanted=1)], 2)
    [1, 0]
    >>> lend([Need(wanted=4, allowed=1, running=1), Need(wanted=1)], 2)
    [1, 1]
    """
    aims = targets([need.wanted for need in needs], slots)
    lower = [min(need.allowed, aim) for need, aim in zip(needs, aims, strict=True)]
    free = slots - sum(max(low, need.running) for low, need in zip(lower, needs, strict=True))
    found = []
    for need, low, aim in zip(needs, lower, aims, strict=True):
        unused = max(need.running - low, 0)  # tools that still run in slots that are to be given back
        more = max(min(aim - low, free + unused), 0)
        free -= max(more - unused, 0)
        found.append(low + more)
    return found
