"""Costs of records, measured in a real run or drawn from a distribution, and simulated tasks.

Figures of the simulated cluster, and of the outcome of a job on it, are here too.
"""

from __future__ import annotations

import dataclasses
import math
import random
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from msgspec.structs import replace

from millrace import _core
from millrace.adapters.adapter_base import DatabaseFacts
from millrace.adapters.blast.adapter import START_LETTERS
from millrace.core.errors import RefusedError
from millrace.core.job import MAX_FRAGMENTS
from millrace.core.tasks import RankTask, SearchTask, SliceTask, SlotTask, WholeTask
from millrace.core.tool_use import CostHint, DatabaseFragment, FragmentPlan, OutputUse, RankColumns
from millrace.planning.fragment_planning import decide_fragments
from millrace.planning.input_sniffing import QueryEstimate
from millrace.report import event_log
from millrace.report.events import TaskEvent, read_events
from millrace.scheduler.batch_sizing import CostModel
from millrace.scheduler.finish_strategies import MIN_SEARCH_BYTES


@dataclass(frozen=True)
class SimulatedCluster:
    """The simulated cluster.

    Args:
        nodes: Nodes, of one agent each.
        cores: Slots of a node.
        latency_seconds: Time from the decision to send a message until its receiver handles it; mostly the poll
            interval of an idle receiver.
        service_seconds: Time that a coordinator or partition leader needs for each task message, in or out.
        partition_size: Nodes of a partition; None: as in a real run.
        speeds: Speed of each node; empty: 1 for all.
        prefetch: Whether nodes hold tasks beyond their slots.
        copies: Whether stragglers are run a second time on idle slots.
        batch: Records of each batch; 0: sized by measurement, as in a real run.
        fragments: Fragments of the database; every batch is searched in each. 0: the database is whole.
        fragment_sizes: Their relative sizes; empty: equal.
        is_for_tail: See ``FragmentPlan.is_for_tail``.
        spread: See ``CostHint.spread``.
        resident: Fragments that the memory of a node holds.
        load_seconds: Extra time of a task whose fragment is not in the memory of its node.
        homes: Whether tasks are dispatched by affinity to the fragments in a node's memory.
        deaths: (seconds, node) of nodes that die; not the first of all, nor the first of a partition, whose loss
            restarts a real run.
        silence_seconds: Time after which a dead node is noticed.
        failing: Records, 0-based, for which the tool always fails.
        finish: Time of the search of a record's candidates, as a share of that of its search in the whole database.
        passes: Number of searches of each candidate where a record's rows are written in slices; 0: they never are.
        work: See ``DatabaseFacts.work``.
        output_bytes: Output of a record of mean time; others have more or less in proportion to their time.
        write_bytes_per_second: Rate at which all nodes together write the output, in the order of the input.
    """

    nodes: int
    cores: int
    latency_seconds: float = 0.005
    service_seconds: float = 50e-6
    partition_size: int | None = None
    speeds: Sequence[float] = ()
    prefetch: bool = True
    copies: bool = True
    batch: int = 0
    fragments: int = 0
    fragment_sizes: Sequence[int] = ()
    is_for_tail: bool = False
    spread: float = 1.0
    resident: int = 1
    load_seconds: float = 0.0
    homes: bool = True
    deaths: Sequence[tuple[float, int]] = ()
    silence_seconds: float = 10.0
    failing: Collection[int] = frozenset()
    finish: float = 0.0
    passes: int = 0
    work: float = 1.0
    output_bytes: float = 0.0
    write_bytes_per_second: float = 1e9


