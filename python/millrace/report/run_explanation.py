"""Sentences on where the time of a run went: idle slots, what is waited for, what was tried again, what would help.

All of it follows from the event log, which has tasks that ended, not those that go on. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from millrace.core.text_format import format_count, format_duration, format_percent, format_records
from millrace.report.charts import compute_costliest_share
from millrace.report.event_log import LoggedRun, list_still_quarantined, summarise_nodes
from millrace.report.events import TaskEvent
from millrace.report.summary import RunSummary, summarise_runs

#: Share of the time of all slots from which a cause is worth a sentence.
MIN_SHARE = 0.02

#: Most reasons, records and gaps that are listed one by one.
MAX_LISTED = 5

#: A task that ends last counts as long from this multiple of the usual time on.
LONG_FACTOR = 3.0


class IdleTimes(msgspec.Struct, frozen=True):
    """Seconds of all slots in which they had no task, by when that was."""

    #: Before the first task of each slot, after the last one, and between them.
    start: float
    end: float
    between: float
    #: Slots that never had a task.
    n_unused: int


def measure_idle_times(run: LoggedRun) -> IdleTimes:
    """Divide the idle time of a start that has ended by when it was."""
    first: dict[int, float] = {}
    for task in run.tasks:
        first[task.slot] = min(task.start, first.get(task.slot, task.start))
    busy = sum(task.seconds for task in run.tasks)
    n_unused = max(run.n_slots - len(first), 0)
    start = sum(first.values())
    end = sum(run.wall - each for each in run.find_last_ends().values())
    between = max(run.slot_seconds - busy - start - end - n_unused * run.wall, 0.0)
    return IdleTimes(start=start, end=end, between=between, n_unused=n_unused)


def explain_run(
    runs: Sequence[LoggedRun], state: str, elapsed: float, left: tuple[float, float, float] | None
) -> list[str]:
    """Explain where the time of a run went, the state of it first.

    Args:
        state: As ``millrace watch`` shows it.
        elapsed: Seconds since the latest start began.
        left: Estimated seconds to the end, as (low, likely, high); None: not known.
    """
    if not runs:
        return [f"It is {state}, and its log has no start yet."]
    summary, run = summarise_runs(list(runs)), runs[-1]
    parts = [
        _describe_state(run, summary, state, elapsed, left),
        _describe_waits(runs, elapsed) if state == "running" else _describe_idle_slots(run),
        _describe_slot_changes(run),
        _describe_retries(runs, summary),
        _describe_quarantined(runs),
        _describe_second_looks(run),
        _describe_nodes(run),
        describe_costs(runs, summary),
    ]
    return [sentence for part in parts for sentence in part]


def _describe_state(
    run: LoggedRun, summary: RunSummary, state: str, elapsed: float, left: tuple[float, float, float] | None
) -> Iterator[str]:
    done = format_count(summary.records_done, "record")
    if state == "running":
        eta = f", and about {format_duration(left[1])} are left" if left else ""
        yield f"It has been running for {format_duration(elapsed)}: {done} {_be(summary.records_done)} done{eta}."
    elif state == "killed":
        yield f"It was killed after {done}: its log has no end, and no process runs it. The same command goes on with it."
    elif run.message:
        reason = run.message.partition("\n")[0]
        yield f"It was {run.status} after {done}: {reason}. The same command goes on with it."
    else:
        yield f"It has ended: {done} in {format_duration(summary.wall)}."
    if summary.n_runs > 1:
        yield f"This is start {summary.n_runs}; what follows is about this one, retries and costs about all."


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _describe_idle_slots(run: LoggedRun) -> Iterator[str]:
    """Say how long slots were idle, and why, for a start that has ended."""
    whole = run.slot_seconds
    if not run.tasks or whole <= 0:
        yield "No task has ended, so that slots had nothing to show."
        return
    idle = measure_idle_times(run)
    busy = min(sum(task.seconds for task in run.tasks) / whole, 1.0)
    if busy >= 0.95:
        yield f"Slots were busy {format_percent(busy)} of the time: only more slots, or a faster tool, would make it faster."
        return
    yield f"Slots were idle {format_percent(1 - busy)} of the time:"
    if idle.n_unused:
        n_tasks = sum(task.tasks for task in run.tasks)
        were = f"{'was' if n_tasks == 1 else 'were'} only {format_count(n_tasks, 'task')}"
        yield f"- {idle.n_unused} of {format_count(run.n_slots, 'slot')} never had a task, as there {were}. {FEW_TASKS}"
    if idle.end > MIN_SHARE * whole:
        yield from _describe_tail(run, idle.end)
    if idle.start > MIN_SHARE * whole:
        yield f"- {format_duration(idle.start)} before their first tasks: the start of the run. A longer run has the same."
    if idle.between > MIN_SHARE * whole:
        yield (
            f"- {format_duration(idle.between)} between tasks, until the next batch was cut and given to them. Larger batches "
            "(--batch) need fewer of these steps; an input that comes slowly, through a pipe, has the same effect."
        )


#: What helps where tasks are fewer than slots.
FEW_TASKS = (
    "A record is not divided; BLAST and HMMER can search one in parts of the database (--fragments). If --batch is set, "
    "smaller batches make more tasks."
)


def _describe_tail(run: LoggedRun, seconds: float) -> Iterator[str]:
    """Say for what the last tasks were waited, in a start that has ended."""
    whole = [task for task in run.tasks if task.tasks == 1 and task.last > task.first]
    last = max(whole, key=lambda task: task.t, default=None)
    if last is None:
        return
    usual = median(task.seconds for task in whole)
    which = format_records(last.first, last.last)
    yield f"- {format_duration(seconds)} at the end, when only {which} {'was' if last.records == 1 else 'were'} left to do."
    if last.seconds < LONG_FACTOR * usual or len(whole) < 2:
        return
    times = f"{last.seconds / usual:.0f} times as long as the usual task" if usual > 0 else "longer than all others"
    if last.records == 1:
        yield (
            f"  It took {format_duration(last.seconds)}, {times}, and one record is one task. With BLAST and HMMER, "
            "--fragments lets several slots search it; with other tools no run can be faster than this record."
        )
    else:
        yield f"  They took {format_duration(last.seconds)}, {times}. If --batch is set: without it batches get small at the end."


def _describe_waits(runs: Sequence[LoggedRun], elapsed: float) -> Iterator[str]:
    """Say what a run that goes on waits for."""
    run = runs[-1]
    if not run.tasks:
        yield (
            f"No task has ended since it began {format_duration(elapsed)} ago: the first batches are at work, or the tool "
            "takes long to start."
        )
        return
    ended = max(task.t for task in run.tasks)
    longest = max(task.seconds / task.tasks for task in run.tasks)
    silence = elapsed - ended
    if silence > max(LONG_FACTOR * longest, 10.0):
        yield (
            f"No task has ended for {format_duration(silence)}, and none took longer than {format_duration(longest)} before: a "
            "record that takes long, storage that does not answer, or a machine that was suspended."
        )
    extents = sorted((task.first, task.last) for each in runs for task in each.done_tasks)
    gaps = list(_list_gaps(extents))
    if gaps:
        named = ", ".join(format_records(*each) for each in gaps[:MAX_LISTED])
        more = f" and {len(gaps) - MAX_LISTED} more" if len(gaps) > MAX_LISTED else ""
        yield f"At work, or waiting to be tried again: {named}{more}."
        yield f"The output waits for {format_records(*gaps[0])}: what follows is in the journal, and is written in order."
    quiet = [slot for slot in range(run.present_slots) if slot not in {task.slot for task in run.tasks}]
    if quiet and silence < elapsed / 2:
        yield f"{format_count(len(quiet), 'slot')} of {run.present_slots} {'has' if len(quiet) == 1 else 'have'} not ended a task yet."


def _list_gaps(extents: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the records that are not done although later ones are."""
    reached = 0
    for first, last in extents:
        if first > reached:
            yield reached, first
        reached = max(reached, last)


