"""Job scripts for Slurm and PBS that requeue themselves until the run is done, and their submission."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence

import msgspec

from millrace.core.errors import MillraceError, RefusedError
from millrace.core.text_format import format_duration

#: Seconds before the wall time at which a run is asked to stop: its tools get 20 s to end their work.
WARNING_SECONDS = 120

#: Shortest wall time that leaves time to work, in seconds.
MIN_WALL_SECONDS = 300


class JobScriptRequest(msgspec.Struct, frozen=True):
    """The resources and options of a batch job; empty text and 0: the site's default."""

    nodes: int
    #: Wall time, as in ``4:00:00``.
    time: str
    name: str
    queue: str = ""
    account: str = ""
    cpus: int = 0
    memory: str = ""
    #: Further options of the batch system, passed unchanged.
    more: tuple[str, ...] = ()
    #: Lines of shell code that run first, such as ``module load blast``.
    setup: tuple[str, ...] = ()


def build_slurm_script(request: JobScriptRequest, words: Sequence[str], run_dir: str) -> str:
    """Build the job script of ``words`` for ``sbatch``.

    Args:
        words: The command, ``millrace run ...``.
        run_dir: Its run directory, from which the script reads the progress.
    """
    options = [
        f"--job-name={request.name}", f"--nodes={request.nodes}", "--ntasks-per-node=1",
        f"--time={format_wall_seconds(parse_wall_seconds(request.time))}",
        f"--cpus-per-task={request.cpus}" if request.cpus else "--exclusive",
        *([f"--mem={request.memory}"] if request.memory else []),
        *([f"--partition={request.queue}"] if request.queue else []),
        *([f"--account={request.account}"] if request.account else []),
        "--output=%x-%j.log", "--open-mode=append", "--no-kill", "--requeue", f"--signal=B:USR1@{WARNING_SECONDS}",
        *request.more,
    ]  # fmt: skip
    head = "".join(f"#SBATCH {option}\n" for option in options)
    return f"""#!/bin/bash
{head}
# --no-kill: a lost node does not end the job. --requeue and --signal: near the end of its time the job stops in good
# order, goes back into the queue, and carries on from what is done, until all is done.
{_build_setup_lines(request)}{_build_progress_function(words[0], run_dir)}
warned=
{shlex.join(words)} &
run=$!
trap 'warned=1; kill -USR1 $run 2>/dev/null' USR1
wait $run; code=$?
# A signal ends the wait, not the run.
while kill -0 $run 2>/dev/null; do wait $run; code=$?; done

if [ -n "$warned" ] && [ $code -gt 128 ]; then
    if [ "$(records_done)" = "$before" ]; then
        echo "millrace: not one result within the wall time: not queued again; ask for more time" >&2
        exit 1
    fi
    echo "millrace: out of time with $(records_done) records done; going back into the queue" >&2
    scontrol requeue "$SLURM_JOB_ID" && sleep 60
fi
# Stopped by SIGTERM, as another job takes the nodes: within the grace time the job can still choose to come back.
if [ $code = 143 ] && scontrol show job "$SLURM_JOB_ID" | grep -q 'PreemptTime=[0-9]'; then
    echo "millrace: preempted with $(records_done) records done; going back into the queue" >&2
    scontrol requeue "$SLURM_JOB_ID" && sleep 60
fi
exit $code
"""


