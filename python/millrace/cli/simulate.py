"""The command ``millrace simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from millrace.extensions.simulate.cost_trace import CostTrace, SimulatedCluster, SimulationOutcome


@click.command("simulate", short_help="Say how long a job would take on a cluster; run nothing.")
@click.option("--nodes", type=click.IntRange(1), required=True, metavar="N", help="Nodes of the cluster.")
@click.option("--cores", type=click.IntRange(1), required=True, metavar="C", help="Cores of a node.")
@click.option("--trace", required=True, metavar="FILE", help="What records cost: the run directory or events.jsonl of a real run; or "
              "fixed:S, lognormal:MEAN,SIGMA, pareto:MEAN,ALPHA, lengths:MEAN,SIGMA, balanced, skewed.")  # fmt: skip
@click.option(
    "--records",
    type=click.IntRange(1),
    metavar="N",
    help="Records of the input (default: those of the run, in their order).",
)
@click.option(
    "--work",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Or: work for each core (default for a distribution: 1800).",
)
@click.option(
    "--mean",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Scale the trace: a record takes so long on average.",
)
@click.option(
    "--fragments", type=click.IntRange(1), default=1, metavar="N", help="Fragments of the database (default 1)."
)
@click.option(
    "--finish",
    type=click.FloatRange(0, min_open=True),
    metavar="SHARE",
    help="With --fragments, search and finish as a real run does; the search of its candidates takes so much of a record's time.",
)
@click.option(
    "--batch", type=click.IntRange(0), default=0, metavar="N", help="Records a task; 0: as measured (default)."
)
@click.option(
    "--partition-size",
    type=click.IntRange(1),
    metavar="N",
    help="Nodes of a partition (default: partitions beyond 256 nodes).",
)
@click.option(
    "--latency", type=click.FloatRange(0), default=0.005, metavar="SECONDS", help="Delay of a message (default 0.005)."
)
@click.option(
    "--service",
    type=click.FloatRange(0),
    default=50e-6,
    metavar="SECONDS",
    help="Time to handle a message (default 0.00005).",
)
@click.option("--lose", type=click.IntRange(0), default=0, metavar="N", help="Nodes that die while the job lasts.")
@click.option(
    "--failing", type=click.IntRange(0), default=0, metavar="N", help="Records for which the tool always fails."
)
@click.option(
    "--job-time",
    default="",
    metavar="TIME",
    help="On workers in jobs of so long, as millrace workers submits them; --nodes is their maximum.",
)
@click.option(
    "--queue-wait",
    type=click.FloatRange(0),
    default=60.0,
    metavar="SECONDS",
    help="With --job-time: mean time of a job in the queue (default 60).",
)
@click.option("--no-prefetch", is_flag=True, help="Give nodes no task beyond their cores.")
@click.option("--seed", type=int, default=1, metavar="N", help="Of the random numbers (default 1).")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    nodes: int, cores: int, trace: str, records: int | None, work: float | None, mean: float | None, fragments: int, finish: float | None, batch: int,
    partition_size: int | None, latency: float, service: float, lose: int, failing: int, job_time: str, queue_wait: float, no_prefetch: bool, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Say how long a job would take on a cluster: a simulation that runs the scheduling code of real runs.

    \b
    millrace simulate --nodes 1024 --cores 12 --trace hits.tsv.millrace
    millrace simulate --nodes 64 --cores 16 --trace lognormal:2,1 --records 100000
    """
    from millrace.cli.run import print_json
    from millrace.core.errors import RefusedError
    from millrace.core.text_format import format_count
    from millrace.extensions.simulate import simulated_nodes
    from millrace.extensions.simulate.cost_trace import SimulatedCluster, load_cost_trace
    from millrace.extensions.simulate.simulation import ClusterSimulation

    if records and work:
        raise RefusedError("--records and --work contradict each other", "give one of them")
    if finish and fragments == 1:
        raise RefusedError("--finish: the database is whole", "say in how many fragments it is with --fragments")
    # Without --finish, each record counts once for each fragment.
    divided = 1 if finish else fragments
    known = load_cost_trace(trace, mean, divided, seed, replay=not records and not work)
    if records:
        records *= divided
    elif not work and Path(trace).exists():
        records = known.n_records
    else:
        records = max(round((work or 1800.0) * nodes * cores / known.mean_seconds), 1)
    machine = SimulatedCluster(
        nodes, cores, latency_seconds=latency, service_seconds=service, partition_size=partition_size,
        prefetch=not no_prefetch, batch=batch, fragments=fragments if finish else 0, resident=fragments,
        finish=finish or 0.0, passes=1 if finish else 0,
    )  # fmt: skip
    if job_time:
        simulate_jobs(machine, known, records, job_time, queue_wait, seed, as_json=as_json)
        return
    machine = simulated_nodes.draw_faults(machine, known, records, n_deaths=lose, n_failing=failing, seed=seed)
    found = ClusterSimulation(machine, known, records).run()
    if as_json:
        print_json(found)
        return
    _print_outcome(found, known, nodes)
    if finish:
        click.echo(f"fragments:    {fragments}; {format_count(found.slices, 'slice')} of records that took long")
    if lose or failing:
        click.echo(
            f"faults:       {format_count(lose, 'node')} lost, {format_count(found.retries, 'batch')} tried again, {format_count(found.quarantined, 'record')} quarantined"
        )


