"""The figures and charts of docs/scaling.md: published experiments, again, in simulation.

    python -m bench.scaling               # all of them; hours of one core
    python -m bench.scaling weak          # one of: weak, strong, partitions, segments, tools, prefetch, memory, large
    python -m bench.scaling charts        # draw again what is in docs/scaling/figures.json

A figure is the run of median time among those of three seeds, which draw the records from a trace; the times of all three stand beside it.
It is put into docs/scaling/figures.json as soon as it is there, and printed as a row of a table.
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
from millrace.extensions.simulate.cost_trace import (
    CostTrace,
    SimulatedCluster,
    load_cost_trace,
    plan_simulated_fragments,
)
from millrace.extensions.simulate.simulation import ClusterSimulation

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "scaling"
FIGURES = OUT / "figures.json"
TRACES = ROOT / "bench" / "traces"
BLASTP = str(TRACES / "blastp.jsonl")

#: Cores of a node of Kraken, on which HSP-Wrap was measured; its Table 4.1: nodes, sequences, seconds.
CORES = 12
TABLE_4_1 = [
    (4, 760, 1724.39), (16, 3_040, 1611.94), (64, 12_160, 1649.85), (256, 48_640, 1688.84), (512, 97_280, 1718.87),
    (1024, 194_560, 1706.65),
]  # fmt: skip
#: Core seconds of a sequence, from the last row; its losses are in them.
SEQUENCE_SECONDS = 1706.65 * 12_288 / 194_560

#: Output of a sequence: BLAST's report with the 250 alignments that it has at most; and the rate of a parallel filesystem.
SEQUENCE_BYTES, WRITE_RATE = 3e5, 2e9

#: mpiBLAST-PIO: queries, processors of a node of System X, processors; master seconds of its Table 2 by partition size.
STRONG_QUERIES, PROCESSORS = 5_000, 2
STRONG = [128, 256, 512, 1024]
TABLE_2 = {32: 91.20, 64: 161.31, 128: 302.91, 1024: 902.15}
WORKLOADS = ("balanced", "skewed")
#: The same machine with the planner's facts of blastn (``CostHint.spread``, ``DatabaseFacts.work``), an assumed finish, and
#: 1 MB of report a query.
SPREAD, WORK, FINISH, QUERY_BYTES = 41.0, 1.6, 0.02, 1e6

#: Idle seconds of a worker without prefetching, by queries of a segment (Table 1): 5 partitions of 32 workers.
TABLE_1 = {1: 279.15, 5: 99.58, 10: 71.64, 20: 54.54}
SEGMENT_QUERIES, SEGMENT_NODES, SEGMENT_PARTITION = 1_000, 80, 16

#: Other tools of HSP-Wrap's chapter 4, nodes, and records for each core.
TOOLS = ("hmmscan", "muscle", "psiblast", "vina")
TOOL_NODES = (4, 64)
TOOL_RECORDS = 16

#: Which records of a trace come in which order, or which times are drawn.
SEEDS = (1, 2, 3)

LARGE = [8334]
LARGE_WORK = 1707.0
PREFETCH = 22
LATENCIES = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3]

#: A database of 64 fragments on 16 nodes: what a task takes longer that has to read its fragment (4 GB at 2 GB/s), and how
#: many of them the memory of a node holds.
MEMORY_NODES, MEMORY_FRAGMENTS, LOAD_SECONDS = 16, 64, 2.0
RESIDENT = [1, 2, 4, 8, 16, 64]
MEMORY_WORK = 100.0

Figures = dict[str, dict[str, Any]]


def simulate(
    figures: Figures, name: str, machine: SimulatedCluster, trace: tuple[str, float | None], records: int,
    *, plan: bool = False, seeds: tuple[int, ...] = SEEDS,
) -> None:  # fmt: skip
    """Simulate one job with each seed, keep the run of median time, and print it.

    Args:
        trace: What `load_cost_trace` reads or draws, and the seconds of a record to which it is scaled.
        plan: Whether the database is cut as `--fragments auto` would.
    """
    began = time.process_time()
    runs = sorted(
        (simulate_once(machine, trace, records, seed, plan=plan) for seed in seeds), key=lambda run: run["seconds"]
    )
    found = runs[(len(runs) - 1) // 2]
    found["seconds_by_run"] = [run["seconds"] for run in runs]
    found["efficiency_by_run"] = [run["efficiency"] for run in runs]
    found["cpu_seconds"] = round(time.process_time() - began, 1)
    figures[name] = found
    save(figures)
    busy, idle = found["coordinator_share"] * found["seconds"], found["seconds"] - found["busy_seconds"]
    print(
        f"| {name} | {found['partitions']} | {found['fragments']} | {found['seconds']:,.0f} s | {found['efficiency']:.1%} "
        f"({min(found['efficiency_by_run']):.1%} to {max(found['efficiency_by_run']):.1%}) "
        f"| coordinator busy {busy:.1f} s, idle {idle:.1f} s, {found['tasks']} tasks, {found['copies']} copies |",
        flush=True,
    )


def simulate_once(
    machine: SimulatedCluster, source: tuple[str, float | None], records: int, seed: int, *, plan: bool
) -> dict[str, Any]:
    """Simulate one job with one seed; see `simulate`."""
    trace = load_cost_trace(*source, seed=seed)
    if plan:
        machine = plan_simulated_fragments(machine, trace, records)
    found = dataclasses.asdict(ClusterSimulation(machine, trace, records).run())
    return found | {"trace": trace.words, "fragments": machine.fragments, "seed": seed}


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
    begun = max(records - math.ceil(4 * trace.find_longest_seconds(records) / trace.mean_seconds) * cores, 0)
    last = begin = trace.sum_seconds_before(begun) / cores
    free = [begin] * cores
    for record in range(begun, records):
        end = free[0] + trace.sum_seconds_before(record + 1) - trace.sum_seconds_before(record)
        heapq.heapreplace(free, end)
        last = max(last, end)
    return last


def save(figures: Figures) -> None:
    """Save the figures beside those that another process has saved."""
    figures |= json.loads(FIGURES.read_text()) | figures if FIGURES.exists() else {}
    FIGURES.write_text(json.dumps(dict(sorted(figures.items())), indent=1) + "\n")


def weak(figures: Figures) -> None:
    """HSP-Wrap, Table 4.1: 15.8 sequences a core on 48 to 12,288 cores, output included."""
    for nodes, sequences, _ in TABLE_4_1:
        machine = SimulatedCluster(nodes, CORES, output_bytes=SEQUENCE_BYTES, write_bytes_per_second=WRITE_RATE)
        simulate(figures, f"weak {nodes * CORES}", machine, (BLASTP, SEQUENCE_SECONDS), sequences, plan=True)


def make_system_x(processors: int, partition: int | None = None) -> SimulatedCluster:
    """Return mpiBLAST-PIO's machine, with partitions of so many processors."""
    return SimulatedCluster(
        processors // PROCESSORS, PROCESSORS, finish=FINISH, passes=1, work=WORK, spread=SPREAD, output_bytes=QUERY_BYTES,
        write_bytes_per_second=WRITE_RATE, partition_size=partition and partition // PROCESSORS,
    )  # fmt: skip


