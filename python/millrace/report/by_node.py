"""What the nodes of a run did. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from millrace.report.events import TaskEvent
from millrace.report.runs import Run


class Node(msgspec.Struct, frozen=True):
    """What the slots of one node did in the latest start."""

    host: str
    slots: int
    n_tasks: int
    n_failed: int
    records: int
    #: Share of time in which its slots had a task, as far as tasks have ended.
    busy: float
    #: Seconds since one ended, at the latest event of the run; None: none has.
    silent: float | None


def nodes(run: Run) -> list[Node]:
    """The nodes of a start, in the order of their slots; of old logs, which name none, all slots as one."""
    hosts: dict[str, list[range]] = {}
    first = 0
    for host, n_slots in run.head.nodes or [("all", run.head.slots)]:
        hosts.setdefault(host, []).append(range(first, first + n_slots))
        first += n_slots
    owner = {slot: host for host, ranges in hosts.items() for each in ranges for slot in each}
    tasks: dict[str, list[TaskEvent]] = {host: [] for host in hosts}
    for task in run.tasks:
        if task.slot in owner:
            tasks[owner[task.slot]].append(task)
    return [_node(host, sum(map(len, ranges)), tasks[host], run.wall) for host, ranges in hosts.items()]


def _node(host: str, n_slots: int, tasks: Sequence[TaskEvent], wall: float) -> Node:
    return Node(
        host=host,
        slots=n_slots,
        n_tasks=sum(task.tasks for task in tasks),
        n_failed=sum(task.is_failure for task in tasks),
        records=sum(task.records for task in tasks if task.status == "done" and not task.fragment),
        busy=min(sum(task.seconds for task in tasks) / (wall * n_slots), 1.0) if wall and n_slots else 0.0,
        silent=wall - max(task.t for task in tasks) if tasks else None,
    )
