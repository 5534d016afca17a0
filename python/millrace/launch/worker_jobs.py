"""Jobs that run one Dask worker each, on a batch system or by ssh: their script, and the commands that start and end them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from millrace.core.errors import MillraceError, RefusedError
from millrace.host.python_launch import make_python_command
from millrace.launch import launch_commands
from millrace.launch.job_script import format_wall_seconds

#: Seconds in which a worker must reach Dask's scheduler: its job may start when that is gone.
DEATH_SECONDS = 60

#: Longest wait for a command of the batch system, in seconds.
MAX_COMMAND_SECONDS = 60.0


class WorkerJobRequest(msgspec.Struct, frozen=True):
    """What each job asks for; empty text and 0: the site's default."""

    #: Wall time in seconds; 0: none.
    seconds: int = 0
    #: Cores; 0: all that the job gets.
    cpus: int = 0
    memory: str = ""
    queue: str = ""
    account: str = ""
    #: Further options of the batch system, as they are.
    more: tuple[str, ...] = ()
    #: Lines of shell code that run first.
    setup: tuple[str, ...] = ()


class WorkerCommand(msgspec.Struct, frozen=True):
    """How a worker reaches Dask's scheduler."""

    address: str
    #: File with the certificate and key that all processes of the cluster have.
    certificate: Path

    def build_script(self, request: WorkerJobRequest, name: str, threads: str, certificate: str) -> str:
        """Build the script that becomes the worker.

        Args:
            name: Of the worker, as shell code, like ``threads``.
            certificate: The file, or its content where nodes share no folder. Others may read the scripts of a batch system.
        """
        prefix = "DASK_DISTRIBUTED__COMM__"
        own = [f"{prefix}TLS__WORKER__CERT", f"{prefix}TLS__WORKER__KEY", f"{prefix}TLS__CA_FILE"]
        words = [
            "distributed.cli.dask_worker",
            self.address,
            "--no-nanny",
            "--no-dashboard",
            "--death-timeout",
            str(DEATH_SECONDS),
        ]
        lines = [
            "#!/bin/bash", *request.setup, f"certificate={shlex.quote(certificate)}", f"export {prefix}REQUIRE_ENCRYPTION=True",
            *(f'export {variable}="$certificate"' for variable in own), "unset certificate",
            f"exec {shlex.join(make_python_command('-m', *words))} --name {name} --nthreads {threads} </dev/null",
        ]  # fmt: skip
        return "".join(f"{line}\n" for line in lines)


class WorkerQueue(Protocol):
    """Where jobs are submitted."""

    #: For messages.
    name: str

    def submit_job(self, command: WorkerCommand) -> str:
        """Submit a job; return its id, which its worker has as its name.

        Raises:
            MillraceError: The job is not accepted.
        """

    def list_jobs(self) -> Collection[str] | None:
        """Return the ids of all own jobs that wait or run; None: unknown."""

    def cancel_jobs(self, jobs: Sequence[str]) -> None:
        """Cancel jobs; those that have ended are left out."""


class SlurmWorkerQueue:
    """Jobs of Slurm.

    Args:
        tag: Name of all jobs, unlike that of others.
        logs: Folder for the output of the jobs.
    """

    name = "Slurm"

    def __init__(self, request: WorkerJobRequest, tag: str, logs: Path) -> None:
        self._request, self._tag, self._logs = request, tag, logs

    def submit_job(self, command: WorkerCommand) -> str:
        """See ``WorkerQueue``."""
        request = self._request
        options = [
            f"--job-name={self._tag}", "--nodes=1", "--ntasks=1", f"--time={format_wall_seconds(request.seconds)}",
            f"--cpus-per-task={request.cpus}" if request.cpus else "--exclusive",
            *([f"--mem={request.memory}"] if request.memory else []),
            *([f"--partition={request.queue}"] if request.queue else []),
            *([f"--account={request.account}"] if request.account else []),
            f"--output={self._logs}/%j.log", "--no-requeue", *request.more,
        ]  # fmt: skip
        threads = str(request.cpus) if request.cpus else '"$SLURM_CPUS_ON_NODE"'
        script = command.build_script(request, '"$SLURM_JOB_ID"', threads, str(command.certificate))
        return submit_script(["sbatch", "--parsable", *options], script).partition(";")[0]

    def list_jobs(self) -> Collection[str] | None:
        """See ``WorkerQueue``."""
        said = run_queue_command("squeue", "--noheader", f"--name={self._tag}", "--format=%i")
        return None if said is None else said.split()

    def cancel_jobs(self, jobs: Sequence[str]) -> None:
        """See ``WorkerQueue``."""
        run_queue_command("scancel", "--quiet", *jobs)


