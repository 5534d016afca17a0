"""Slots that are lent to a pool."""

from __future__ import annotations

from collections.abc import Callable

from millrace.node.task_slots import SlotLease


class Lender:
    """Lends when it is told to."""

    def __init__(self) -> None:
        self.allow: Callable[[int], None] | None = None
        self.said: list[tuple[int, int]] = []

    def lend(self, allow: Callable[[int], None]) -> None:
        self.allow = allow

    def report_demand(self, wanted: int, running: int) -> None:
        self.said.append((wanted, running))


def test_pool_uses_leased_slots_within_the_memory_limit() -> None:
    lender, allowed = Lender(), list[int]()
    share = SlotLease(lender, allowed.append, 4)
    assert lender.allow and allowed == [0], "nothing before it is lent"
    lender.allow(3)
    share.limit_by_memory(2)
    lender.allow(1)
    share.limit_by_memory(4)
    assert allowed == [0, 3, 2, 1, 1]
    share.add_waiting_task(1)
    share.add_running_task(1)
    share.remove_tasks([1])
    assert lender.said[-3:] == [(1, 0), (1, 1), (0, 0)]


def test_lease_for_a_closed_pool_is_no_error() -> None:
    """As by the thread that hears the workflow, while the phase ends."""
    lender, closed = Lender(), False

    def allow(slots: int) -> None:
        if closed:
            raise ValueError("the pool is closed")

    SlotLease(lender, allow, 4)
    closed = True
    assert lender.allow
    lender.allow(2)