def _describe_slot_changes(run: LoggedRun) -> Iterator[str]:
    before = run.head.slots
    for change in run.slot_changes[:MAX_LISTED]:
        if change.slots < before:
            yield (
                f"From {format_duration(change.t)} on {change.slots} tools ran side by side, {before} before: memory ran out, or "
                "nodes or workers were lost. --slots sets fewer from the start."
            )
        before = change.slots
    for text, count in list(run.warnings.items())[:MAX_LISTED]:
        yield f"Warned{f' {count:,} times' if count > 1 else ''}: {text}"


def _describe_retries(runs: Sequence[LoggedRun], summary: RunSummary) -> Iterator[str]:
    reasons = Counter(retry.reason for run in runs for retry in run.retries)
    if not reasons:
        return
    lost = f", and cost {format_duration(summary.cpu_lost)} of CPU" if summary.cpu_lost >= 0.05 else ""
    yield f"{format_count(summary.n_failed, 'attempt')} failed{lost}; {format_count(reasons.total(), 'retry')}:"
    for reason, count in reasons.most_common(MAX_LISTED):
        yield f"- {'once' if count == 1 else f'{count:,} times'}: {_join_lines(reason)}"


def _describe_quarantined(runs: Sequence[LoggedRun]) -> Iterator[str]:
    found = list_still_quarantined(runs)
    if not found:
        return
    yield f"{format_count(len(found), 'record')} quarantined; --retry-quarantined tries again:"
    for event in found[:MAX_LISTED]:
        yield f"- record {event.record + 1} ({event.name}): {_join_lines(event.reason)}"


