"""The costs and results of the tasks of a simulated job."""

from __future__ import annotations

from dataclasses import dataclass

from millrace import _core
from millrace.model import DatabaseFragment, FragmentPlan, OutputUse, RankColumns
from millrace.schedule.finish.shares import MIN_SEARCH_BYTES
from millrace.simulate.machine import SimulatedCluster
from millrace.simulate.trace import CostTrace
from millrace.tasks import RankTask, SearchTask, SliceTask, SlotTask, WholeTask

#: The result of most simulated tasks.
NOTHING = _core.TaskRef("", (0, 0, 0), False, [], [(0, b"", 0, 0, 0)])


@dataclass(slots=True)
class SimulatedTask:
    """An unfinished task."""

    task: SlotTask
    units: float
    #: Duration on a core of speed 1.
    seconds: float
    fails: bool
    #: The blocks that it commits.
    result: _core.TaskRef


class SimulatedWorkload:
    """The costs of a job on a cluster, by record."""

    def __init__(self, machine: SimulatedCluster, trace: CostTrace) -> None:
        self._machine, self._trace = machine, trace

    def make_task(self, task: SlotTask, first: int, last: int) -> SimulatedTask:
        """Return the work of ``task`` on the records ``[first, last)``."""
        trace, failing = self._trace, self._machine.failing
        units = float(trace.count_units_before(last) - trace.count_units_before(first))
        records = trace.sum_seconds_before(last) - trace.sum_seconds_before(first)
        fails = bool(failing) and any(record in failing for record in range(first, last))
        seconds = trace.startup_seconds + self._get_work_share(task) * records
        return SimulatedTask(task, units, seconds, fails, self._make_result(task, records))

    def _get_work_share(self, task: SlotTask) -> float:
        """Return the duration of a task as a share of the search in the whole database."""
        match task.kind:
            case SearchTask():
                return 1.0 / self._machine.fragments
            case SliceTask(_, of) | RankTask(_, of):
                return self._machine.finish / of
            case WholeTask():
                return 1.0
            case _:
                return self._machine.finish

    def _make_result(self, task: SlotTask, records: float) -> _core.TaskRef:
        """Return the result of a search: candidates of a size that matches the time of their finish."""
        if not isinstance(task.kind, SearchTask) or not self._machine.finish:
            return NOTHING
        # A finish of ``MIN_SEARCH_BYTES`` bytes takes about as long as the start of the tool.
        starts = self._machine.finish * records / max(self._trace.startup_seconds, MIN_STARTUP_SECONDS)
        found = int(starts * MIN_SEARCH_BYTES / self._machine.fragments)
        return _core.TaskRef("", (0, 0, task.fragment), False, [], [(0, b"", 0, found, 0)])


#: Least seconds of a start of the tool, for a trace without start-up time.
MIN_STARTUP_SECONDS = 0.01


def describe_fragments(machine: SimulatedCluster) -> FragmentPlan | None:
    """Return the database in fragments, with the fields that the scheduler reads; None: it is whole."""
    if not machine.fragments:
        return None
    argv = ("rank",) if machine.passes > 1 else ()
    return FragmentPlan(
        fragments=tuple(DatabaseFragment(first=k, last=k + 1, size=1, argv=()) for k in range(machine.fragments)),
        found=OutputUse(name="found", path=""), finish=(), database="", divisible=machine.finish > 0,
        ranked=RankColumns(subject=0, bits=0, evalue=None, most=0, argv=argv) if machine.passes else None,
    )  # fmt: skip
