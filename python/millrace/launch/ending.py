"""The check whether the batch system is ending the job: then its ranks must not be started again."""

from __future__ import annotations

import re
from collections.abc import Mapping

from millrace.launch import command
from millrace.launch.allocation import NodeAllocation


def query_job_ending(allocation: NodeAllocation, environ: Mapping[str, str]) -> str:
    """Return the reason for which Slurm ends the job, as text; empty if it does not, or is not known to.

    At a preemption Slurm ends the steps of the job, and signals the batch script only at the end of the grace time. To a
    supervisor that looks like lost nodes.
    """
    if allocation.kind != "slurm" or not (job := environ.get("SLURM_JOB_ID")):
        return ""
    return parse_job_ending(command.capture_command_output(["scontrol", "--oneliner", "show", "job", job]))


def parse_job_ending(said: str) -> str:
    """Parse the reason for which a job ends from the output of ``scontrol show job``; empty: it continues.

    >>> parse_job_ending("JobId=7 JobState=RUNNING PreemptTime=2026-01-02T03:04:05 EndTime=2026-01-02T03:09:05")
    'it is preempted, and ends at 2026-01-02T03:09:05'
    >>> parse_job_ending("JobId=7 JobState=RUNNING PreemptTime=None"), parse_job_ending("JobId=7 JobState=CANCELLED")
    ('', 'its state is CANCELLED')
    """
    told = dict(re.findall(r"(?<!\S)(\w+)=(\S+)", said))
    if told.get("PreemptTime", "None") not in ("None", "N/A"):
        return f"it is preempted, and ends at {told.get('EndTime', 'an unknown time')}"
    state = told.get("JobState", "RUNNING")
    return "" if state == "RUNNING" else f"its state is {state}"
