"""Choice of stragglers: tasks that are duplicated near the end, as that likely ends sooner. Pure.

Source: backup tasks of MapReduce (Dean and Ghemawat 2004, 3.6); the comparison of the time left with a new run is that
of LATE (Zaharia et al. 2008).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millrace.schedule.node_load import NodeLoad, NodeSpeeds
from millrace.schedule.waiting import PlacedTask


def choose_copies(
    nodes: Mapping[int, NodeLoad], tasks: Mapping[int, PlacedTask], speeds: NodeSpeeds, now: float
) -> Iterator[tuple[int, PlacedTask]]:
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
        found = next(((rate, node) for rate, node in idle if node not in task.nodes), None)
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
