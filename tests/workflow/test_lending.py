"""Slots that are lent: never more held than there are, none idle while a task waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.extensions.workflow.phase_conductor import SlotNeed, allot_slots, compute_slot_targets


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 8))
def test_no_slot_is_idle_while_a_task_waits(wanted: list[int], slots: int) -> None:
    aims = compute_slot_targets(wanted, slots)
    assert sum(aims) == min(slots, sum(wanted))
    assert all(0 <= aim <= tasks for aim, tasks in zip(aims, wanted, strict=True))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 8))
def test_first_waiting_phase_keeps_half_of_the_slots(wanted: list[int], slots: int) -> None:
    assert compute_slot_targets(wanted, slots)[0] >= min(wanted[0], (slots + 1) // 2)


@given(st.data(), st.integers(1, 6), st.integers(1, 4))
def test_held_slots_never_exceed_the_total(data: st.DataObject, slots: int, n_phases: int) -> None:
    needs = [SlotNeed() for _ in range(n_phases)]
    for _ in range(12):
        # Tools begin within what is allowed, and end when they like.
        running = [
            data.draw(st.integers(0, max(need.allowed, need.running if need.running > need.allowed else 0)))
            for need in needs
        ]
        wanted = [data.draw(st.integers(each, 9)) for each in running]
        needs = [
            SlotNeed(wanted=tasks, allowed=need.allowed, running=each)
            for need, tasks, each in zip(needs, wanted, running, strict=True)
        ]
        allowed = allot_slots(needs, slots)
        needs = [
            SlotNeed(wanted=need.wanted, allowed=now, running=need.running)
            for need, now in zip(needs, allowed, strict=True)
        ]
        assert sum(need.held for need in needs) <= slots


def test_slots_return_as_tools_end() -> None:
    needs = [SlotNeed(wanted=8, allowed=2, running=2), SlotNeed(wanted=3)]
    assert allot_slots(needs, 2) == [1, 0]
    needs = [SlotNeed(wanted=7, allowed=1, running=1), SlotNeed(wanted=3)]
    assert allot_slots(needs, 2) == [1, 1]