def strong(figures: Figures) -> None:
    """mpiBLAST-PIO: 5,000 queries on 128 to 1,024 processors, each workload alone, finish and output included."""
    for workload in WORKLOADS:
        trace = load_cost_trace(workload)
        for processors in STRONG:
            machine = make_system_x(processors)
            simulate(figures, f"strong {workload} {processors}", machine, (workload, None), STRONG_QUERIES, plan=True)
            seconds = compute_static_seconds(trace, STRONG_QUERIES, processors)
            figures[f"strong static {workload} {processors}"] = {
                "seconds": seconds, "efficiency": trace.sum_seconds_before(STRONG_QUERIES) / processors / seconds,
            }  # fmt: skip
    save(figures)


def partitions(figures: Figures) -> None:
    """mpiBLAST-PIO, Table 2: the coordinator at 1,024 processors, by partition size."""
    for size in TABLE_2:
        machine = make_system_x(1024, size)
        simulate(figures, f"partitions {size}", machine, ("balanced", None), STRONG_QUERIES, plan=True)


def segments(figures: Figures) -> None:
    """mpiBLAST-PIO, Table 1: the idle time of a worker, by queries of a segment."""
    for queries in TABLE_1:
        for prefetch in (True, False):
            machine = SimulatedCluster(
                SEGMENT_NODES, PROCESSORS, batch=queries, prefetch=prefetch, fragments=32, finish=FINISH, passes=1,
                partition_size=SEGMENT_PARTITION,
            )  # fmt: skip
            name = f"segments {'with' if prefetch else 'without'} {queries}"
            simulate(figures, name, machine, ("balanced", None), SEGMENT_QUERIES)


