"""Searches go to the nodes that hold their fragments."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.tasks import BatchId, SearchTask, SlotTask, TaskId
from millrace.scheduler.dispatcher import TaskDispatcher
from millrace.scheduler.fragment_holders import FragmentHolders
from millrace.scheduler.placement import TaskPlacement
from millrace.scheduler.waiting_tasks import RULES, LocalSearchQueue


class Run:
    """Nodes that search fragments as a dispatcher tells them; who asks next is drawn."""

    def __init__(self, slots: list[int], replicas: dict[int, list[int]], rule: str = "sdaft") -> None:
        placement = TaskPlacement()
        placement.local = LocalSearchQueue(RULES[rule])
        self.one: TaskDispatcher[int] = TaskDispatcher(len(replicas), placement)
        for node, many in enumerate(slots):
            self.one.add_node(node, many, 0.0)
        self.one.set_replicas(replicas)
        self.out: list[tuple[int, TaskId]] = []
        self.done: list[TaskId] = []
        self.now = 0.0

    def submit(self, fragments: list[int]) -> None:
        for number, fragment in enumerate(fragments, 1):
            self.one.submit_task(
                SlotTask(id=TaskId(number), batch=BatchId(1), kind=SearchTask(fragment)), number, 1.0, self.now
            )
        self.turn()

    def turn(self) -> None:
        self.one.send_waiting(self.now)
        self.out += [(send.node, TaskId(send.task)) for send, _ in self.one.pop_sends()]

    def end(self, chance: random.Random) -> None:
        self._end(chance.randrange(len(self.out)))

    def end_first(self, node: int) -> None:
        self._end(next(k for k, each in enumerate(self.out) if each[0] == node))

    def _end(self, place: int) -> None:
        node, task = self.out.pop(place)
        self.now += 1.0
        if self.one.mark_ended(node, task, 1.0, self.now, counts=True):
            self.done.append(task)
        self.turn()

    def lose(self, node: int) -> None:
        self.one.remove_node(node, self.now)
        self.out = [each for each in self.out if each[0] != node]
        self.turn()


@pytest.mark.parametrize("rule", RULES)
def test_two_replicas_keep_most_searches_local(rule: str) -> None:
    for seed in range(10):
        chance = random.Random(seed)
        replicas = {fragment: [fragment % 4, (fragment + chance.choice([1, 2, 3])) % 4] for fragment in range(1, 33)}
        run = Run([1] * 4, replicas, rule)
        run.submit([*replicas])
        while run.out:
            run.end(chance)
        assert sorted(run.done) == [*range(1, 33)]
        n_sent, n_local = run.one.n_local
        assert n_sent == 32 and n_local >= 30, (rule, seed, n_local)


def test_searches_follow_the_first_fetch_of_a_fragment() -> None:
    """Searches of several batches against one fragment run where it is."""
    run = Run([1, 1], {1: [], 2: []})
    run.submit([1, 1, 1, 2, 2, 2])
    assert {*run.out} >= {(0, TaskId(1)), (1, TaskId(4))}, "what nobody has comes first"
    for _ in range(3):
        for node in (0, 1):
            run.end_first(node)
    assert sorted(run.done) == [1, 2, 3, 4, 5, 6]
    assert run.one.n_local == (6, 4), "each fragment is fetched once"


def test_moved_replica_is_searched_at_its_new_node() -> None:
    run = Run([1, 1], {1: [0], 2: [0], 3: [0], 4: [0]})
    run.one.set_replicas({3: [1], 4: [1]})
    run.submit([1, 2, 3, 4])
    assert {(node, int(task)) for node, task in run.out} == {(0, 1), (0, 2), (1, 3), (1, 4)}


@pytest.mark.parametrize("rule", RULES)
def test_node_prefers_the_fragment_that_it_holds_most_of(rule: str) -> None:
    run = Run([1, 1], {1: [], 2: [], 3: [], 4: []}, rule)
    run.one.set_replicas({1: {0: 1.0, 1: 0.8}, 2: {0: 0.8, 1: 1.0}, 3: {0: 0.8, 1: 1.0}, 4: {0: 1.0, 1: 0.8}})
    run.submit([1, 2, 3, 4])
    taken = {*run.out}
    for node in (0, 1):
        run.end_first(node)
    assert {(node, int(task)) for node, task in taken | {*run.out}} == {(0, 1), (0, 4), (1, 2), (1, 3)}


@given(st.integers(0, 1 << 32))
def test_each_search_is_done_once_after_any_loss(seed: int) -> None:
    chance = random.Random(seed)
    n_nodes, n = chance.randint(1, 5), chance.randint(1, 12)
    nodes = range(n_nodes)
    replicas = {k: chance.sample([*nodes, 7], chance.randint(0, min(3, n_nodes))) for k in range(1, n + 1)}
    run = Run([chance.randint(1, 3) for _ in nodes], replicas, chance.choice([*RULES]))
    tasks = [chance.randint(1, n) for _ in range(chance.randint(1, 40))]
    run.submit(tasks)
    there = {*nodes}
    while run.out:
        deed = chance.random()
        if deed < 0.1 and len(there) > 1:
            run.lose(node := chance.choice(sorted(there)))
            there.remove(node)
        elif deed < 0.2:
            run.one.set_replicas({chance.randint(1, n): chance.sample([*nodes], 1)})
        else:
            run.end(chance)
    assert sorted(run.done) == [*range(1, len(tasks) + 1)]


def test_restored_node_has_its_replicas_but_no_copies() -> None:
    """The copies that it had fetched were lost with it."""
    holders = FragmentHolders({1: [0], 2: [1]})
    holders.add_copy(2, 0)
    assert holders.nodes_of == {1: (0,), 2: (0, 1)}
    holders.remove_node(0)
    assert holders.nodes_of == {1: (), 2: (1,)}
    holders.add_node(0)
    assert holders.nodes_of == {1: (0,), 2: (1,)}


def test_withdrawn_searches_are_dropped() -> None:
    run = Run([1], {1: [0], 2: [0], 3: [0]})
    run.submit([1, 2, 3, 1, 2, 3])
    n_out = len(run.out)
    assert len(run.one.withdraw_tasks()) == 6 - n_out
    while run.out:
        run.end(random.Random(0))
    assert len(run.done) == n_out


def bounded(slots: list[int], fragments: int, copies: int, held: dict[int, list[int]] | None = None) -> Run:
    """Return nodes of which at most ``copies`` fetch each fragment; ``held``: copies of earlier jobs."""
    run = Run(slots, {})
    run.one = TaskDispatcher(fragments, max_copies=copies)
    for node, many in enumerate(slots):
        run.one.add_node(node, many, 0.0)
    run.one.set_replicas(held or {})
    return run


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=5), st.integers(1, 9), st.integers(1, 3), st.integers(1, 4),
    st.booleans(), st.randoms(use_true_random=False),
)  # fmt: skip
def test_bounded_copies_are_fetched_by_few_nodes(
    slots: list[int], fragments: int, copies: int, batches: int, loses: bool, chance: random.Random
) -> None:
    """All searches end, whatever node is lost; each fragment is on no more nodes than that, and no node has more than its share."""
    run = bounded(slots, fragments, copies)
    run.submit([*range(1, fragments + 1)] * batches)
    of = {TaskId(number): 1 + (number - 1) % fragments for number in range(1, fragments * batches + 1)}
    lost, at = set(), dict[int, set[int]]()
    if loses and len(slots) > 1:
        lost.add(chance.randrange(len(slots)))
    steps = chance.randrange(3)
    while run.out:
        for node, task in run.out:
            at.setdefault(of[task], set()).add(node)
        if steps == 0 and lost:
            run.lose(*lost)
        else:
            run.end(chance)
        steps -= 1
    assert sorted(run.done) == [*range(1, fragments * batches + 1)]
    for fragment, nodes in at.items():
        assert len(nodes - lost) <= copies, (fragment, at)
    if not lost:
        share = -(-fragments * min(copies, len(slots)) // len(slots))
        assert all(sum(node in nodes for nodes in at.values()) <= share for node in range(len(slots))), at


def test_bounded_copies_are_those_of_earlier_jobs() -> None:
    """A node searches what it has kept, and fetches only what no node has, up to its share."""
    run = bounded([1, 1], 4, 1, {1: [0], 2: [0]})
    run.submit([1, 2, 3, 4])
    assert {*run.out} >= {(1, TaskId(3))} and (1, TaskId(1)) not in run.out
    chance, where = random.Random(1), dict[int, int]()
    while run.out:
        where |= {int(task): node for node, task in run.out}
        run.end(chance)
    assert where == {1: 0, 2: 0, 3: 1, 4: 1}
    assert run.one.n_local == (4, 2)


def test_straggler_is_not_copied_to_a_node_that_would_fetch() -> None:
    """A second copy of a search would read its fragment again from shared storage."""
    run = bounded([1, 1], 2, 1)
    run.submit([1, 2])
    run.one.end_submission()
    run.end_first(1)
    run.now = 1000.0
    run.turn()
    assert [node for node, _ in run.out] == [0]
