"""The figures and charts of docs/scaling.md: published experiments, again, in simulation.

    python -m bench.scaling               # all of them; an hour of one core
    python -m bench.scaling prefetch      # one of: weak, tail, strong, prefetch, large, memory
    python -m bench.scaling charts        # draw again what is in docs/scaling/figures.json

Every figure is put into docs/scaling/figures.json as soon as it is there.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import math
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.svg import Line, chart
from millrace.extensions.simulate.cost_trace import CostTrace, SimulatedCluster, load_cost_trace
from millrace.extensions.simulate.simulation import ClusterSimulation

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "scaling"
FIGURES = OUT / "figures.json"
BLASTP = str(ROOT / "bench" / "traces" / "blastp.jsonl")

#: Cores of a node of Kraken, on which HSP-Wrap was measured, and work for each core there.
CORES = 12
HSP_WRAP_WORK = 1707.0
HSP_WRAP = [(48, 1724.0), (12_288, 1707.0)]

WEAK = [4, 16, 64, 256, 1024]
LARGE = [8334]
STRONG = [2, 4, 8, 16, 32, 64, 86]
STRONG_QUERIES = 126_000
#: Fragments of the harder case, as the tail of a run needs them.
TAIL_FRAGMENTS = 16
PREFETCH = 22
LATENCIES = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3]

#: A database of 64 fragments on 16 nodes: what a task takes longer that has to read its fragment (4 GB at 2 GB/s), and how
#: many of them the memory of a node holds.
MEMORY_NODES, MEMORY_FRAGMENTS, LOAD_SECONDS = 16, 64, 2.0
RESIDENT = [1, 2, 4, 8, 16, 64]
MEMORY_WORK = 100.0

Figures = dict[str, dict[str, Any]]


def simulate(figures: Figures, name: str, machine: SimulatedCluster, trace: Any, records: int) -> None:
    """Add one figure, and say it."""
    began = time.process_time()
    found = dataclasses.asdict(ClusterSimulation(machine, trace, records).run())
    figures[name] = found | {"trace": trace.words, "cpu_seconds": round(time.process_time() - began, 1)}
    save(figures)
    print(f"{name}: {found['seconds']:.1f} s, {found['efficiency']:.2%}, {found['tasks']} tasks", flush=True)


def compute_static_seconds(trace: CostTrace, records: int, cores: int) -> float:
    """Return the seconds of the job if equal numbers of records are assigned to the cores beforehand, in order."""
    bounds = [core * records // cores for core in range(cores + 1)]
    return trace.startup_seconds + max(
        trace.sum_seconds_before(last) - trace.sum_seconds_before(first) for first, last in pairwise(bounds)
    )


def compute_in_order_seconds(trace: CostTrace, records: int, cores: int) -> float:
    """Return the seconds of the job if cores take single records in their order, and nothing else costs time.

    No dispatcher that learns the cost of a record only by running it does better, except by luck: a long record at the
    end of the input ends last.
    """
    begun = max(records - math.ceil(4 * trace.longest_seconds / trace.mean_seconds) * cores, 0)
    last = begin = trace.sum_seconds_before(begun) / cores
    free = [begin] * cores
    for record in range(begun, records):
        end = free[0] + trace.sum_seconds_before(record + 1) - trace.sum_seconds_before(record)
        heapq.heapreplace(free, end)
        last = max(last, end)
    return last


def save(figures: Figures) -> None:
    FIGURES.write_text(json.dumps(dict(sorted(figures.items())), indent=1) + "\n")


def weak(figures: Figures) -> None:
    """HSP-Wrap: the same work for each core, 48 to 12,288 cores."""
    traces = {
        "blastp": load_cost_trace(BLASTP, 1.0),
        "lognormal": load_cost_trace("lognormal:1,1"),
        "lengths": load_cost_trace("lengths:1,1"),
    }
    for name, trace in traces.items():
        for nodes in WEAK:
            records = round(HSP_WRAP_WORK * nodes * CORES / trace.mean_seconds)
            simulate(figures, f"weak {name} {nodes * CORES}", SimulatedCluster(nodes, CORES), trace, records)


def tail(figures: Figures) -> None:
    """What is lost at the end of the harder cases: the least that can be, and with fragments of the database."""
    whole, split = load_cost_trace("lognormal:1,1"), load_cost_trace("lognormal:1,1", fragments=TAIL_FRAGMENTS)
    for nodes in WEAK:
        cores = nodes * CORES
        records = round(HSP_WRAP_WORK * cores / whole.mean_seconds)
        seconds = compute_in_order_seconds(whole, records, cores)
        figures[f"tail least {cores}"] = {
            "seconds": seconds, "efficiency": whole.sum_seconds_before(records) / cores / seconds,
        }  # fmt: skip
        records = round(HSP_WRAP_WORK * cores / split.mean_seconds)
        simulate(figures, f"tail fragments {cores}", SimulatedCluster(nodes, CORES), split, records)
    for fragments in (1, TAIL_FRAGMENTS):
        trace = load_cost_trace("skewed", fragments=fragments)
        records = round(HSP_WRAP_WORK * cores / trace.mean_seconds)
        simulate(figures, f"tail skewed {fragments} {cores}", SimulatedCluster(nodes, CORES), trace, records)


def memory(figures: Figures) -> None:
    """A database in fragments, more than fit into a node: nodes that are given again what they have, and any."""
    trace = load_cost_trace("lognormal:1,0.5")
    records = round(MEMORY_WORK * MEMORY_NODES * CORES / trace.mean_seconds)
    for resident in RESIDENT:
        for homes in (True, False):
            machine = SimulatedCluster(
                MEMORY_NODES, CORES, batch=64, fragments=MEMORY_FRAGMENTS, resident=resident, load_seconds=LOAD_SECONDS,
                homes=homes,
            )  # fmt: skip
            simulate(figures, f"memory {'homes' if homes else 'any'} {resident}", machine, trace, records)


def strong(figures: Figures) -> None:
    """mpiBLAST-PIO: one job of skewed queries on more and more cores, against a division made beforehand."""
    whole, split = load_cost_trace("skewed"), load_cost_trace("skewed", fragments=16)
    for nodes in STRONG:
        cores = nodes * CORES
        simulate(figures, f"strong whole {cores}", SimulatedCluster(nodes, CORES), whole, STRONG_QUERIES)
        simulate(figures, f"strong fragments {cores}", SimulatedCluster(nodes, CORES), split, 16 * STRONG_QUERIES)
        seconds = compute_static_seconds(whole, STRONG_QUERIES, cores)
        figures[f"strong static {cores}"] = {
            "seconds": seconds, "efficiency": whole.sum_seconds_before(STRONG_QUERIES) / cores / seconds,
        }  # fmt: skip
    save(figures)


def prefetch(figures: Figures) -> None:
    """mpiBLAST-PIO: tasks of one query of a second, with and without a queue at the nodes."""
    trace = load_cost_trace("lognormal:1,0.5")
    for latency in LATENCIES:
        for with_it in (True, False):
            machine = SimulatedCluster(PREFETCH, CORES, latency_seconds=latency, prefetch=with_it, batch=1)
            name = f"prefetch {'with' if with_it else 'without'} {latency:g}"
            simulate(figures, name, machine, trace, 200 * PREFETCH * CORES)


def large(figures: Figures) -> None:
    """100,000 cores with partitions, and the same work for each core."""
    trace = load_cost_trace(BLASTP, 1.0)
    for nodes in LARGE:
        records = round(HSP_WRAP_WORK * nodes * CORES / trace.mean_seconds)
        simulate(figures, f"large blastp {nodes * CORES}", SimulatedCluster(nodes, CORES), trace, records)


def points(figures: Figures, name: str, key: str) -> list[tuple[float, float]]:
    found = [(float(each.removeprefix(name)), figures[each][key]) for each in figures if each.startswith(name)]
    return sorted(found)


def charts(figures: Figures) -> None:
    """Draw what is there."""
    files: dict[str, Any] = {
        "weak": (
            "The same work for each core (HSP-Wrap's experiment)", "cores", "seconds",
            [
                Line("measured blastp trace", points(figures, "weak blastp ", "seconds")),
                Line("lognormal, sigma 1", points(figures, "weak lognormal ", "seconds")),
                Line("HSP-Wrap, published", HSP_WRAP, dashed=True),
            ],
            (0, 2000), [0, 500, 1000, 1500, 2000],
        ),
        "efficiency": (
            "Parallel efficiency at 1,707 s of work for each core", "cores", "efficiency",
            [
                Line("measured blastp trace", points(figures, "weak blastp ", "efficiency")),
                Line("lognormal, sigma 1", points(figures, "weak lognormal ", "efficiency")),
                Line("lognormal, told by the length", points(figures, "weak lengths ", "efficiency")),
                Line("lognormal, 16 fragments", points(figures, "tail fragments ", "efficiency")),
                Line("lognormal, record by record without any overhead", points(figures, "tail least ", "efficiency"), dashed=True),
            ],
            (0.9, 1.0), [0.9, 0.92, 0.94, 0.96, 0.98, 1.0], "{:.0%}",
        ),
        "strong": (
            "One job of skewed queries on more cores (mpiBLAST-PIO's experiment)", "cores", "efficiency",
            [
                Line("16 fragments", points(figures, "strong fragments ", "efficiency")),
                Line("whole database", points(figures, "strong whole ", "efficiency")),
                Line("divided beforehand, no scheduler", points(figures, "strong static ", "efficiency")),
                Line("mpiBLAST-PIO at 1,024, published", [(1024, 0.92)], dashed=True),
            ],
            (0.3, 1.0), [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], "{:.0%}",
        ),
        "memory": (
            "64 fragments of a database on 16 nodes: each node is given again what it has", "fragments that the memory of a node holds",
            "efficiency",
            [
                Line("to nodes that have searched it", points(figures, "memory homes ", "efficiency")),
                Line("to any node", points(figures, "memory any ", "efficiency")),
            ],
            (0.0, 1.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], "{:.0%}",
        ),
        "prefetch": (
            "Tasks of one second on 264 cores: a queue at the nodes hides the network", "delay of a message, seconds", "efficiency",
            [
                Line("prefetch", points(figures, "prefetch with ", "efficiency")),
                Line("no prefetch", points(figures, "prefetch without ", "efficiency")),
            ],
            (0.4, 1.0), [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], "{:.0%}",
        ),
    }  # fmt: skip
    for name, (title, x_name, y_name, lines, *axis) in files.items():
        known = [line for line in lines if line.points]
        if any(not line.dashed for line in known):
            (OUT / f"{name}.svg").write_text(chart(title, x_name, y_name, known, *axis))


EXPERIMENTS = {"memory": memory, "prefetch": prefetch, "strong": strong, "weak": weak, "tail": tail, "large": large}


def main(names: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    figures: Figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in names or EXPERIMENTS:
        if name != "charts":
            EXPERIMENTS[name](figures)
    charts(figures)


if __name__ == "__main__":
    main(sys.argv[1:])
