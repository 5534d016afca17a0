"""The costs and results of the tasks of a simulated job."""

from __future__ import annotations

from dataclasses import dataclass

from millrace import _core
from millrace.model import Fragment, Fragmented, OutputUse, Ranked
from millrace.schedule.finish.shares import WORTH_A_SEARCH
from millrace.simulate.machine import Machine
from millrace.simulate.trace import Trace
from millrace.tasks import Rank, Search, Slice, Task, Whole

#: The result of most simulated tasks.
NOTHING = _core.TaskRef("", (0, 0, 0), False, [], [(0, b"", 0, 0, 0)])


@dataclass(slots=True)
class Work:
    """An unfinished task."""

    task: Task
    units: float
    #: Duration on a core of speed 1.
    seconds: float
    fails: bool
    #: The blocks that it commits.
    result: _core.TaskRef


class Workload:
    """The costs of a job on a cluster, by record."""

    def __init__(self, machine: Machine, trace: Trace) -> None:
        self._machine, self._trace = machine, trace

    def of(self, task: Task, first: int, last: int) -> Work:
        """Return the work of ``task`` on the records ``[first, last)``."""
        trace, failing = self._trace, self._machine.failing
        units = float(trace.units(last) - trace.units(first))
        records = trace.seconds(last) - trace.seconds(first)
        fails = bool(failing) and any(record in failing for record in range(first, last))
        seconds = trace.startup_seconds + self._share(task) * records
        return Work(task, units, seconds, fails, self._result(task, records))

    def _share(self, task: Task) -> float:
        """Return the duration of a task as a share of the search in the whole database."""
        match task.kind:
            case Search():
                return 1.0 / self._machine.fragments
            case Slice(_, of) | Rank(_, of):
                return self._machine.finish / of
            case Whole():
                return 1.0
            case _:
                return self._machine.finish

    def _result(self, task: Task, records: float) -> _core.TaskRef:
        """Return the result of a search: candidates of a size that matches the time of their finish."""
        if not isinstance(task.kind, Search) or not self._machine.finish:
            return NOTHING
        # A finish of ``WORTH_A_SEARCH`` bytes takes about as long as the start of the tool.
        starts = self._machine.finish * records / max(self._trace.startup_seconds, LEAST_STARTUP_SECONDS)
        found = int(starts * WORTH_A_SEARCH / self._machine.fragments)
        return _core.TaskRef("", (0, 0, task.fragment), False, [], [(0, b"", 0, found, 0)])


#: Least seconds of a start of the tool, for a trace without start-up time.
LEAST_STARTUP_SECONDS = 0.01


def fragmented(machine: Machine) -> Fragmented | None:
    """Return the database in fragments, with the fields that the scheduler reads; None: it is whole."""
    if not machine.fragments:
        return None
    argv = ("rank",) if machine.passes > 1 else ()
    return Fragmented(
        fragments=tuple(Fragment(first=k, last=k + 1, size=1, argv=()) for k in range(machine.fragments)),
        found=OutputUse(name="found", path=""), finish=(), database="", divisible=machine.finish > 0,
        ranked=Ranked(subject=0, bits=0, evalue=None, most=0, argv=argv) if machine.passes else None,
    )  # fmt: skip