def _join_lines(reason: str) -> str:
    return ": ".join(line.strip() for line in reason.splitlines() if line.strip())


def _describe_second_looks(run: LoggedRun) -> Iterator[str]:
    seconds = sum(task.seconds for task in run.tasks if task.status == "verified")
    busy = sum(task.seconds for task in run.tasks)
    if busy and seconds > 0.05 * busy:
        yield (
            f"{format_percent(seconds / busy)} of the work was to compute records a second time and compare (--verify): "
            "in a longer run it is a smaller share."
        )


def _describe_nodes(run: LoggedRun) -> Iterator[str]:
    nodes = [node for node in summarise_nodes(run) if node.slots]
    if len(nodes) < 2:
        return
    usual = median(node.busy for node in nodes)
    for node in [node for node in nodes if node.busy < usual - 0.2][:MAX_LISTED]:
        yield f"Slots of {node.host} were busy {format_percent(node.busy)} of the time, those of the usual node {format_percent(usual)}."


def describe_costs(runs: Sequence[LoggedRun], summary: RunSummary) -> Iterator[str]:
    """Yield remarks on what tasks cost, and why they took longer than their CPU."""
    done = [task for run in runs for task in run.done_tasks]
    busy = sum(task.seconds for run in runs for task in run.tasks)
    if busy and summary.cpu < 0.8 * busy:
        yield (
            f"While a task ran, its tool had a core only {format_percent(summary.cpu / busy)} of the time. "
            "Other programs on the machine, slow storage, or more slots than cores hold it up."
        )
        if not summary.io:
            yield "With --profile-io the next run measures what it waits for."
    if summary.io and summary.io.wait > 0.2 * (summary.io.compute + summary.io.wait):
        yield (
            f"Tasks waited {format_percent(summary.io.wait / (summary.io.compute + summary.io.wait))} of their "
            "time; the tables of reads and writes show for what."
        )
    if len(done) >= 20 and (top := compute_costliest_share(done)) >= 0.1:
        yield f"The costliest 1 % of the records took {format_percent(top)} of the CPU time."
    if _are_mostly_tiny(done):
        yield "Most batches took less than 50 ms, so starting the tool is much of the cost: try larger batches."


def _are_mostly_tiny(done: Sequence[TaskEvent]) -> bool:
    tiny = [task for task in done if task.seconds < 0.05 * task.tasks]
    return len(tiny) > 0.5 * len(done) > 50
