"""What the tasks of a simulated job cost, and what they give."""

from __future__ import annotations

from dataclasses import dataclass

from millrace import _core
from millrace.model import Fragment, Fragmented, OutputUse, Ranked
from millrace.schedule.finish.shares import WORTH_A_SEARCH
from millrace.simulate.machine import Machine
from millrace.simulate.trace import Trace
from millrace.tasks import Rank, Search, Slice, Task, Whole

#: What most tasks give here.
NOTHING = _core.TaskRef("", (0, 0, 0), False, [], [(0, b"", 0, 0, 0)])


@dataclass(slots=True)
class Work:
    """A task that is not done."""

    task: Task
    units: float
    #: On a core of speed 1.
    seconds: float
    fails: bool
    #: What it commits.
    result: _core.TaskRef


class Workload:
    """A job on a machine, record by record."""

    def __init__(self, machine: Machine, trace: Trace) -> None:
        self._machine, self._trace = machine, trace

    def of(self, task: Task, first: int, last: int) -> Work:
        """The work of ``task`` on the records ``[first, last)``."""
        trace, failing = self._trace, self._machine.failing
        units = float(trace.units(last) - trace.units(first))
        records = trace.seconds(last) - trace.seconds(first)
        fails = bool(failing) and any(record in failing for record in range(first, last))
        seconds = trace.startup_seconds + self._share(task) * records
        return Work(task, units, seconds, fails, self._result(task, records))

    def _share(self, task: Task) -> float:
        """How much of the search of the whole database a task takes."""
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
        """What a search finds: as much as makes the search of the candidates take so long."""
        if not isinstance(task.kind, Search) or not self._machine.finish:
            return NOTHING
        # A list of `WORTH_A_SEARCH` bytes takes about as long as the tool's start.
        starts = self._machine.finish * records / max(self._trace.startup_seconds, LEAST_STARTUP_SECONDS)
        found = int(starts * WORTH_A_SEARCH / self._machine.fragments)
        return _core.TaskRef("", (0, 0, task.fragment), False, [], [(0, b"", 0, found, 0)])


#: Seconds that a start of a tool takes at least, where the trace has none.
LEAST_STARTUP_SECONDS = 0.01


def fragmented(machine: Machine) -> Fragmented | None:
    """The database in fragments, as far as the scheduler looks at it; None: it is whole."""
    if not machine.fragments:
        return None
    argv = ("rank",) if machine.passes > 1 else ()
    return Fragmented(
        fragments=tuple(Fragment(first=k, last=k + 1, size=1, argv=()) for k in range(machine.fragments)),
        found=OutputUse(name="found", path=""), finish=(), database="", divisible=machine.finish > 0,
        ranked=Ranked(subject=0, bits=0, evalue=None, most=0, argv=argv) if machine.passes else None,
    )  # fmt: skip
