"""The result of a run that reached its end, and its entry in the history.

The history outlives the run directory.
"""

from __future__ import annotations

import os
from datetime import datetime

import msgspec

from millrace.planning.run_plan import RunPlan
from millrace.report.events import read_typed_events
from millrace.report.summary import RunSummary, summarise_events
from millrace.rundir import run_history
from millrace.rundir.paths import RunDir, RunManifest


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that reached its end."""

    code: int
    #: Text for the user, or empty.
    text: str
    summary: RunSummary | None


def save_run_history(plan: RunPlan, rundir: RunDir, manifest: RunManifest, code: int, message: str = "") -> RunSummary:
    """Save the closed event log and the facts of the run, and return the figures of the log.

    Nothing is saved of a step of another job.

    Args:
        code: The exit code of this start.
        message: Why it stopped early; empty if it did not.
    """
    counted = summarise_events(read_typed_events(rundir.events))
    if not plan.listed:
        return counted
    run_history.archive_run(
        run_history.EndedRun(
            run_id=manifest.run_id, ended=datetime.now().astimezone().isoformat(timespec="seconds"),
            argv=plan.command.argv, host=os.uname().nodename, cwd=str(plan.command.cwd), run_dir=str(plan.run_dir),
            status=counted.status, exit_code=code, message=message, records_done=counted.records_done,
            quarantined=len(counted.quarantined), n_starts=counted.n_runs, wall=counted.wall,
        ),
        {run_history.EVENTS: rundir.events},
        plan.command.environ,
    )  # fmt: skip
    return counted
