"""History of runs: a record of each ended run, which remains when its run directory is gone."""

from __future__ import annotations

import os
from datetime import datetime

from millrace.plan.plan import RunPlan
from millrace.report.events import read_typed_events
from millrace.report.summary import RunSummary, summarise_events
from millrace.rundir import RunDir, RunManifest
from millrace.storage import past


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
    past.archive_run(
        past.EndedRun(
            run_id=manifest.run_id, ended=datetime.now().astimezone().isoformat(timespec="seconds"),
            argv=plan.command.argv, host=os.uname().nodename, cwd=str(plan.command.cwd), run_dir=str(plan.run_dir),
            status=counted.status, exit_code=code, message=message, records_done=counted.records_done,
            quarantined=len(counted.quarantined), n_starts=counted.n_runs, wall=counted.wall,
        ),
        {past.EVENTS: rundir.events},
        plan.command.environ,
    )  # fmt: skip
    return counted
