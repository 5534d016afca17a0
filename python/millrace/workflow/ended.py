"""The history entry of an ended job in phases, for ``status`` and ``report`` after its folder is gone."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from millrace.report.events import read_typed_events
from millrace.report.summary import summarise_events
from millrace.rundir import RunDir
from millrace.storage import past
from millrace.workflow.done_files import NAME
from millrace.workflow.folder import (
    LOG,
    MANIFEST,
    WorkStretch,
    classify_exit_code,
    list_phase_names,
    list_work_stretches,
)
from millrace.workflow.log import read_phase_log
from millrace.workflow.planned import WorkflowContext


def save_job_history(file: Path, here: WorkflowContext, code: int) -> None:
    """Copy the logs of the job and its phases into the history, laid out as in its folder.

    Args:
        file: The job file.
        code: The exit code of this start.
    """
    lines = list(read_phase_log(here.folder / LOG))
    if not lines:
        return
    logs = {name: RunDir(here.folder / name).events for name in list_phase_names(here.folder)}
    found = {name: path for name, path in logs.items() if path.exists()}
    counted = [summarise_events(read_typed_events(path)) for path in found.values()]
    at_work = list_work_stretches(lines, lines[-1].time)
    past.archive_run(
        past.EndedRun(
            run_id=_derive_run_id(here.folder, lines[0].time), ended=datetime.now().astimezone().isoformat(timespec="seconds"),
            argv=("millrace", "run", str(file)), host=os.uname().nodename, cwd=str(here.cwd), run_dir=str(here.folder),
            status=classify_exit_code(code), exit_code=code, message="", records_done=sum(each.records_done for each in counted),
            quarantined=sum(len(each.quarantined) for each in counted), n_starts=max(Counter(each.phase for each in at_work).values()), wall=_sum_work_seconds(at_work),
        ),
        {name: here.folder / name for name in (MANIFEST, LOG, NAME) if (here.folder / name).exists()} | {f"{name}/{path.name}": path for name, path in found.items()},
        here.environ,
    )  # fmt: skip


def _derive_run_id(folder: Path, begun: float) -> str:
    """Return an id that is the same for all starts of a job."""
    return hashlib.blake2b(f"{folder}\0{begun}".encode(errors="surrogateescape"), digest_size=16).hexdigest()


def _sum_work_seconds(at_work: Sequence[WorkStretch]) -> float:
    """Return the seconds in which at least one phase was working.

    Args:
        at_work: Stretches in the order of their begins.
    """
    seconds, reached = 0.0, 0.0
    for each in at_work:
        seconds += max(each.last - max(each.begun, reached), 0.0)
        reached = max(reached, each.last)
    return seconds