class GridEngineWorkerQueue:
    """Jobs of Grid Engine; see ``SlurmWorkerQueue``."""

    name = "Grid Engine"

    def __init__(self, request: WorkerJobRequest, tag: str, logs: Path) -> None:
        self._request, self._tag, self._logs = request, tag, logs

    def submit_job(self, command: WorkerCommand) -> str:
        """See ``WorkerQueue``."""
        request = self._request
        options = [
            "-terse", "-N", self._tag, "-l", f"h_rt={format_wall_seconds(request.seconds)}", "-r", "n", "-S", "/bin/bash",
            "-j", "y", "-o", f"{self._logs}/$JOB_ID.log",
            *(["-l", f"h_vmem={request.memory}"] if request.memory else []),
            *(["-q", request.queue] if request.queue else []),
            *(["-P", request.account] if request.account else []),
            *(word for option in request.more for word in shlex.split(option)),
        ]  # fmt: skip
        script = command.build_script(request, '"$JOB_ID"', '"$NSLOTS"', str(command.certificate))
        return submit_script(["qsub", *options], script)

    def list_jobs(self) -> Collection[str] | None:
        """See ``WorkerQueue``."""
        said = run_queue_command("qstat")
        return None if said is None else re.findall(r"^ *(\d+) ", said, re.MULTILINE)

    def cancel_jobs(self, jobs: Sequence[str]) -> None:
        """See ``WorkerQueue``."""
        run_queue_command("qdel", *jobs)


class SshWorkerQueue:
    """A process on each host, started by the remote shell; see ``SlurmWorkerQueue``.

    Args:
        hosts: At most one worker at a time on each.
    """

    name = "ssh"

    def __init__(self, request: WorkerJobRequest, hosts: Sequence[str], logs: Path, environ: Mapping[str, str]) -> None:
        self._request, self._hosts, self._logs, self._environ = request, [*hosts], logs, environ
        self._n_started = 0
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}

    def submit_job(self, command: WorkerCommand) -> str:
        """See ``WorkerQueue``."""
        used = {host for host, process in self._running.values() if process.poll() is None}
        host = next((host for host in self._hosts if host not in used), self._hosts[0])
        # The next one is another, as this may not work.
        self._hosts.remove(host)
        self._hosts.append(host)
        self._n_started += 1
        job = f"{host}-{self._n_started}"
        threads = str(self._request.cpus) if self._request.cpus else '"$(nproc)"'
        script = command.build_script(self._request, job, threads, command.certificate.read_text())
        shell = ["bash", "-s"] if not self._request.seconds else ["timeout", str(self._request.seconds), "bash", "-s"]
        rsh = shlex.split(self._environ.get(launch_commands.RSH) or launch_commands.SSH)
        with (self._logs / f"{job}.log").open("wb") as log:
            process = subprocess.Popen(
                [*rsh, host, *shell],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        assert process.stdin
        with suppress(BrokenPipeError):  # the queue no longer has the job, and its log says why
            process.stdin.write(script.encode())
            process.stdin.close()
        self._running[job] = host, process
        return job

    def list_jobs(self) -> Collection[str] | None:
        """See ``WorkerQueue``."""
        self._running = {
            job: (host, process) for job, (host, process) in self._running.items() if process.poll() is None
        }
        return [*self._running]

    def cancel_jobs(self, jobs: Sequence[str]) -> None:
        """See ``WorkerQueue``: the worker ends with its connection, or does not find the scheduler."""
        for job in jobs:
            if found := self._running.pop(job, None):
                found[1].terminate()
                found[1].wait()


def submit_script(words: Sequence[str], script: str) -> str:
    """Submit a script on standard input; return the id of the job.

    Raises:
        MillraceError: The batch system does not accept the job.
    """
    done = subprocess.run(words, input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MillraceError(
            f"{words[0]} does not take the job: {done.stderr.strip()}", f"it got these options: {shlex.join(words[1:])}"
        )
    return done.stdout.strip()


def run_queue_command(*words: str) -> str | None:
    """Return the output of a command of the batch system; None: it fails, as while the system restarts."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=MAX_COMMAND_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout


def check_queue_command(command: str) -> None:
    """Refuse to start where a batch system's commands are not.

    Raises:
        RefusedError: There is no such program.
    """
    if shutil.which(command) is None:
        raise RefusedError(f"{command}: not found here", "type it where the commands of the batch system are")


def read_log_end(logs: Path, job: str) -> str:
    """Return the last line that a job has written; empty: none."""
    try:
        lines = (logs / f"{job}.log").read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