@dataclass(frozen=True)
class SimulationOutcome:
    """The outcome of a simulated job; times in seconds."""

    cores: int
    partitions: int
    records: int
    tasks: int
    #: Tasks that were run a second time.
    copies: int
    #: Time from the first message until the coordinator has handled the end of the last task, and all output is written.
    seconds: float
    #: Time of all records on one core of speed 1, and of the longest record, which no run can undercut.
    work_seconds: float
    longest_seconds: float
    #: Work over what all cores could have done in that time, from 0 to 1.
    efficiency: float
    #: Shares of the cores' time: start of tools, idle while there was input to cut, idle or running copies after that.
    startup_share: float
    starved_share: float
    tail_share: float
    #: Share of the time that the coordinator, and the busiest partition leader, handled messages.
    coordinator_share: float
    leader_share: float
    #: Tasks that had to read their fragment.
    loads: int = 0
    #: Retried batches, and quarantined records.
    retries: int = 0
    quarantined: int = 0
    #: Number of rank and slice tasks.
    slices: int = 0
    #: Seconds from the end of the last task until all output is written.
    write_seconds: float = 0.0
    #: Seconds of a core with a task, copies included, as the mean over all cores.
    busy_seconds: float = 0.0


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
        knows_pace: Whether the adapter of the tool knows which units take as long as the start.
    """

    def __init__(
        self, costs: Costs, unit: str, startup_seconds: float, words: str, *, knows_pace: bool = False
    ) -> None:
        units, seconds = costs
        self.unit, self.startup_seconds, self.words = unit, startup_seconds, words
        self._start_units = max(1, int(startup_seconds * sum(units) / sum(seconds))) if knows_pace else 0
        self._n = len(seconds)
        self._units = list(accumulate(units, initial=0))
        self._seconds = list(accumulate(seconds, initial=0.0))

    @property
    def n_records(self) -> int:
        """Return the number of records of the pool."""
        return self._n

    def make_hint(self, records: int) -> CostHint:
        """Return the costs of the first ``records`` that the scheduler assumes before it measures."""
        return CostHint(
            unit=self.unit, startup_seconds=self.startup_seconds, longest=int(_find_longest(self._units, records)),
            start_units=self._start_units,
        )  # fmt: skip

    def find_longest_seconds(self, records: int) -> float:
        """Return the seconds of the longest of the first ``records``."""
        return _find_longest(self._seconds, records)

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


def _find_longest(sums: Sequence[float], records: int) -> float:
    """Return the longest of the first ``records``, from the sums before each."""
    return max(after - before for before, after in pairwise(sums[: records + 1]))


def load_cost_trace(
    source: str, mean_seconds: float | None = None, fragments: int = 1, seed: int = 1, *, replay: bool = False
) -> CostTrace:
    """Read or draw a trace.

    Args:
        source: An ``events.jsonl`` or the run directory that holds one; or ``NAME:NUMBER,...`` of a distribution:
            ``fixed:SECONDS``, ``lognormal:MEAN,SIGMA``, ``pareto:MEAN,ALPHA`` (bounded at 10,000 times its smallest
            value), ``balanced`` and ``skewed`` (the two workloads of mpiBLAST-PIO), ``lengths:MEAN,SIGMA`` (lognormal, and
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
        unit = "residues" if name in _OF_RESIDUES else "records"
        costs, startup, words, tool = _draw_costs(name, rest, rng), STARTUP_SECONDS, source, ""
    else:
        costs, unit, startup, words, tool = _read_measured_costs(Path(source), rng, replay)
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
    return CostTrace((units, seconds), unit, startup, words, knows_pace=tool in START_LETTERS)


def _repeat_per_fragment(n: int, fragments: int) -> list[int]:
    """Return the records in the order of tasks, each once for each fragment."""
    return [
        record
        for first in range(0, n, BATCH)
        for _ in range(fragments)
        for record in range(first, min(first + BATCH, n))
    ]


# Drawn


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


#: Processors that searched a query while mpiBLAST-PIO's times were taken: one core takes so many times as long.
PUBLISHED_PROCESSORS = 32


def _draw_balanced(rng: random.Random) -> float:
    """Draw a query of the balanced workload: 98.8 % within 10 s, the others 50 s at most, by 32 processors.

    Source of the classes, here and below: Lin, Ma, Feng and Samatova, Coordinating computation and I/O in massively
    parallel sequence search, IEEE TPDS 22(4), 2011. The distribution within the classes is our assumption: uniform
    below 10 s, uniform on a log scale above.
    """
    return _draw_class(rng, 0.988, 10.0, 50.0)


def _draw_skewed(rng: random.Random) -> float:
    """Draw a query of the skewed workload: 96.9 % within 10 s, the others 40 to 400 s, by 32 processors."""
    return _draw_class(rng, 0.969, 40.0, 400.0)


def _draw_class(rng: random.Random, share_short: float, least: float, most: float) -> float:
    short = rng.random() < share_short
    seconds = rng.uniform(0.1, 10.0) if short else math.exp(rng.uniform(math.log(least), math.log(most)))
    return PUBLISHED_PROCESSORS * seconds


_DRAWN: dict[str, Callable[..., float]] = {
    "fixed": lambda rng, seconds=1.0: seconds, "lognormal": _draw_lognormal, "pareto": _draw_pareto, "balanced": _draw_balanced, "skewed": _draw_skewed, "lengths": _draw_lognormal,
}  # fmt: skip


#: Distributions of records with residues, which tell the time of a record or, for the published workloads, nothing.
_OF_RESIDUES = ("lengths", "balanced", "skewed")


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
        return [RESIDUES if name in _OF_RESIDUES else 1] * len(seconds), seconds
    mean = sum(seconds) / len(seconds)
    noisy = [each * rng.lognormvariate(-NOISE * NOISE / 2, NOISE) for each in seconds]
    return [max(round(RESIDUES * each / mean), 1) for each in seconds], noisy


# Measured


def _read_measured_costs(path: Path, rng: random.Random, replay: bool) -> tuple[Costs, str, float, str, str]:
    log = path / "events.jsonl" if path.is_dir() else path
    if not log.is_file():
        raise RefusedError(
            f"{path}: no such run directory, event log or distribution",
            "a run with --keep-run-dir keeps its events.jsonl; distributions are " + ", ".join(sorted(_DRAWN)),
        )
    told = event_log.load_runs(read_events(log))
    tasks = [task for run in told for task in run.done_tasks if task.records]
    if not tasks:
        raise RefusedError(f"{log}: no task was done", "give the event log of a run that did some work")
    head = told[-1].head
    startup = _estimate_startup(tasks)
    # Only batches are measured: each record counts with the mean of its batch. Batches of one record are most precise.
    weights = [task.records for task in tasks]
    units = [max(round(task.units / n), 1) for task, n in zip(tasks, weights, strict=True)]
    seconds = [max(task.work_seconds - startup * task.tasks, 1e-6) / n for task, n in zip(tasks, weights, strict=True)]
    if replay:
        in_order = sorted(range(len(tasks)), key=lambda k: tasks[k].first)
        chosen = [k for k in in_order for _ in range(weights[k])]
    else:
        chosen = rng.choices(range(len(tasks)), weights, k=POOL)
    words = f"{sum(task.tasks for task in tasks)} tasks with {sum(weights)} records of {head.tool or 'a run'}"
    return ([units[k] for k in chosen], [seconds[k] for k in chosen]), head.unit, startup, words, head.tool


def _estimate_startup(tasks: Sequence[TaskEvent]) -> float:
    """Estimate the seconds before the first record, as the scheduler does."""
    model = CostModel(CostHint(startup_seconds=0.0))
    for task in tasks:
        model.observe_task(task.units // task.tasks, task.work_seconds / task.tasks)
    return model.startup


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
        sizes = machine.fragment_sizes or (1,) * machine.fragments
        self._shares = [size / sum(sizes) for size in sizes]

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
            case SearchTask(fragment):
                return self._shares[fragment - 1]
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
        found = int(starts * MIN_SEARCH_BYTES * self._shares[task.fragment - 1])
        return _core.TaskRef("", (0, 0, task.fragment), False, [], [(0, b"", 0, found, 0)])


#: Seconds of the shortest search of a fragment that a real plan makes; see ``DatabaseFacts.least``.
LEAST_SEARCH_SECONDS = 1.0


def plan_simulated_fragments(machine: SimulatedCluster, trace: CostTrace, records: int) -> SimulatedCluster:
    """Return ``machine`` with the fragments that the plan of a real run would choose (``--fragments auto``).

    The database fits into the memory of a node, and the planner knows of the queries what it would know of a file.
    """
    cost = trace.make_hint(records)
    units = trace.count_units_before(records)
    seconds = trace.sum_seconds_before(records)
    facts = DatabaseFacts(
        entries=MAX_FRAGMENTS, residues=1, least=units / seconds * LEAST_SEARCH_SECONDS, work=machine.work
    )
    decision = decide_fragments(
        (0, 0), facts, QueryEstimate(records=records, units=units, longest=cost.longest), machine.nodes * machine.cores,
        1 << 62, replace(cost, spread=machine.spread),
    )  # fmt: skip
    n = decision.n if decision.n > 1 else 0
    sizes = decision.sizes if n else ()
    return dataclasses.replace(machine, fragments=n, fragment_sizes=sizes, is_for_tail=decision.is_for_tail)


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
        is_for_tail=machine.is_for_tail,
    )  # fmt: skip
