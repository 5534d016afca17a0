"""Remarks on the figures of a job, in sentences: how its time was spent, and how it could be faster."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.report import words
from millrace.report.charts import compute_costliest_share
from millrace.report.runs import LoggedRun
from millrace.report.summary import RunSummary


def make_remarks(runs: Sequence[LoggedRun], summary: RunSummary) -> list[str]:
    """Return remarks, the most important first; figures without a problem have none."""
    done = [task for run in runs for task in run.done_tasks]
    busy = sum(task.seconds for run in runs for task in run.tasks)
    said = []
    if done and summary.occupancy >= 0.95:
        said.append(f"Slots were busy {words.format_percent(summary.occupancy)} of the time: little is left to gain.")
    if busy and summary.cpu < 0.8 * busy:
        said.append(
            f"While a task ran, its tool had a core only {words.format_percent(summary.cpu / busy)} of the time. "
            "Other programs on the machine, slow storage, or more slots than cores hold it up."
        )
    if summary.tail > max(0.1 * summary.wall, 1.0):
        said.append(
            f"In the last {words.format_duration(summary.tail)} some slots had nothing left to do. A few records "
            "cost much more than the rest; see the slowest batches."
        )
    if len(done) >= 20 and (top := compute_costliest_share(done)) >= 0.1:
        said.append(f"The costliest 1 % of the records took {words.format_percent(top)} of the CPU time.")
    if summary.cpu_lost > 0.02 * summary.cpu:
        said.append(f"Attempts that failed cost {words.format_duration(summary.cpu_lost)} of CPU time.")
    tiny = [task for task in done if task.seconds < 0.05 * task.tasks]
    if len(tiny) > 0.5 * len(done) > 50:
        said.append("Most batches took less than 50 ms, so starting the tool is much of the cost: try larger batches.")
    return [*said, *(run.volumes.words for run in runs if run.volumes)]
