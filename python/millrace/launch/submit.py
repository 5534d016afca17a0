"""The submission of a job script to the batch system."""

from __future__ import annotations

import subprocess

from millrace.errors import MillraceError, RefusedError


def submit_job_script(command: str, script: str) -> str:
    """Submit ``script`` with ``sbatch`` or ``qsub``, which copy it; return their output.

    Raises:
        RefusedError: The command does not exist here.
        MillraceError: The batch system rejects the job.
    """
    try:
        done = subprocess.run([command], input=script, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RefusedError(
            f"{command}: not found here, so nothing is submitted",
            "submit where the scheduler's commands are; --dry-run prints the script",
        ) from error
    if done.returncode:
        raise MillraceError(
            f"{command} does not take the job: {done.stderr.strip()}",
            f"the words are those of {command}; --dry-run prints the script that it was given",
        )
    return done.stdout.strip()
