"""The costs of records: measured in a real run, or drawn from a distribution. Nothing here knows of nodes."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

from millrace.errors import RefusedError
from millrace.model import CostHint
from millrace.report import runs
from millrace.report.events import TaskEvent, read_typed_events
from millrace.schedule.sizing import CostModel

#: Number of records drawn; a longer input repeats them.
POOL = 1 << 18

#: Records that are searched in all fragments in turn before the next records follow.
BATCH = 32

#: Seconds before the first record of a task, for a trace that was not measured: about that of ``blastp``.
STARTUP_SECONDS = 0.05


#: For drawn lengths: mean residues of a record, and the spread of its time around the time predicted from its length
#: (standard deviation of the logarithm; 0.21 to 0.28 for proteins of more than 200 residues in the measured trace).
RESIDUES = 400
NOISE = 0.25

#: Cost units of each record, known to the scheduler before the run, and its seconds, unknown to it.
Costs = tuple[Sequence[int], Sequence[float]]


class CostTrace:
    """An endless input of known cost: a pool of records, repeated.

    Args:
        costs: Of the pool: at least one record, with at least one unit each.
        unit: Name of the unit.
        startup_seconds: Time of every task before its first record.
        words: Description of the trace for the user.
    """

    def __init__(self, costs: Costs, unit: str, startup_seconds: float, words: str) -> None:
        units, seconds = costs
        self.unit, self.startup_seconds, self.words = unit, startup_seconds, words
        self._n = len(seconds)
        self._units = list(accumulate(units, initial=0))
        self._seconds = list(accumulate(seconds, initial=0.0))
        self.longest, self.longest_seconds = max(units), max(seconds)

    @property
    def n_records(self) -> int:
        """Return the number of records of the pool."""
        return self._n

    @property
    def hint(self) -> CostHint:
        """Return the costs that the scheduler assumes before it measures."""
        return CostHint(unit=self.unit, startup_seconds=self.startup_seconds, longest=self.longest)

    @property
    def mean_seconds(self) -> float:
        """Return the mean seconds of a record."""
        return self._seconds[-1] / self._n

    def count_units_before(self, record: int) -> int:
        """Return the units of all records before ``record``."""
        rounds, rest = divmod(record, self._n)
        return rounds * self._units[-1] + self._units[rest]

    def sum_seconds_before(self, record: int) -> float:
        """Return the seconds of all records before ``record``, on a core of speed 1."""
        rounds, rest = divmod(record, self._n)
        return rounds * self._seconds[-1] + self._seconds[rest]

    def find_batch_end(self, first: int, end: int, records: int, units: int) -> int:
        """Return the end of a batch, the record behind its last.

        Args:
            first: Its first record.
            end: Number of records in the input.
            records: Most records of the batch; 0: no limit.
            units: It ends with the record that reaches these; 0: no limit.
        """
        last = end
        if records:
            last = min(last, first + records)
        if units:
            rounds, rest = divmod(self.count_units_before(first) + units, self._units[-1])
            last = min(last, rounds * self._n + bisect_left(self._units, rest))
        return max(last, first + 1)


def load_cost_trace(
    source: str, mean_seconds: float | None = None, fragments: int = 1, seed: int = 1, *, replay: bool = False
) -> CostTrace:
    """Read or draw a trace.

    Args:
        source: An ``events.jsonl`` or the run directory that holds one; or ``NAME:NUMBER,...`` of a distribution:
            ``fixed:SECONDS``, ``lognormal:MEAN,SIGMA``, ``pareto:MEAN,ALPHA`` (bounded at 10,000 times its smallest
            value), ``skewed`` (the query times of mpiBLAST-PIO's experiments), ``lengths:MEAN,SIGMA`` (lognormal, and
            proportional to the residues of the record, except for ``NOISE``: the scheduler knows the lengths before).
        mean_seconds: Mean time of a record in the whole database, to which all times are scaled.
        fragments: Fragments of the database. Each record of the trace becomes so many records, one for each fragment,
            which share its time equally.
        seed: Seed of the random numbers.
        replay: Whether the pool is the records of the run, in their order, instead of a random sample of them.

    Raises:
        RefusedError: There is no such file or distribution, or no task was done in that run.
    """
    rng = random.Random(seed)
    name, _, rest = source.partition(":")
    if name in _DRAWN and not Path(source).exists():
        unit = "residues" if name == "lengths" else "records"
        costs, startup, words = _draw_costs(name, rest, rng), STARTUP_SECONDS, source
    else:
        costs, unit, startup, words = _read_measured_costs(Path(source), rng, replay)
    units, seconds = costs
    if mean_seconds is not None:
        factor = mean_seconds * len(seconds) / sum(seconds)
        seconds = [factor * each for each in seconds]
        words += f", scaled to {mean_seconds:g} s a record"
    if fragments > 1:
        kept = len(seconds) if replay else max(len(seconds) // fragments, 1)
        order = _repeat_per_fragment(kept, fragments)
        units, seconds = [units[record] for record in order], [seconds[record] / fragments for record in order]
        words += f", {fragments} fragments"
    return CostTrace((units, seconds), unit, startup, words)


def _repeat_per_fragment(n: int, fragments: int) -> list[int]:
    """Return the records in the order of tasks, each once for each fragment."""
    return [
        record
        for first in range(0, n, BATCH)
        for _ in range(fragments)
        for record in range(first, min(first + BATCH, n))
    ]


# Drawn


def _draw_fixed(rng: random.Random, seconds: float = 1.0) -> float:
    return seconds


def _draw_lognormal(rng: random.Random, mean: float = 1.0, sigma: float = 1.0) -> float:
    return rng.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)


def _draw_pareto(rng: random.Random, mean: float = 1.0, alpha: float = 1.1) -> float:
    """Draw from a bounded Pareto distribution of mean ``mean``, by inversion.

    Source of the family and of alpha near 1: Harchol-Balter and Downey, Exploiting process lifetime distributions
    for dynamic load balancing, ACM TOCS 15(3), 1997.
    """
    bound = 1e4
    kept = 1 - bound**-alpha
    whole = alpha / (alpha - 1) * (1 - bound ** (1 - alpha)) / kept if alpha != 1 else math.log(bound) / kept
    return float(mean / whole * (1 - rng.random() * kept) ** (-1 / alpha))


def _draw_skewed(rng: random.Random) -> float:
    """Draw the time of a query: for 96.9 % uniform from 0.1 to 10 s, else from 40 to 400 s, uniform on a log scale.

    Source of the classes: Lin, Ma, Feng and Samatova, Coordinating computation and I/O in massively parallel
    sequence search, IEEE TPDS 22(4), 2011. The distribution within the classes is our assumption.
    """
    return rng.uniform(0.1, 10.0) if rng.random() < 0.969 else math.exp(rng.uniform(math.log(40.0), math.log(400.0)))


_DRAWN: dict[str, Callable[..., float]] = {
    "fixed": _draw_fixed, "lognormal": _draw_lognormal, "pareto": _draw_pareto, "skewed": _draw_skewed, "lengths": _draw_lognormal,
}  # fmt: skip


def _draw_costs(name: str, rest: str, rng: random.Random) -> Costs:
    try:
        numbers = [float(number) for number in rest.split(",")] if rest else []
        draw = _DRAWN[name]
        seconds = [draw(rng, *numbers) for _ in range(POOL if name != "fixed" else 1)]
        if min(seconds) <= 0:
            raise ValueError("not above 0")
    except (ValueError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise RefusedError(
            f"'{name}:{rest}' is no distribution ({error})",
            "write fixed:S, lognormal:MEAN,SIGMA, lengths:MEAN,SIGMA or pareto:MEAN,ALPHA",
        ) from None
    if name != "lengths":
        return [1] * len(seconds), seconds
    mean = sum(seconds) / len(seconds)
    noisy = [each * rng.lognormvariate(-NOISE * NOISE / 2, NOISE) for each in seconds]
    return [max(round(RESIDUES * each / mean), 1) for each in seconds], noisy


# Measured


def _read_measured_costs(path: Path, rng: random.Random, replay: bool) -> tuple[Costs, str, float, str]:
    log = path / "events.jsonl" if path.is_dir() else path
    if not log.is_file():
        raise RefusedError(
            f"{path}: no such run directory, event log or distribution",
            "a run with --keep-run-dir keeps its events.jsonl; distributions are " + ", ".join(sorted(_DRAWN)),
        )
    told = runs.load_runs(read_typed_events(log))
    tasks = [task for run in told for task in run.done_tasks if task.records]
    if not tasks:
        raise RefusedError(f"{log}: no task was done", "give the event log of a run that did some work")
    head = told[-1].head
    startup = _estimate_startup(tasks)
    # Only batches are measured: each record counts with the mean of its batch. Batches of one record are most precise.
    weights = [task.records for task in tasks]
    units = [max(round(task.units / n), 1) for task, n in zip(tasks, weights, strict=True)]
    seconds = [
        max(_get_task_seconds(task) - startup * task.tasks, 1e-6) / n for task, n in zip(tasks, weights, strict=True)
    ]
    if replay:
        in_order = sorted(range(len(tasks)), key=lambda k: tasks[k].first)
        chosen = [k for k in in_order for _ in range(weights[k])]
    else:
        chosen = rng.choices(range(len(tasks)), weights, k=POOL)
    words = f"{sum(task.tasks for task in tasks)} tasks with {sum(weights)} records of {head.tool or 'a run'}"
    return ([units[k] for k in chosen], [seconds[k] for k in chosen]), head.unit, startup, words


def _estimate_startup(tasks: Sequence[TaskEvent]) -> float:
    """Estimate the seconds before the first record, as the scheduler does."""
    model = CostModel(CostHint(startup_seconds=0.0))
    for task in tasks:
        model.observe_task(task.units // task.tasks, _get_task_seconds(task) / task.tasks)
    return model.startup


def _get_task_seconds(task: TaskEvent) -> float:
    """Return the CPU seconds if measured, as load does not change them; else the elapsed ones."""
    return task.cpu or task.seconds
