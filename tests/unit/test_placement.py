"""The placement of tasks on nodes, without a node or a clock."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millrace.scheduler.node_load import MAX_AHEAD_PER_SLOT
from millrace.scheduler.placement import SendTask, TaskPlacement


class AnyOrder(RuleBasedStateMachine):
    """Tasks come, tasks end, nodes come and go, in any order; what is known of each task is kept beside."""

    @initialize(latency=st.sampled_from([0.0, 0.001, 1.0]))
    def begin(self, latency: float) -> None:
        self.placement = TaskPlacement(latency)
        self.now = 0.0
        self.slots: dict[int, int] = {}
        self.out: dict[int, list[int]] = {}  # by node, oldest first
        self.urgent: set[int] = set()
        self.waits: set[int] = set()
        self.ended: set[int] = set()
        self.sent: Counter[int] = Counter()
        self.lost: Counter[int] = Counter()
        self.copied: Counter[int] = Counter()
        self.tasks = self.nodes = 0

    def take(self, sends: list[SendTask]) -> None:
        for send in sends:
            assert send.node in self.slots, "sent to a node that is not there"
            assert len(self.out[send.node]) < self.placement.get_depth(send.node), "beyond the queue depth"
            assert send.task not in self.out[send.node]
            elsewhere = any(send.task in tasks for tasks in self.out.values())
            assert send.duplicate == elsewhere
            if send.duplicate:
                self.copied[send.task] += 1
                assert not self.waits
            else:
                assert send.task in self.waits
                assert send.task in self.urgent or not self.waits & self.urgent, "an urgent task was passed over"
                self.waits.remove(send.task)
            self.out[send.node].append(send.task)
            self.sent[send.task] += 1
            assert self.sent[send.task] <= 1 + self.lost[send.task] + self.copied[send.task]

    @rule(slots=st.integers(1, 5))
    def join(self, slots: int) -> None:
        self.nodes += 1
        self.slots[self.nodes] = slots
        self.out[self.nodes] = []
        self.take(self.placement.add_node(self.nodes, slots, self.now))

    @precondition(lambda self: self.slots)
    @rule(choose=st.data())
    def lose(self, choose: st.DataObject) -> None:
        node = choose.draw(st.sampled_from(sorted(self.slots)))
        tasks = self.out.pop(node)
        del self.slots[node]
        alone = [
            task for task in tasks if task not in self.ended and not any(task in other for other in self.out.values())
        ]
        back, sends = self.placement.remove_node(node, self.now)
        assert back == alone
        self.waits.update(alone)
        self.urgent.update(alone)
        self.lost.update(alone)
        self.take(sends)
        assert self.placement.end_task(node, tasks[0] if tasks else 0, 1.0, self.now) == []

    @rule(units=st.integers(0, 100), urgent=st.booleans(), prefer=st.lists(st.integers(1, 6), max_size=2))
    def ready(self, units: int, urgent: bool, prefer: list[int]) -> None:
        self.tasks += 1
        self.waits.add(self.tasks)
        if urgent:
            self.urgent.add(self.tasks)
        self.take(self.placement.add_task(self.tasks, units, self.now, urgent=urgent, prefer=prefer))

    @precondition(lambda self: any(self.out.values()))
    @rule(choose=st.data(), seconds=st.floats(0, 10), counts=st.booleans())
    def end(self, choose: st.DataObject, seconds: float, counts: bool) -> None:
        node = choose.draw(st.sampled_from([node for node, tasks in self.out.items() if tasks]))
        task = choose.draw(st.sampled_from(self.out[node]))
        assert self.placement.is_task_open(task) == (task not in self.ended)
        self.out[node].remove(task)
        if counts or not any(task in tasks for tasks in self.out.values()):
            self.ended.add(task)
        self.now += seconds
        self.take(self.placement.end_task(node, task, seconds, self.now, counts=counts))
        assert self.placement.is_task_open(task) == (task not in self.ended)
        assert set(self.placement.get_task_nodes(task)) == {node for node, tasks in self.out.items() if task in tasks}

    @rule(seconds=st.floats(0, 100))
    def straggle(self, seconds: float) -> None:
        self.now += seconds
        sends = self.placement.duplicate_stragglers(self.now)
        assert all(send.duplicate and send.task not in self.ended for send in sends)
        for send in sends:
            assert len(self.out[send.node]) < self.slots[send.node], "a duplicate on a slot that is not idle"
            self.take([send])
        assert all(times == 1 for times in Counter(send.task for send in sends).values())

    @rule()
    def withdraw(self) -> None:
        assert set(self.placement.withdraw_tasks()) == self.waits
        self.waits.clear()

    @invariant()
    def nothing_waits_while_a_slot_is_idle(self) -> None:
        if not hasattr(self, "placement"):
            return
        assert self.placement.n_waiting == len(self.waits)
        assert self.placement.n_slots == sum(self.slots.values())
        for node, slots in self.slots.items():
            assert slots <= self.placement.get_depth(node) <= slots * (1 + MAX_AHEAD_PER_SLOT)
            if self.waits:
                assert len(self.out[node]) >= slots, f"task {min(self.waits)} waits and node {node} is idle"


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=50, stateful_step_count=50)


@dataclass
class Cluster:
    """Nodes with a clock: a message takes ``delay`` each way, a task its units over the speed of its node."""

    placement: TaskPlacement
    speeds: dict[int, float]
    slots: int
    delay: float
    now: float = 0.0
    events: list[tuple[float, int, str, int, int]] = field(default_factory=list)
    queued: dict[int, list[int]] = field(default_factory=dict)
    free: dict[int, int] = field(default_factory=dict)
    units: dict[int, float] = field(default_factory=dict)
    ran: Counter[int] = field(default_factory=Counter)
    serial: int = 0

    def run(self, tasks: Sequence[float], *, straggling: bool = False) -> float:
        """Run all tasks; return when the last one ended for the first time."""
        for node in self.speeds:
            self.free[node], self.queued[node] = self.slots, []
            self.take(self.placement.add_node(node, self.slots, 0.0))
        for number, units in enumerate(tasks):
            self.units[number] = units
            self.take(self.placement.add_task(number, units, 0.0))
        last = 0.0
        while self.events:
            self.now, _, what, node, task = heapq.heappop(self.events)
            if what == "arrives":
                self.queued[node].append(task)
                self.start(node)
            elif what == "ends":
                self.free[node] += 1
                self.start(node)
                self.later(self.delay, "is told", node, task)
            else:
                if self.placement.is_task_open(task):
                    last = self.now
                self.take(self.placement.end_task(node, task, self.units[task] / self.speeds[node], self.now))
                if straggling:
                    self.take(self.placement.duplicate_stragglers(self.now))
        return last

    def start(self, node: int) -> None:
        while self.free[node] and self.queued[node]:
            task = self.queued[node].pop(0)
            self.free[node] -= 1
            self.ran[task] += 1
            self.later(self.units[task] / self.speeds[node], "ends", node, task)

    def take(self, sends: list[SendTask]) -> None:
        for send in sends:
            self.later(self.delay, "arrives", send.node, send.task)

    def later(self, seconds: float, what: str, node: int, task: int) -> None:
        self.serial += 1
        heapq.heappush(self.events, (self.now + seconds, self.serial, what, node, task))


def test_tasks_go_to_idle_slots_first_and_spread_evenly() -> None:
    placement = TaskPlacement(0.1)
    for node in (1, 2):
        assert placement.add_node(node, 2, 0.0) == []
    sends = [placement.add_task(task, 1.0, 0.0)[0].node for task in range(6)]
    assert sends == [1, 2, 1, 2, 1, 2]  # two a node fill the slots, the third waits there
    assert placement.add_task(6, 1.0, 0.0) == []
    assert placement.n_waiting == 1


def test_urgent_task_starts_next() -> None:
    placement = TaskPlacement(0.0)
    placement.add_node(1, 1, 0.0)
    assert placement.add_task(0, 1.0, 0.0) == [SendTask(1, 0)]
    assert placement.add_task(1, 1.0, 0.0) == []
    assert placement.add_task(2, 1.0, 0.0, urgent=True) == []
    assert placement.end_task(1, 0, 1.0, 1.0) == [SendTask(1, 2)]
    assert placement.end_task(1, 2, 1.0, 2.0) == [SendTask(1, 1)]


def test_tasks_of_a_lost_node_restart_before_all_others() -> None:
    placement = TaskPlacement(0.0)
    placement.add_node(1, 2, 0.0)
    placement.add_node(2, 1, 0.0)
    for task in range(5):
        placement.add_task(task, 1.0, 0.0)
    back, sends = placement.remove_node(1, 1.0)
    assert back == [0, 2] and sends == []
    assert placement.end_task(2, 1, 1.0, 1.0) == [SendTask(2, 0)]
    assert placement.end_task(2, 0, 1.0, 2.0) == [SendTask(2, 2)]
    assert placement.end_task(2, 2, 1.0, 3.0) == [SendTask(2, 3)]


def test_tasks_of_a_lost_node_spread_over_idle_slots() -> None:
    placement = TaskPlacement(1.0)
    placement.add_node(1, 4, 0.0)
    for task in range(4):
        placement.add_task(task, 1.0, 0.0)
    for node in (2, 3):
        placement.add_node(node, 2, 0.0)
    _, sends = placement.remove_node(1, 1.0)
    assert sorted(send.node for send in sends) == [2, 2, 3, 3]


def test_preferred_node_is_used_unless_a_slot_is_idle() -> None:
    placement = TaskPlacement(0.01)
    for node in (1, 2):
        placement.add_node(node, 1, 0.0)
    assert placement.add_task(0, 1.0, 0.0, prefer=(2,)) == [SendTask(2, 0)]
    assert placement.add_task(1, 1.0, 0.0, prefer=(2,)) == [SendTask(1, 1)], "a slot is idle: nothing waits"
    assert placement.add_task(2, 1.0, 0.0, prefer=(2,)) == [SendTask(2, 2)], "no slot is idle: its node's queue"
    assert placement.add_task(3, 1.0, 0.0, prefer=(2,)) == [], "its node will have room soon"
    assert placement.add_task(4, 1.0, 0.0) == [SendTask(1, 4)]
    assert placement.end_task(1, 1, 0.1, 0.1) == [], "the other node has a task: this one waits for its own"
    assert placement.end_task(2, 0, 0.1, 0.1) == [SendTask(2, 3)]


def test_preference_delays_other_tasks_for_a_limited_time() -> None:
    placement = TaskPlacement(0.0)
    for node in (1, 2):
        placement.add_node(node, 1, 0.0)
    placement.add_task(0, 1.0, 0.0)
    placement.add_task(1, 1.0, 0.0)
    for task in (2, 3, 4, 5, 6):
        placement.add_task(task, 1.0, 0.0, prefer=(2,) if task > 2 else (1,))
    order = []
    running = 1
    for second in range(4):
        (send,) = placement.end_task(2, running, 1.0, second + 1.0)
        order.append(running := send.task)
    assert order == [3, 4, 2, 5], "two slots: task 2 is passed over by two"


def test_the_queue_hides_the_measured_delay() -> None:
    placement = TaskPlacement(0.0)
    placement.add_node(1, 4, 0.0)
    assert placement.get_depth(1) == 4
    placement.add_task(0, 1.0, 0.0)
    placement.end_task(1, 0, 1.0, 1.5)  # ran for 1 s, was away for 1.5 s
    assert 4 + 2 < placement.get_depth(1) <= 4 + 8


def test_original_task_is_awaited_after_its_copy_failed() -> None:
    placement = TaskPlacement(0.0)
    for node in (1, 2):
        placement.add_node(node, 1, 0.0)
    placement.add_task(0, 1.0, 0.0)
    placement.add_task(1, 1.0, 0.0)
    placement.end_task(2, 1, 1.0, 1.0)
    assert placement.duplicate_stragglers(9.0) == [SendTask(2, 0, duplicate=True)]
    assert placement.end_task(2, 0, 1.0, 10.0, counts=False) == []
    assert placement.is_task_open(0)
    assert placement.remove_node(1, 11.0) == ([0], [SendTask(2, 0)])


def test_tasks_queued_at_a_frozen_node_are_duplicated() -> None:
    placement = TaskPlacement(2.0)  # longer than a task, so that a new run seems to take longer than a short wait
    for node in (1, 2):
        placement.add_node(node, 1, 0.0)
    held: dict[int, list[int]] = {1: [], 2: []}
    for task in range(4):
        for send in placement.add_task(task, 1.0, 0.0):
            held[send.node].append(send.task)
    now = 0.0
    for task in held[2]:
        placement.end_task(2, task, 1.0, now := now + 3.0)
    copied: set[int] = set()
    while len(copied) < 2 and now < 60:
        now += 0.25
        for send in placement.duplicate_stragglers(now):
            assert send.node == 2 and send.duplicate
            copied.add(send.task)
            placement.end_task(2, send.task, 1.0, now)
    assert copied == set(held[1]), "a task is lost with its node"


def test_partition_gets_one_task_ahead_per_node() -> None:
    placement = TaskPlacement(0.001)
    placement.add_node(1, 96, 0.0, members=8)
    placement.add_node(2, 96, 0.0)
    assert (placement.get_depth(1), placement.get_depth(2)) == (96 + 8, 96 + 1)


@pytest.mark.parametrize(("seconds", "waits"), [(0.1, True), (10.0, False)])
def test_long_task_does_not_wait_at_a_node_near_the_end(seconds: float, waits: bool) -> None:
    """It would wait behind others while slots elsewhere are idle, and a message takes little beside it."""
    placement = TaskPlacement(0.01)
    for node in (1, 2):
        placement.add_node(node, 2, 0.0)
    for task in range(10):
        placement.add_task(task, 1.0, 0.0)
    placement.end_task(1, 0, seconds, seconds + 0.01)
    before = placement.get_depth(1)
    placement.end_input()
    assert before >= 3 and (placement.get_depth(1) > 2) is waits and (placement.get_depth(2) > 2) is waits


def test_without_prefetch_a_node_gets_no_more_than_its_slots() -> None:
    placement = TaskPlacement(1.0, most_ahead=0)
    placement.add_node(1, 4, 0.0, members=2)
    placement.add_task(0, 1.0, 0.0)
    placement.end_task(1, 0, 0.1, 2.0)
    assert placement.get_depth(1) == 4


@pytest.mark.parametrize("delay", [0.001, 0.02, 0.1])
def test_no_slot_waits_for_the_network(delay: float) -> None:
    rng = random.Random(1)
    tasks = [rng.lognormvariate(0, 0.5) for _ in range(4000)]
    at_once = Cluster(TaskPlacement(0.0), dict.fromkeys(range(8), 1.0), 8, 0.0).run(tasks)
    assert Cluster(TaskPlacement(), dict.fromkeys(range(8), 1.0), 8, delay).run(tasks) < 1.02 * at_once + 4 * delay


def test_slow_node_gets_fewer_tasks() -> None:
    """Its last tasks run again on other nodes."""
    speeds = {0: 1.0, 1: 1.0, 2: 0.1}
    plain = Cluster(TaskPlacement(0.001), speeds, 4, 0.001).run([1.0] * 200)
    cluster = Cluster(TaskPlacement(0.001), speeds, 4, 0.001)
    better = cluster.run([1.0] * 200, straggling=True)
    assert better < plain - 5
    assert max(cluster.ran.values()) == 2 and sum(cluster.ran.values()) <= 200 + 8
    assert set(cluster.ran) == set(range(200))


def test_nodes_share_the_work_by_their_measured_speed() -> None:
    rng = random.Random(2)
    tasks = [rng.lognormvariate(0, 0.5) for _ in range(3000)]
    speeds = {0: 1.0, 1: 0.5, 2: 2.0, 3: 0.25}
    ended = Cluster(TaskPlacement(), speeds, 8, 0.005).run(tasks, straggling=True)
    assert ended < 1.05 * sum(tasks) / (8 * sum(speeds.values()))


def test_steady_nodes_duplicate_no_task() -> None:
    cluster = Cluster(TaskPlacement(0.001), dict.fromkeys(range(4), 1.0), 4, 0.001)
    cluster.run([1.0] * 160, straggling=True)
    assert sum(cluster.ran.values()) == 160


@settings(max_examples=30)
@given(st.integers(1, 20), st.integers(1, 8), st.lists(st.floats(0.01, 100), min_size=1, max_size=300), st.booleans())
def test_every_task_runs_whatever_its_duration(nodes: int, slots: int, tasks: list[float], straggling: bool) -> None:
    cluster = Cluster(TaskPlacement(), {node: 1.0 + node % 3 for node in range(nodes)}, slots, 0.01)
    ended = cluster.run(tasks, straggling=straggling)
    assert set(cluster.ran) == set(range(len(tasks)))
    if not straggling:
        assert max(cluster.ran.values()) == 1
        # Graham's bound for list scheduling, for the slowest node, with a message's delay at each task.
        assert ended <= sum(tasks) / slots + max(tasks) + 0.03 * len(tasks)
