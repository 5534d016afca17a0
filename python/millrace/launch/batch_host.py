"""Requeue of a Slurm job when the node of its batch script is lost.

Runs as ``python -m millrace.launch.batch_host JOB``. With ``--no-kill`` a job outlives its nodes, that of the batch
script too: it would stay idle until its wall time. So another node of the job polls Slurm. It relies on Slurm's view
of the nodes, and on no clock. The ranks of a job that the batch system is ending must not be started again: that
check is here too.
"""

from __future__ import annotations

import os

from millrace.host.python_launch import make_python_command, move_user_modules_last

if __name__ == "__main__":
    move_user_modules_last(os.environ)  # before anything is imported that may be there, too

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from millrace.core.wait_loop import wait_until
from millrace.host.core_allocation import expand_node_list
from millrace.launch import launch_commands
from millrace.launch.node_allocation import NodeAllocation

#: Seconds between polls. Slurm itself takes minutes to give up a node (``SlurmdTimeout``).
POLL_INTERVAL_SECONDS = 20.0

#: Seconds that the watch gets to exit after SIGTERM.
MAX_END_SECONDS = 2.0


def start_watch(
    allocation: NodeAllocation, nodes: Sequence[str], environ: Mapping[str, str]
) -> subprocess.Popen[bytes] | None:
    """Start the watch on another node; None: this is no batch script of Slurm, or there is no other node.

    Args:
        environ: The environment of the ranks: a sweep that ends them then ends the watch, too.
    """
    here, job = environ.get("SLURMD_NODENAME"), environ.get("SLURM_JOB_ID")
    others = [node for node in nodes if node != here]
    if allocation.kind != "slurm" or not (here and job and others) or "SLURM_STEP_ID" in environ:
        return None
    words = make_python_command("-m", "millrace.launch.batch_host", job)
    with suppress(OSError):
        return subprocess.Popen(
            launch_commands.build_node_command(allocation, others[0], words, environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(environ), start_new_session=True,
        )  # fmt: skip
    return None


def end_watch(watch: subprocess.Popen[bytes]) -> None:
    """End the watch. ``srun`` forwards SIGTERM; a process that it leaves is swept with the ranks."""
    watch.terminate()
    try:
        watch.wait(MAX_END_SECONDS)
    except subprocess.TimeoutExpired:
        watch.kill()
        watch.wait()


def is_batch_host_lost(job: str, said: str) -> bool:
    """Tell from the output of ``scontrol show job`` whether Slurm has removed the batch script's node from ``job``.

    That output has a line for each job of an array, and for each component of a heterogeneous job.

    >>> is_batch_host_lost("7", "JobId=7 ReqNodeList=(null) NodeList=n[2-3] BatchHost=n1")
    True
    >>> is_batch_host_lost("7", "JobId=7 NodeList=n[1-3] BatchHost=n1\\nJobId=8 NodeList=n4 BatchHost=n5")
    False
    >>> is_batch_host_lost("7", "slurm_load_jobs error: Unable to contact slurm controller")
    False
    """
    line = next((line for line in said.splitlines() if line.startswith(f"JobId={job} ")), "")
    told = dict(re.findall(r"(?<!\S)(\w+)=(\S+)", line))
    return {"BatchHost", "NodeList"} <= told.keys() and told["BatchHost"] not in expand_node_list(told["NodeList"])


def main(job: str) -> None:
    """Poll until the batch script's node is lost, then requeue the job; cancel it where requeueing is not allowed."""
    show = ["scontrol", "--oneliner", "show", "job", job]
    wait_until(lambda: is_batch_host_lost(job, launch_commands.capture_command_output(show)), nap=POLL_INTERVAL_SECONDS)
    if subprocess.run(["scontrol", "requeue", job], check=False).returncode:
        os.execvp("scancel", ["scancel", job])


if __name__ == "__main__":
    main(sys.argv[1])


def query_job_ending(allocation: NodeAllocation, environ: Mapping[str, str]) -> str:
    """Return the reason for which Slurm ends the job, as text; empty if it does not, or is not known to.

    At a preemption Slurm ends the steps of the job, and signals the batch script only at the end of the grace time. To a
    supervisor that looks like lost nodes.
    """
    if allocation.kind != "slurm" or not (job := environ.get("SLURM_JOB_ID")):
        return ""
    return parse_job_ending(launch_commands.capture_command_output(["scontrol", "--oneliner", "show", "job", job]))


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
