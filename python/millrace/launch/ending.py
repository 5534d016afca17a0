"""Whether the batch system is ending the job: then what has ended is not to be started again."""

from __future__ import annotations

import re
from collections.abc import Mapping

from millrace.launch import command
from millrace.launch.allocation import Allocation


def ending(allocation: Allocation, environ: Mapping[str, str]) -> str:
    """Why Slurm ends the job, in words; empty if it does not, or nobody knows.

    When another job takes the nodes, Slurm ends the steps of this one and tells the batch script nothing until the end of
    its grace time. To a supervisor that looks like nodes that were lost.
    """
    if allocation.kind != "slurm" or not (job := environ.get("SLURM_JOB_ID")):
        return ""
    return why(command.output(["scontrol", "--oneliner", "show", "job", job]))


def why(said: str) -> str:
    """Why a job ends, by what ``scontrol show job`` says of it; empty: it goes on.

    >>> why("JobId=7 JobState=RUNNING PreemptTime=2026-01-02T03:04:05 EndTime=2026-01-02T03:09:05")
    'it is preempted, and ends at 2026-01-02T03:09:05'
    >>> why("JobId=7 JobState=RUNNING PreemptTime=None"), why("JobId=7 JobState=CANCELLED")
    ('', 'its state is CANCELLED')
    """
    told = dict(re.findall(r"(?<!\S)(\w+)=(\S+)", said))
    if told.get("PreemptTime", "None") not in ("None", "N/A"):
        return f"it is preempted, and ends at {told.get('EndTime', 'an unknown time')}"
    state = told.get("JobState", "RUNNING")
    return "" if state == "RUNNING" else f"its state is {state}"