def build_pbs_script(request: JobScriptRequest, words: Sequence[str], run_dir: str) -> str:
    """Build the job script of ``words`` for ``qsub`` of PBS Pro and OpenPBS; see ``build_slurm_script``."""
    select = f"select={request.nodes}:mpiprocs=1" + (f":ncpus={request.cpus}" if request.cpus else "")
    options = [
        f"-N {request.name}", f"-l {select}{f':mem={request.memory}' if request.memory else ''}", f"-l walltime={format_pbs_time(request.time)}",
        f"-l place=scatter{'' if request.cpus else ':excl'}",
        *([f"-q {request.queue}"] if request.queue else []),
        *([f"-A {request.account}"] if request.account else []),
        "-r y", "-W tolerate_node_failures=all", "-j oe", *request.more,
    ]  # fmt: skip
    work = parse_wall_seconds(request.time) - WARNING_SECONDS
    head = "".join(f"#PBS {option}\n" for option in options)
    return f"""#!/bin/bash
{head}
# PBS sends no warning: near the end of its time the run is asked to stop by `timeout`, the job is queued again, and
# carries on from what is done, until all is done.
cd "$PBS_O_WORKDIR" || exit 1
{_build_setup_lines(request)}{_build_progress_function(words[0], run_dir)}
timeout --signal=USR1 {work} {shlex.join(words)}
code=$?

if [ $code = 124 ]; then
    if [ "$(records_done)" = "$before" ]; then
        echo "millrace: not one result within the wall time: not queued again; ask for more time" >&2
        exit 1
    fi
    echo "millrace: out of time with $(records_done) records done; going back into the queue" >&2
    qrerun "$PBS_JOBID" && sleep 60
fi
exit $code
"""


def _build_setup_lines(request: JobScriptRequest) -> str:
    return "".join(f"{line}\n" for line in request.setup)


def _build_progress_function(program: str, run_dir: str) -> str:
    return f"""
records_done() {{
    {shlex.quote(program)} status --json {shlex.quote(run_dir)} 2>/dev/null |
        sed -n 's/.*"records_done": *\\([0-9]*\\).*/\\1/p' | awk '{{ n += $1 }} END {{ print n + 0 }}'
}}
before=$(records_done)
"""


def parse_wall_seconds(text: str, min_seconds: int = MIN_WALL_SECONDS) -> int:
    """Parse a wall time as seconds: minutes, ``30m``, ``2h``, ``M:SS``, ``H:MM:SS``, ``D-H``, ``D-H:MM`` or ``D-H:MM:SS``.

    >>> parse_wall_seconds("90"), parse_wall_seconds("4:00:00"), parse_wall_seconds("1-12"), parse_wall_seconds("10:30")
    (5400, 14400, 129600, 630)
    >>> parse_wall_seconds("30m"), parse_wall_seconds("2h")
    (1800, 7200)

    Raises:
        RefusedError: It is none of these, or shorter than ``min_seconds``.
    """
    if short := re.fullmatch(r"(\d+)([mh])", text):
        text = short[1] if short[2] == "m" else f"{short[1]}:00:00"
    matched = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not matched:
        raise RefusedError(f"--time {text}: not a wall time", "as in 4:00:00, or 2-12:00:00")
    days, *rest = matched.groups()
    numbers = [int(part) for part in rest if part is not None]
    if days is not None:
        numbers += [0] * (3 - len(numbers))
    elif len(numbers) < 3:
        numbers = [0, *numbers, 0][:3] if len(numbers) == 1 else [0, *numbers]
    total = int(days or 0) * 86400 + numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    if total < min_seconds:
        why = f": the last {WARNING_SECONDS} s are for stopping" if min_seconds > WARNING_SECONDS else ""
        raise RefusedError(f"--time {text}: too short", f"at least {format_duration(min_seconds)}{why}")
    return total


def check_memory_size(text: str) -> str:
    """Return a size of memory as it is: a number with a unit, by which batch systems differ; empty: the site's default.

    >>> check_memory_size("64gb"), check_memory_size("512M"), check_memory_size("0"), check_memory_size("")
    ('64gb', '512M', '0', '')

    Raises:
        RefusedError: No batch system can read it.
    """
    if text and not re.fullmatch(r"[0-9]+(\.[0-9]+)?[kmgtp]?[bw]?", text, re.IGNORECASE):
        raise RefusedError(f"--mem {text}: not a size of memory", "as in 4G, or 512M")
    return text


def format_pbs_time(text: str) -> str:
    """Format a wall time for PBS, as ``H:MM:SS``.

    >>> format_pbs_time("1-12")
    '36:00:00'
    """
    return format_wall_seconds(parse_wall_seconds(text))


def format_wall_seconds(total: int) -> str:
    """Format seconds as ``H:MM:SS``."""
    return f"{total // 3600}:{total // 60 % 60:02}:{total % 60:02}"


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
