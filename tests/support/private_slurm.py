"""A private Slurm with several nodes on this machine: its own keys, sockets and ports, nothing in system folders. Root only."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from free_ports import taken
from process_lookup import environment, parent, read

#: A lost node is given up after ``SlurmdTimeout``; schedulers look at jobs at once.
CONFIGURATION = """
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
CryptoType=crypto/munge
SlurmctldPort={port}
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin={task}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters={select}
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=30
SlurmdTimeout=10
InactiveLimit=0
KillWait=5
MinJobAge=300
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
"""

#: Keeps jobs within the memory that they asked for.
LIMITS = """
CgroupPlugin=cgroup/{version}
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace=yes
"""

NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=2000 State=UNKNOWN\n"  # fmt: skip

#: What each of the programs comes with on Debian.
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")


def reason_not() -> str:
    """Why there can be no Slurm here; empty if there can."""
    if os.geteuid() != 0:
        return "a private Slurm needs root"
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    return f"not installed: {', '.join(missing)} (apt-get install slurm-wlm munge)" if missing else ""


@dataclass
class Slurm:
    """Nodes ``n1``, ``n2``...; use as a context.

    Args:
        folder: With a short path: sockets have 108 characters at most.
        with_memory: Jobs get the memory that they ask for and no more, by control groups.
    """

    folder: Path
    n_nodes: int = 3
    cpus: int = 2
    with_memory: bool = False
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def environ(self) -> dict[str, str]:
        """What tells Slurm's commands where it is."""
        # See `millrace.launch.launch_commands.build_launcher_environ`; for an srun that a test types itself.
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "SLURM_PMIX_FENCE": "tree"}

    def __enter__(self) -> Slurm:
        folder, names = self.folder, [f"n{number}" for number in range(1, self.n_nodes + 1)]
        for name in (
            "state",
            "log",
            "run",
            *(f"{kind}/{name}" for name in names for kind in ("spool", "etc", "pmix")),
        ):
            (folder / name).mkdir(parents=True)
        for each in (folder, folder / "run"):
            each.chmod(0o711)  # munge insists
        key = folder / "run" / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        subprocess.run(
            ["munged", f"--socket={folder}/run/munge.sock", f"--key-file={key}", f"--pid-file={folder}/run/munged.pid",
             f"--log-file={folder}/log/munged.log", f"--seed-file={folder}/run/munged.seed"], check=True,
        )  # fmt: skip
        ports = self._stack.enter_context(taken(self.n_nodes + 1))
        host = socket.gethostname().partition(".")[0]
        task, select = ("task/cgroup", "CR_Core_Memory") if self.with_memory else ("task/none", "CR_Core")
        text = CONFIGURATION.format(folder=folder, host=host, port=ports[0], task=task, select=select)
        for name, port in zip(names, ports[1:], strict=True):
            text += NODE.format(name=name, host=host, port=port, cpus=self.cpus)
        shared = f"Nodes=n[1-{self.n_nodes}] MaxTime=INFINITE State=UP OverSubscribe=NO"
        text += f"PartitionName=main {shared} Default=YES PriorityTier=1 GraceTime=300\n"
        text += f"PartitionName=urgent {shared} PriorityTier=2\n"  # its jobs take the nodes of others
        (folder / "slurm.conf").write_text(text)
        limits = LIMITS.format(version="v1" if Path("/sys/fs/cgroup/memory").exists() else "v2")
        for name in names:
            (folder / "etc" / name / "slurm.conf").write_text(text)
            if self.with_memory:
                (folder / "etc" / name / "cgroup.conf").write_text(limits)
            # The PMIx servers of several nodes on one machine would meet in one folder.
            (folder / "etc" / name / "mpi.conf").write_text(f"PMIxCliTmpDirBase={folder}/pmix/{name}\n")
        subprocess.run(["slurmctld", "-c"], env=self.environ, check=True, capture_output=True)
        for name in names:
            self.start(name)
        self.wait(lambda: self.states().count("idle") == self.n_nodes, "nodes that are idle")
        return self

    def __exit__(self, *_: object) -> None:
        self.command("scancel", "--user=root")
        with contextlib.suppress(AssertionError):
            self.wait(lambda: not self.command("squeue", "--noheader"), "an empty queue")
        daemons = [int(path.read_text()) for path in self.folder.glob("run/*.pid")]
        for pid in daemons:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        self.wait(lambda: not any(str(self.folder).encode() in read(pid, "environ") for pid in daemons), "end")
        self._stack.close()

    def command(self, *words: str) -> str:
        """What a command of Slurm's says."""
        done = subprocess.run(words, env=self.environ, capture_output=True, text=True, check=False, timeout=300)
        return (done.stdout + done.stderr).strip()

    def states(self) -> list[str]:
        """The state of each node."""
        return self.command("sinfo", "--noheader", "--partition=main", "--Node", "--format=%t").split()

    def state(self, job: str) -> str:
        """The state of a job, such as ``RUNNING``."""
        words = dict(word.split("=", 1) for word in self.command("scontrol", "show", "job", job).split() if "=" in word)
        return words.get("JobState", "")

    def logs(self) -> str:
        """The last words of each daemon."""
        paths = sorted(self.folder.glob("log/slurm*.log"))
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-3000:]}" for path in paths)

    def start(self, name: str) -> None:
        """Start a node's daemon."""
        environ = {**self.environ, "SLURM_CONF": str(self.folder / "etc" / name / "slurm.conf")}
        subprocess.run(["slurmd", "-N", name], env=environ, check=True, capture_output=True)

    def restart(self, name: str) -> None:
        """Start a node's daemon again, and wait until a job ran there: the node may count as idle until it is noticed that it was gone."""
        self.start(name)
        words = ["timeout", "60", "srun", "--immediate=5", "-N1", "-n1", "-w", name, "true"]
        self.wait(
            lambda: not subprocess.run(words, env=self.environ, check=False, capture_output=True).returncode,
            f"job on {name}",
        )

    def kill(self, name: str) -> None:
        """Lose a node: all that Slurm has started on it is gone at one moment.

        They are stopped first. Killed one by one, those that are left act: an ``srun`` whose other process is gone kills
        its step on all nodes, and a guard its run.
        """
        stopped: set[int] = set()
        while running := self._find_processes(name) - stopped:
            send_signal(running, signal.SIGSTOP)
            stopped |= running
        send_signal(stopped, signal.SIGKILL)

    def _find_processes(self, name: str) -> set[int]:
        """The daemon of a node, the tasks, and the daemons of their steps."""
        daemon = int((self.folder / "run" / f"slurmd-{name}.pid").read_text())
        tasks = {pid for pid in everybody() if self._is_at(name, environment(pid))}
        parents = {parent(pid) for pid in tasks}
        return {daemon, *tasks, *(pid for pid in parents if read(pid, "comm").startswith(b"slurmstepd"))}

    def _is_at(self, name: str, environ: dict[bytes, bytes]) -> bool:
        """Whether a process with this environment was started at a node of this Slurm; others have nodes of the same names."""
        is_ours = environ.get(b"SLURM_CONF", b"").startswith(f"{self.folder}/".encode())
        return is_ours and environ.get(b"SLURMD_NODENAME") == name.encode()

    def wait(self, condition, what: str, seconds: float = 300.0) -> None:  # type: ignore[no-untyped-def]
        """Wait for a condition, at most so long."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"no {what}: {self.command('sinfo')}\n{self.command('squeue')}"
            time.sleep(0.05)


def send_signal(processes: set[int], number: signal.Signals) -> None:
    """Send a signal to all of them that are left."""
    for pid in processes:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def everybody() -> list[int]:
    """All processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
