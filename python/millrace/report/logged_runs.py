"""Runs in an event log, one after another on one axis of running time, and figures of each node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from millrace.report.events import (
    AnyLogEvent,
    EndEvent,
    QuarantineEvent,
    RetryEvent,
    RunEvent,
    TaskEvent,
    TasksEvent,
    VolumesEvent,
    WarningEvent,
    convert_events,
)


class LoggedRun(msgspec.Struct):
    """One run of a job, up to the next resume; times in seconds since it began."""

    head: RunEvent
    tasks: list[TaskEvent] = msgspec.field(default_factory=list)
    retries: list[RetryEvent] = msgspec.field(default_factory=list)
    quarantined: list[QuarantineEvent] = msgspec.field(default_factory=list)
    warnings: dict[str, int] = msgspec.field(default_factory=dict)
    volumes: VolumesEvent | None = None
    end: EndEvent | None = None
    #: Time of the latest event: for a killed run, the best estimate of its end.
    seen: float = 0.0

    @property
    def wall(self) -> float:
        """Seconds from its begin to its end, or to its last event if it was killed."""
        return max(self.seen, self.end.t if self.end else 0.0)

    @property
    def status(self) -> str:
        """Final status; ``unfinished`` while it goes on or if it was killed."""
        return self.end.status if self.end else "unfinished"

    @property
    def message(self) -> str:
        """Why it stopped early; empty if it did not, goes on, or was killed."""
        return self.end.message if self.end else ""

    @property
    def done_tasks(self) -> list[TaskEvent]:
        """The attempts whose output counts, each batch once."""
        once: dict[tuple[int, int], TaskEvent] = {}
        sums = []
        for task in self.tasks:
            if task.status == "done" and not task.fragment:
                if isinstance(task, TasksEvent):
                    sums.append(task)
                else:
                    once.setdefault((task.first, task.last), task)
        return [*once.values(), *sums]

    @property
    def records_done(self) -> int:
        """Number of records that are done after this run, those of earlier runs included."""
        if self.end and self.end.status in ("done", "quarantined"):
            return self.end.records_done  # a stopped run does not know it
        return self.head.records_resumed + sum(task.records for task in self.done_tasks)


def load_runs(events: Iterable[dict[str, Any] | AnyLogEvent]) -> list[LoggedRun]:
    """Sort events into runs. Events before the first ``run`` event get a run with default fields."""
    runs: list[LoggedRun] = []
    for event in convert_events(events):
        add_event(runs, event)
    return runs


def add_event(runs: list[LoggedRun], event: AnyLogEvent) -> None:
    """Add the next event of a log to the last of ``runs``."""
    if isinstance(event, RunEvent):
        runs.append(LoggedRun(event))
        return
    if not runs:
        runs.append(LoggedRun(RunEvent()))
    run = runs[-1]
    run.seen = max(run.seen, event.t)
    match event:
        case TaskEvent():
            run.tasks.append(event)
        case RetryEvent():
            run.retries.append(event)
        case QuarantineEvent():
            run.quarantined.append(event)
        case WarningEvent():
            # The count is "so far": the latest is the total.
            run.warnings[event.text] = max(event.count, run.warnings.get(event.text, 0))
        case VolumesEvent():
            run.volumes = event
        case EndEvent():
            run.end = event


def list_still_quarantined(runs: Iterable[LoggedRun]) -> list[QuarantineEvent]:
    """Return the quarantined records that no later run has done, in input order."""
    given_up: dict[int, QuarantineEvent] = {}
    for run in runs:
        # A run with --retry-quarantined may do records that an earlier one quarantined; its own quarantines follow.
        for task in run.tasks if given_up else ():
            # The first tasks of a start have lines of their own, and at that time there are no others.
            if task.status == "done" and not task.fragment and not isinstance(task, TasksEvent):
                for record in [record for record in given_up if task.first <= record < task.last]:
                    del given_up[record]
        given_up.update({event.record: event for event in run.quarantined})
    return [given_up[record] for record in sorted(given_up)]


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