def simulate_jobs(
    machine: SimulatedCluster, known: CostTrace, records: int, job_time: str, queue_wait: float, seed: int, *, as_json: bool
) -> None:  # fmt: skip
    """Simulate a run on workers in jobs, and print the figures.

    Raises:
        RefusedError: A record takes longer than a job.
    """
    from millrace.cli.run import print_json
    from millrace.core.errors import RefusedError
    from millrace.core.text_format import format_count, format_duration
    from millrace.extensions.simulate.job_simulation import JobSimulation
    from millrace.launch.job_script import parse_wall_seconds
    from millrace.scheduler.worker_demand import MIN_JOB_SECONDS, WorkerJobLimits

    seconds = parse_wall_seconds(job_time, MIN_JOB_SECONDS)
    if (longest := known.find_longest_seconds(records)) >= seconds:
        raise RefusedError(
            f"--job-time {job_time}: a record takes {format_duration(longest)}, and would never end",
            "give jobs a multiple of that",
        )
    limits = WorkerJobLimits(machine.nodes, seconds)
    found = JobSimulation(machine, known, records, limits, queue_wait, seed).run_jobs()
    if as_json:
        print_json(found)
        return
    for at, words in found.decisions:
        click.echo(f"{at:9.1f} s  {words}")
    click.echo(f"work:         {records} records, {format_duration(found.work_seconds)} on one core")
    click.echo(
        f"time:         {found.seconds:.1f} s ({format_duration(found.seconds)}) from the start of the first job"
    )
    click.echo(f"jobs:         {found.jobs}, at most {found.peak_workers} at a time; {found.cancelled} cancelled in the queue, "
               f"{found.idle_ended} ended without a task, {found.timed_out} by their time limit")  # fmt: skip
    click.echo(f"used:         {found.used_share:.2%} of {format_duration(found.slot_seconds)} of slots; "
               f"{format_count(found.lost_tasks, 'task')} lost at time limits")  # fmt: skip


def _print_outcome(found: SimulationOutcome, known: CostTrace, nodes: int) -> None:
    """Print the figures of a simulated run."""
    from millrace.core.text_format import format_duration

    click.echo(
        f"trace:        {known.words}; a record takes {known.mean_seconds:.3g} s on average, {found.longest_seconds:.3g} s at most"
    )
    click.echo(
        f"machine:      {nodes} nodes, {found.cores} cores, {f'{found.partitions} partitions' if found.partitions else 'no partitions'}"
    )
    click.echo(
        f"work:         {found.records} records in {found.tasks} tasks, {format_duration(found.work_seconds)} on one core"
    )
    click.echo(f"time:         {found.seconds:.1f} s ({format_duration(found.seconds)})")
    click.echo(f"efficiency:   {found.efficiency:.2%}")
    click.echo(f"lost to:      start of tools {found.startup_share:.2%}, waiting for input {found.starved_share:.2%}, "
               f"end of the run {found.tail_share:.2%}")  # fmt: skip
    click.echo(f"coordinator:  busy {found.coordinator_share:.1%} of the time" + (
        f", the busiest partition leader {found.leader_share:.1%}" if found.partitions else ""))  # fmt: skip
    click.echo(f"copies:       {found.copies} tasks of stragglers were run twice")