def tools(figures: Figures) -> None:
    """HSP-Wrap, chapter 4: the other tools, with the spread of measured traces, weak scaling."""
    for tool in TOOLS:
        trace = str(TRACES / f"{tool}.jsonl"), SEQUENCE_SECONDS
        for nodes in TOOL_NODES:
            records = TOOL_RECORDS * nodes * CORES
            machine = SimulatedCluster(nodes, CORES, output_bytes=SEQUENCE_BYTES, write_bytes_per_second=WRITE_RATE)
            simulate(figures, f"tools {tool} {nodes * CORES}", machine, trace, records)


def memory(figures: Figures) -> None:
    """A database in fragments, more than fit into a node: nodes that are given again what they have, and any."""
    trace = "lognormal:1,0.5", 1.0
    records = round(MEMORY_WORK * MEMORY_NODES * CORES)
    for resident in RESIDENT:
        for homes in (True, False):
            machine = SimulatedCluster(
                MEMORY_NODES, CORES, batch=64, fragments=MEMORY_FRAGMENTS, resident=resident, load_seconds=LOAD_SECONDS,
                homes=homes,
            )  # fmt: skip
            simulate(figures, f"memory {'homes' if homes else 'any'} {resident}", machine, trace, records)


def prefetch(figures: Figures) -> None:
    """mpiBLAST-PIO: tasks of one query of a second, with and without a queue at the nodes."""
    trace = "lognormal:1,0.5", None
    for latency in LATENCIES:
        for with_it in (True, False):
            machine = SimulatedCluster(PREFETCH, CORES, latency_seconds=latency, prefetch=with_it, batch=1)
            name = f"prefetch {'with' if with_it else 'without'} {latency:g}"
            simulate(figures, name, machine, trace, 200 * PREFETCH * CORES)


def large(figures: Figures) -> None:
    """100,000 cores with partitions, and the same work for each core; one seed, as it takes a quarter of an hour."""
    for nodes in LARGE:
        records = round(LARGE_WORK * nodes * CORES)
        name = f"large blastp {nodes * CORES}"
        simulate(figures, name, SimulatedCluster(nodes, CORES), (BLASTP, 1.0), records, seeds=(1,))


def points(figures: Figures, name: str, key: str) -> list[tuple[float, float]]:
    found = [(float(each.removeprefix(name)), figures[each][key]) for each in figures if each.startswith(name)]
    return sorted(found)


def charts(figures: Figures) -> None:
    """Draw what is there."""
    files: dict[str, Any] = {
        "efficiency": (
            "Weak scaling with the counts of HSP-Wrap's Table 4.1, output included", "cores", "efficiency",
            [
                Line("spread of the measured blastp trace, simulated", points(figures, "weak ", "efficiency")),
                Line("HSP-Wrap, measured, against its 48 cores", [(nodes * CORES, TABLE_4_1[0][2] / seconds) for nodes, _, seconds in TABLE_4_1], dashed=True),
            ],
            (0.9, 1.1), [0.9, 0.95, 1.0, 1.05, 1.1], "{:.0%}",
        ),
        "strong": (
            "5,000 queries on more processors (mpiBLAST-PIO), output included", "processors", "efficiency",
            [
                *(Line(f"{workload}, simulated", points(figures, f"strong {workload} ", "efficiency")) for workload in WORKLOADS),
                *(Line(f"{workload}, divided beforehand", points(figures, f"strong static {workload} ", "efficiency")) for workload in WORKLOADS),
                Line("mpiBLAST-PIO at 1,024, measured", [(1024, 0.92)], dashed=True),
            ],
            (0.0, 1.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], "{:.0%}",
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


EXPERIMENTS = {
    "weak": weak, "strong": strong, "partitions": partitions, "segments": segments, "tools": tools, "prefetch": prefetch,
    "memory": memory, "large": large,
}  # fmt: skip


def main(names: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    figures: Figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in names or EXPERIMENTS:
        if name != "charts":
            EXPERIMENTS[name](figures)
    charts(figures)


if __name__ == "__main__":
    main(sys.argv[1:])
