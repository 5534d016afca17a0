"""Queue of the tasks that wait for a node, by holders of fragments where known, and stragglers. Pure.

A node searches first the fragments of which it holds the largest share: parts of a volume may be in different places.
Rules know the holders and the fragments left, not the time of a search. ``bench.locality`` compares them. Near the
end, a task is duplicated (a straggler) where that likely ends sooner.

Sources: the schedulers of SDAFT (scalable data access for parallel BLAST on HDFS) and PIO, as published, for
``choose_by_sdaft`` and ``choose_by_pio``; backup tasks of MapReduce (Dean and Ghemawat 2004, 3.6); the comparison of
the time left with a new run is that of LATE (Zaharia et al. 2008).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from millrace.scheduler.fragment_holders import FragmentHolders, FragmentReplicas
from millrace.scheduler.node_load import NodeLoad, NodeSpeeds


class PlacedTask(msgspec.Struct):
    """A task as far as its placement is concerned."""

    number: int
    #: Cost units, the same unit for all tasks.
    units: float
    #: Position in the order of arrival.
    serial: int
    #: Nodes where it costs less.
    prefer: tuple[int, ...] = ()
    #: Fragment of the database that it searches; 0: none.
    fragment: int = 0
    #: Must never be duplicated.
    once: bool = False
    waiting: bool = False
    ended: bool = False
    #: Nodes that it was sent to.
    nodes: list[int] = msgspec.field(default_factory=list)


class WaitingTasks:
    """Urgent tasks first, then the oldest; each node finds its preferred tasks without a scan of all others."""

    def __init__(self) -> None:
        #: Number of waiting tasks.
        self.count = 0
        # Oldest first. A task that was removed from one queue is skipped when it is met in another.
        self._urgent: deque[PlacedTask] = deque()
        self._plain: deque[PlacedTask] = deque()  # all that are not urgent
        self._free: deque[PlacedTask] = deque()  # of these, those that no live node prefers
        self._preferring: dict[int, deque[PlacedTask]] = {}  # of these, by preferred node

    def add_node(self, node: int) -> None:
        """Add a node, which tasks may prefer from now on."""
        self._preferring.setdefault(node, deque())

    def remove_node(self, node: int) -> None:
        """Remove a node, and free the tasks that prefer it and no other live node."""
        orphans = [task for task in self._preferring.pop(node) if task.waiting and not self._list_living_nodes(task)]
        if orphans:
            self._free = deque(sorted([*self._free, *orphans], key=lambda task: task.serial))

    def _list_living_nodes(self, task: PlacedTask) -> list[int]:
        return [node for node in task.prefer if node in self._preferring]

    def add_task(self, task: PlacedTask, *, urgent: bool) -> None:
        """Queue a task."""
        task.waiting = True
        self.count += 1
        if urgent:
            self._urgent.append(task)
            return
        self._plain.append(task)
        living = self._list_living_nodes(task)
        for node in living:
            self._preferring[node].append(task)
        if not living:
            self._free.append(task)

    def return_tasks(self, tasks: Sequence[PlacedTask]) -> None:
        """Return sent tasks to the queue, before all others."""
        for task in reversed(tasks):
            task.waiting = True
            self._urgent.appendleft(task)
        self.count += len(tasks)

    def pop_task(self, node: int, most_passed: int, *, idle: bool) -> PlacedTask | None:
        """Remove and return the task for a node with room, or None.

        Args:
            most_passed: Maximum number of later tasks that may pass a task.
            idle: A slot is idle there, which takes any task; else only a task that prefers the node, or that is free.
        """
        task = self._choose_task(node, most_passed, idle=idle)
        if task is not None:
            task.waiting = False
            self.count -= 1
        return task

    def _choose_task(self, node: int, most_passed: int, *, idle: bool) -> PlacedTask | None:
        if (urgent := _peek_waiting(self._urgent)) is not None:
            self._urgent.popleft()
            return urgent
        oldest = _peek_waiting(self._plain)
        for queue in (self._preferring[node], self._free):
            task = _peek_waiting(queue)
            if task is not None and oldest is not None and task.serial - oldest.serial <= most_passed:
                return task
        return oldest if idle else None

    def clear(self) -> None:
        """Remove all tasks."""
        self.count = 0
        for queue in (self._urgent, self._plain, self._free, *self._preferring.values()):
            queue.clear()


def _peek_waiting(queue: deque[PlacedTask]) -> PlacedTask | None:
    """Return the oldest task of a queue that still waits."""
    while queue and not queue[0].waiting:
        queue.popleft()
    return queue[0] if queue else None


#: Chooses the next fragment for a node from those that are left; at least one is.
LocalityRule = Callable[[int, FragmentHolders], int]

#: Bytes per second that ``choose_by_cost`` assumes of a disk and of a link (1 Gbit/s).
DISK_BYTES_PER_SECOND, LINK_BYTES_PER_SECOND = 100e6, 125e6


def choose_by_sdaft(node: int, holders: FragmentHolders) -> int:
    """Choose, of the node's own fragments or else of all, the one whose least loaded other holder has most left.

    >>> holders = FragmentHolders({1: [7, 8], 2: [7, 9], 3: [9]})
    >>> for fragment in (1, 2, 3): holders.add_search(fragment)
    >>> choose_by_sdaft(7, holders), choose_by_sdaft(6, holders)
    (2, 3)
    """
    if own := holders.list_nearest(node):
        return max(own, key=lambda fragment: (min(holders.list_holder_loads(fragment, node), default=0), fragment))
    return max(holders.left, key=lambda fragment: (min(holders.list_holder_loads(fragment), default=0), fragment))


def choose_oldest(node: int, holders: FragmentHolders) -> int:
    """Choose the oldest fragment of those that the node holds; without own ones as SDAFT does, of equals the oldest.

    >>> holders = FragmentHolders({1: [7, 8], 2: [7], 3: [8]}); holders.add_search(1); holders.add_search(2)
    >>> choose_oldest(7, holders), choose_oldest(8, holders), choose_oldest(9, holders)
    (1, 1, 2)
    """
    if own := holders.list_nearest(node):
        return min(own)
    return max(holders.left, key=lambda fragment: (min(holders.list_holder_loads(fragment), default=0), -fragment))


def choose_by_pio(node: int, holders: FragmentHolders) -> int:
    """Choose the node's own fragment that the fewest others could search; without own ones, the one that most could.

    >>> holders = FragmentHolders({1: [7, 8], 2: [7]}); holders.add_search(1); holders.add_search(2)
    >>> choose_by_pio(7, holders), choose_by_pio(8, holders), choose_by_pio(9, holders)
    (2, 1, 1)
    """

    def spread(fragment: int) -> int:
        return sum(1 for other in holders.nodes_of.get(fragment, ()) if holders.of_node[other])

    if own := holders.list_nearest(node):
        return min(own, key=lambda fragment: (spread(fragment), fragment))
    return max(holders.left, key=lambda fragment: (spread(fragment), fragment))


def choose_by_cost(node: int, holders: FragmentHolders) -> int:
    """Choose the fragment with the least read time now; of equals, the one whose holders have most else to do.

    >>> holders = FragmentHolders({1: [7], 2: [8]}); holders.add_search(1); holders.add_search(2); holders.serves[7] = 3
    >>> choose_by_cost(7, holders), choose_by_cost(9, holders)
    (1, 2)
    """

    def key(fragment: int) -> tuple[float, float, int]:
        if fragment in holders.of_node[node]:
            # Fragments that others hold as well, and have little else to do, are left to them.
            return 1 / DISK_BYTES_PER_SECOND, -sum(holders.list_holder_loads(fragment, node)), fragment
        serving = min((holders.serves[other] for other in holders.nodes_of.get(fragment, ())), default=0)
        return (
            1 / min(DISK_BYTES_PER_SECOND, LINK_BYTES_PER_SECOND / (serving + 1)),
            -sum(holders.list_holder_loads(fragment)),
            fragment,
        )

    return min(holders.list_nearest(node) or holders.left, key=key)


#: All rules by name.
RULES: dict[str, LocalityRule] = {"sdaft": choose_by_sdaft, "pio": choose_by_pio, "cost": choose_by_cost}


class LocalSearchQueue:
    """Queue of searches in fragments whose holders are known.

    Args:
        rule: The default is as local as the others in the simulator, and ends first.
    """

    def __init__(self, rule: LocalityRule = choose_by_sdaft) -> None:
        self._rule = rule
        #: Whether a node that was sent a task holds its fragment from then on.
        self.keeps_copies = True
        #: Nodes that take no tasks of fragments that they do not hold.
        self.reserved: Collection[int] = ()
        self.holders = FragmentHolders()
        self._waiting: dict[int, deque[PlacedTask]] = {}
        #: Number of searches that were sent, and of those sent to a node that held the fragment.
        self.n_sent = self.n_local = 0

    def __len__(self) -> int:
        """Return the number of waiting searches."""
        return sum(self.holders.left.values())

    def set_pieces(self) -> None:
        """Take the pieces of an input for fragments: each is read once, in order, and no node keeps what it was sent."""
        self._rule, self.keeps_copies = choose_oldest, False

    def set_replicas(self, replicas: Mapping[int, FragmentReplicas]) -> None:
        """Set the nodes with a replica; see ``FragmentHolders.set_replicas``."""
        self.holders.set_replicas(replicas)

    def add_search(self, task: PlacedTask) -> None:
        """Queue a search."""
        self._waiting.setdefault(task.fragment, deque()).append(task)
        self.holders.add_search(task.fragment)

    def pop_search(self, node: int, *, idle: bool) -> PlacedTask | None:
        """Remove and return the next search for a node, or None.

        Args:
            idle: A slot is idle there, so any search will do; else only fragments that it holds: others may hold the
                rest.
        """
        holders = self.holders
        if not (holders.left if idle and node not in self.reserved else holders.of_node[node]):
            return None
        fragment = self._choose_fragment(node)
        if fragment is None:
            return None
        holders.remove_search(fragment)
        return self._waiting[fragment].popleft()

    def _choose_fragment(self, node: int) -> int | None:
        """Choose the next fragment for a node; None: it may fetch none of those that are left."""
        holders = self.holders
        if holders.of_node[node]:
            return self._rule(node, holders)
        fetchable = holders.list_fetchable(node)
        # A fragment without holders must be fetched in any case.
        if orphan := next((each for each in fetchable if not holders.nodes_of[each]), None):
            return orphan
        if not holders.max_copies:
            return self._rule(node, holders)
        return min(fetchable, key=lambda each: len(holders.nodes_of[each]), default=None)

    def return_searches(self, tasks: Sequence[PlacedTask]) -> None:
        """Return sent searches to the queue, before others of their fragments."""
        for task in reversed(tasks):
            task.waiting = True
            self._waiting.setdefault(task.fragment, deque()).appendleft(task)
            self.holders.add_search(task.fragment)

    def record_send(self, fragment: int, node: int) -> None:
        """Note that a search goes to a node, which holds the fragment from then on."""
        self.n_sent += 1
        self.n_local += self.holders.has_fragment(node, fragment)
        if self.keeps_copies:
            self.holders.add_copy(fragment, node)

    def clear(self) -> None:
        """Remove all waiting searches."""
        self._waiting.clear()
        self.holders.clear()


def choose_copies(
    nodes: Mapping[int, NodeLoad], tasks: Mapping[int, PlacedTask], speeds: NodeSpeeds, holders: FragmentHolders, now: float
) -> Iterator[tuple[int, PlacedTask]]:  # fmt: skip
    """Yield (node, task) of the copies to send; send each before the next is asked for.

    A task is out twice at most. It is copied if its time left is likely longer than a run from its start on the node
    with the idle slot: it waits behind others, its node is slow, or it is overdue. The time left of an overdue task is
    estimated as its run time so far.
    """
    idle = [(speeds.get_rate(item), node) for node, item in nodes.items() if item.n_idle]
    if not idle:
        return
    idle.sort(key=lambda pair: (-pair[0], pair[1]))
    left = sorted(
        (
            (seconds, -number)
            for item in nodes.values()
            for number, seconds in _estimate_task_ends(item, tasks, speeds, now).items()
            if not (tasks[number].ended or tasks[number].once) and len(tasks[number].nodes) == 1
        ),
        reverse=True,
    )
    for seconds, negative in left:
        task = tasks[-negative]
        found = next(
            ((rate, node) for rate, node in idle if node not in task.nodes and holders.may_search(node, task.fragment)),
            None,
        )
        if found is None:
            continue
        rate, node = found
        if seconds <= task.units / rate + speeds.get_latency(nodes[node]):
            continue
        yield node, task
        if not nodes[node].n_idle:
            idle.remove(found)
            if not idle:
                return


def _estimate_task_ends(
    item: NodeLoad, tasks: Mapping[int, PlacedTask], speeds: NodeSpeeds, now: float
) -> dict[int, float]:
    """Return the estimated seconds until each task at a node ends."""
    running = {number: speeds.estimate_remaining(item, number, tasks[number].units, now) for number in item.running}
    # A waiting task waits at least for the first slot: a node that is stuck never has one.
    wait = min(running.values(), default=0.0)
    return running | {number: wait + tasks[number].units / speeds.get_rate(item) for number in item.queued}
