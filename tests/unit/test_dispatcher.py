"""Dispatch: what is sent, and what is told of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.core.tasks import BatchId, SearchTask, SlotTask, TaskId, WholeTask
from millrace.scheduler.dispatcher import STRAGGLER_INTERVAL_SECONDS, TaskDispatcher


def dispatcher(*slots: int, fragments: int = 0) -> TaskDispatcher[str]:
    found: TaskDispatcher[str] = TaskDispatcher(fragments)
    for node, many in enumerate(slots):
        found.add_node(node, many, 0.0)
    return found


def task_of(number: int, fragment: int = 0) -> SlotTask:
    return SlotTask(id=TaskId(number), batch=BatchId(number), kind=SearchTask(fragment) if fragment else WholeTask())


def sent(one: TaskDispatcher[str]) -> list[tuple[int, str]]:
    return [(send.node, load) for send, load in one.pop_sends()]


def test_task_is_sent_once_with_its_payload() -> None:
    one = dispatcher(1, 1)
    one.submit_task(task_of(7), "seven", 1.0, 0.0)
    assert sent(one) == [(0, "seven")]
    assert sent(one) == []


def test_first_result_of_a_duplicated_task_is_reported() -> None:
    one = dispatcher(1, 1)
    for task, name in ((1, "a"), (2, "b")):
        one.submit_task(task_of(task), name, 1.0, 0.0)
    assert sent(one) == [(0, "a"), (1, "b")]
    assert one.mark_started(1) and not one.mark_started(1)
    assert one.mark_ended(1, 2, 1.0, 1.0, counts=True)
    one.send_waiting(50.0)
    assert sent(one) == [], "more may come"
    one.end_submission()
    one.send_waiting(51.0)
    assert sent(one) == [(1, "a")]
    assert not one.mark_ended(0, 1, 1.0, 52.0, counts=False), "the copy may do better"
    assert one.mark_ended(1, 1, 1.0, 53.0, counts=True)
    one.send_waiting(53.0 + 2 * STRAGGLER_INTERVAL_SECONDS)
    assert sent(one) == []


def test_no_duplicate_starts_after_tasks_were_withdrawn() -> None:
    """A run that is to stop would end the copy halfway, or wait for it."""
    one = dispatcher(1, 1)
    for task, name in ((1, "a"), (2, "b")):
        one.submit_task(task_of(task), name, 1.0, 0.0)
    sent(one)
    one.end_submission()
    one.mark_ended(1, TaskId(2), 1.0, 1.0, counts=True)
    assert one.withdraw_tasks() == []
    one.send_waiting(50.0)
    assert sent(one) == []


def test_tasks_of_a_lost_node_run_on_others() -> None:
    one = dispatcher(2, 2)
    for task in range(4):
        one.submit_task(task_of(task), str(task), 1.0, 0.0)
    sent(one)
    one.add_node(2, 2, 1.0)
    assert one.remove_node(0, 1.0) == 2
    assert sorted(sent(one)) == [(2, "0"), (2, "2")]


def test_returned_task_is_reported_if_no_other_node_has_it() -> None:
    one = dispatcher(1)
    for task in range(4):
        one.submit_task(task_of(task), str(task), 1.0, 0.0)
    out = [load for _, load in sent(one)]
    waiting = one.withdraw_tasks()
    assert sorted([*map(int, out), *waiting]) == [0, 1, 2, 3]
    assert one.mark_returned(0, int(out[-1]), 1.0)
    assert sent(one) == []


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 6), st.lists(st.integers(0, 99), max_size=120),
)  # fmt: skip
def test_no_slot_is_idle_while_a_task_against_any_fragment_waits(
    slots: list[int], fragments: int, script: list[int]
) -> None:
    one = dispatcher(*slots, fragments=fragments)
    out: dict[int, list[int]] = {node: [] for node in range(len(slots))}
    waits: set[int] = set()
    now = 0.0
    for task, word in enumerate(script):
        now += 1.0
        busy = [node for node in out if out[node]]
        if word % 3 or not busy:
            waits.add(task)
            one.submit_task(task_of(task, 1 + word % fragments), str(task), 1.0, now)
        else:
            node = busy[word % len(busy)]
            assert one.mark_ended(node, out[node].pop(0), 1.0, now, counts=True)
        for node, load in sent(one):
            waits.remove(int(load))
            out[node].append(int(load))
        assert not waits or all(len(out[node]) >= many for node, many in enumerate(slots))


def test_node_gets_tasks_of_the_fragments_that_it_has() -> None:
    one = dispatcher(2, 2, 2, 2, fragments=4)
    at: dict[int, set[int]] = {}
    out: list[tuple[int, int]] = []
    task = ended = 0
    while ended < 80:
        while task - ended < 16:  # as many again wait as there are slots
            task += 1
            one.submit_task(task_of(task, 1 + task % 4), "", 1.0, float(ended))
        for send, _ in one.pop_sends():
            out.append((send.node, send.task))
            if ended > 30:
                at.setdefault(send.node, set()).add(1 + send.task % 4)
        one.mark_ended(*out.pop(0), 1.0, float(ended), counts=True)
        ended += 1
    assert len(at) == 4 and all(len(fragments) == 1 for fragments in at.values()), at


def test_task_over_all_volumes_runs_once_on_the_coordinator() -> None:
    for held, node in ((False, 1), (True, 0)):
        one = dispatcher(2, 1, fragments=1)
        if held:
            one.set_replicas({1: [1]})
        for task, name in ((1, "a"), (2, "b")):
            one.submit_task(task_of(task), name, 1.0, 0.0)
        assert sent(one) == [(0, "a"), (node, "b")]
    one.submit_task(task_of(3), "c", 1.0, 0.0)
    assert sent(one) == [(1, "c")], "the coordinator is busy, and others are idle"
    assert one.mark_ended(1, TaskId(3), 1.0, 1.0, counts=True)
    one.end_submission()
    one.send_waiting(60.0)
    assert sent(one) == []
