"""Figures of each node of a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from millrace.report.events import TaskEvent
from millrace.report.runs import LoggedRun


class NodeFigures(msgspec.Struct, frozen=True):
    """Figures of the slots of one node in the latest start."""

    host: str
    slots: int
    n_tasks: int
    n_failed: int
    records: int
    #: Share of time in which its slots had a task, counting tasks that have ended.
    busy: float
    #: Seconds since its last task end, at the latest event of the run; None: no task has ended.
    silent: float | None


def summarise_nodes(run: LoggedRun) -> list[NodeFigures]:
    """Return the figures of a start's nodes, in the order of their slots.

    Old logs name no nodes: all slots count as one.
    """
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
    return [_summarise_node(host, sum(map(len, ranges)), tasks[host], run.wall) for host, ranges in hosts.items()]


def _summarise_node(host: str, n_slots: int, tasks: Sequence[TaskEvent], wall: float) -> NodeFigures:
    return NodeFigures(
        host=host,
        slots=n_slots,
        n_tasks=sum(task.tasks for task in tasks),
        n_failed=sum(task.is_failure for task in tasks),
        records=sum(task.records for task in tasks if task.status == "done" and not task.fragment),
        busy=min(sum(task.seconds for task in tasks) / (wall * n_slots), 1.0) if wall and n_slots else 0.0,
        silent=wall - max(task.t for task in tasks) if tasks else None,
    )
