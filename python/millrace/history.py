"""History of runs: a record of each ended run, which remains when its run directory is gone."""

from __future__ import annotations

import os
from datetime import datetime

from millrace.plan.plan import Plan
from millrace.report.events import read_typed
from millrace.report.summary import Summary, summarise
from millrace.rundir import Manifest, RunDir
from millrace.storage import past


def remember(plan: Plan, rundir: RunDir, manifest: Manifest, code: int, message: str = "") -> Summary:
    """Save the closed event log and the facts of the run, and return the figures of the log.

    Nothing is saved of a step of another job.

    Args:
        code: The exit code of this start.
        message: Why it stopped early; empty if it did not.
    """
    counted = summarise(read_typed(rundir.events))
    if not plan.listed:
        return counted
    past.keep(
        past.Past(
            run_id=manifest.run_id, ended=datetime.now().astimezone().isoformat(timespec="seconds"),
            argv=plan.command.argv, host=os.uname().nodename, cwd=str(plan.command.cwd), run_dir=str(plan.run_dir),
            status=counted.status, exit_code=code, message=message, records_done=counted.records_done,
            quarantined=len(counted.quarantined), n_starts=counted.n_runs, wall=counted.wall,
        ),
        {past.EVENTS: rundir.events},
        plan.command.environ,
    )  # fmt: skip
    return counted
