"""The command lines that start ranks on nodes, and commands on one node. Starts nothing but questions for a version.

The launcher must be of the same MPI as the library that mpi4py loads; else it starts so many worlds of one rank. So the
library is asked first, and a launcher of its kind is looked for.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from millrace.errors import RefusedError
from millrace.launch import sweep
from millrace.launch.allocation import Allocation
from millrace.own_python import python_command
from millrace.plan.slurm import het_group
from millrace.storage import launcher_folder

Kind = Literal["openmpi", "hydra", "srun"]

#: Environment variable with the program that starts ranks, where the one that is found is not the right one.
MPIRUN = "MILLRACE_MPIRUN"

#: Environment variable with the remote shell, options included.
RSH = "MILLRACE_RSH"

#: A question for a password would wait for ever; a node that is gone answers nothing.
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=5"

#: Open MPI starts nothing for root unless it is told so twice.
ALLOW_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

#: Where the daemons of Open MPI 5 and 4 keep their files.
FOLDERS = ("PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_orte_tmpdir_base")

#: Nodes whose names are looked up, to learn over what they are reached.
MAX_RESOLVED = 64

#: Programs that may start ranks of a kind, best first, and what they call themselves.
PROGRAMS: dict[Kind, tuple[tuple[str, ...], str]] = {
    "openmpi": (("mpirun", "mpirun.openmpi", "mpiexec.openmpi", "orterun"), r"Open MPI|OpenRTE"),
    "hydra": (("mpiexec.hydra", "mpirun", "mpiexec", "mpirun.mpich"), r"HYDRA|Intel\(R\) MPI"),
    "srun": (("srun",), r"slurm"),
}

#: Variables that belong to the session or the job that we are in, not to the user's work.
OWN = re.compile(r"(OMPI_|PRTE_|PMIX_|OPAL_|PMI_|SLURM_|SLURMD_|PBS_|SSH_|XDG_|DBUS_|BASH_FUNC_).*|_|PWD|OLDPWD|SHLVL|HOSTNAME|TERM|DISPLAY|TMPDIR|LS_COLORS")  # fmt: skip


class Launcher(msgspec.Struct, frozen=True):
    """A program that starts ranks."""

    kind: Kind
    program: str
    #: Kind of the library that the ranks load, in the library's words.
    library: str
    #: PMI plugin of ``srun``; empty for others.
    plugin: str = ""


def choose_for(allocation: Allocation, environ: Mapping[str, str]) -> Launcher:
    """A launcher of ranks on the nodes; a single one, of Slurm's, needs no MPI.

    Raises:
        RefusedError: There is none.
    """
    if len(allocation.nodes) == 1 and allocation.kind == "slurm":
        return Launcher("srun", shutil.which("srun") or "srun", "", "none")
    return choose(environ, library_version())


def choose(environ: Mapping[str, str], library: str) -> Launcher:
    """A launcher of the MPI that calls itself ``library``.

    Raises:
        RefusedError: There is none.
    """
    kind: Kind = "openmpi" if "Open MPI" in library else "hydra"
    names, itself = PROGRAMS[kind]
    if asked := environ.get(MPIRUN):
        names = (asked,)
    # The venv's own comes first, as mpi4py looks for its library there first.
    path = os.pathsep.join([str(Path(sys.prefix) / "bin"), environ.get("PATH", os.defpath)])
    seen = []
    for name in names:
        program = shutil.which(name, path=path)
        if program:
            said = output([program, "--version"])
            if re.search(itself, said):
                return Launcher(kind, program, library)
            seen.append(
                f"{program} is of another: {said.strip().splitlines()[0] if said.strip() else 'it says nothing'}"
            )
    if "SLURM_JOB_ID" in environ and not asked and (program := shutil.which("srun", path=path)):
        plugin = srun_plugin(kind, output([program, "--mpi=list"]))
        if plugin:
            return Launcher("srun", program, library, plugin)
        seen.append("Slurm's srun has no plugin for it")
    detail = "".join(f"\n  {line}" for line in seen)
    raise RefusedError(
        f"no mpirun for the MPI library that this Python loads ({library}){detail}",
        f"put that library's mpirun on PATH (module load?), or name it with {MPIRUN}=/path/to/mpirun",
    )


def srun_plugin(kind: Kind, said: str) -> str:
    """The plugin with which ``srun`` starts ranks of a library; empty if it has none."""
    wanted = ("pmix",) if kind == "openmpi" else ("cray_shasta", "pmi2")
    return next((name for name in wanted if re.search(rf"\b{name}\b", said)), "")


def library_version() -> str:
    """What the MPI library that mpi4py loads calls itself. Asked in another process: this one stays free of MPI.

    Raises:
        RefusedError: There is no MPI.
    """
    code = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
    asked = subprocess.run(python_command("-c", code), capture_output=True, text=True, check=False)
    if asked.returncode:
        raise RefusedError(
            "several nodes need MPI, and this Python has none: "
            + (asked.stderr.strip().splitlines() or ["mpi4py cannot be loaded"])[-1],
            "pip install 'millrace[mpi]' brings one; with your site's MPI: pip install mpi4py, and load its module\n"
            "(on one node of a Slurm job, without MPI: srun -N1 -n1 millrace run ...)",
        )
    return asked.stdout.strip("\0\n ").splitlines()[0]


def output(command: Sequence[str]) -> str:
    """All that a command says; empty if it cannot be started."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def _qrsh(environ: Mapping[str, str]) -> str:
    """Grid Engine's remote shell: a job's ``PATH`` need not have it."""
    own = Path(environ.get("SGE_BINARY_PATH", "/"), "qrsh")
    return shutil.which("qrsh", path=environ.get("PATH")) or str(own)


def ranks(
    launcher: Launcher, allocation: Allocation, nodes: Sequence[str], words: Sequence[str], *, cwd: Path, forward: Sequence[str]
) -> list[str]:  # fmt: skip
    """The command that starts ``words`` once on each of ``nodes``.

    Args:
        forward: Names of environment variables that the ranks are to have as this process has them.
    """
    n = str(len(nodes))
    if launcher.kind == "srun":
        return [
            launcher.program, f"--mpi={launcher.plugin}", f"--nodelist={','.join(nodes)}", f"--nodes={n}", f"--ntasks={n}",
            "--ntasks-per-node=1", "--overlap", "--no-kill", "--kill-on-bad-exit=1", "--cpu-bind=none", f"--chdir={cwd}", *words,
        ]  # fmt: skip
    if launcher.kind == "hydra":
        # Variables of this process go to all ranks by themselves.
        return [
            launcher.program,
            "-hosts",
            ",".join(nodes),
            "-ppn",
            "1",
            "-n",
            n,
            "-bind-to",
            "none",
            "-wdir",
            str(cwd),
            *words,
        ]
    # Steps of a Slurm job have the variables already.
    given = [] if allocation.kind == "slurm" else [word for name in forward for word in ("-x", name)]
    hosts = ",".join(f"{node}:1" for node in nodes)
    return [
        launcher.program, "--host", hosts, "--map-by", "ppr:1:node", "--bind-to", "none", "-n", n, "--wdir", str(cwd), *given, *words
    ]  # fmt: skip


def spare_family(nodes: Sequence[str]) -> str:
    """The family of addresses, 6 or 4, that is not needed as all nodes have one of the other; empty: nobody knows."""
    families: list[set[socket.AddressFamily]] = []
    for node in nodes[:MAX_RESOLVED]:
        try:
            found = socket.getaddrinfo(node.rpartition("@")[2], None, proto=socket.IPPROTO_TCP)
        except OSError:
            return ""
        families.append({each[0] for each in found})
    common = set.intersection(*families) if families else set()
    return "6" if socket.AF_INET in common else "4" if socket.AF_INET6 in common else ""


def environ_of_ranks(
    environ: Mapping[str, str], token: str, launcher: Launcher, folder: Path, nodes: Sequence[str] = ()
) -> dict[str, str]:
    """The environment of the launcher: the user's, and what makes launchers fit for many starts.

    Args:
        folder: That of this start for the launcher's files, see `millrace.storage.launcher_folder`.
        nodes: Where the ranks are to be.
    """
    made = dict(environ)
    made[sweep.NAME] = token
    # Daemons keep their files where a sweep finds them; and have the token in their arguments.
    defaults = dict.fromkeys(FOLDERS, str(folder))
    if launcher.kind == "openmpi" and not any(name in environ for name in FOLDERS):
        made[launcher_folder.VARIABLE] = str(folder)
    shell = environ.get(RSH) or SSH
    defaults |= {"PRTE_MCA_plm_ssh_agent": shell, "OMPI_MCA_plm_rsh_agent": shell}
    if environ.get(RSH):
        defaults |= {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": shell}
    # The steps of a lost node keep their cores for minutes; a new start must not wait for them.
    defaults["SLURM_OVERLAP"] = "1"
    # Slurm's PMIx plugin uses two kinds of fence by default, and may let a process out of one too early: Open MPI then gets
    # a message in the middle of MPI_Init and crashes (https://github.com/open-mpi/ompi/issues/12495).
    defaults["SLURM_PMIX_FENCE"] = "tree"
    if launcher.kind == "openmpi" and (family := spare_family(nodes)):
        # Of a node with IPv4 and IPv6, and one with IPv4 alone, Open MPI says that they do not reach each other.
        defaults |= {"OMPI_MCA_btl_tcp_disable_family": family}
    if os.geteuid() == 0:
        # A container's only user, as a rule.
        defaults |= ALLOW_ROOT
    return defaults | made


def forwarded(environ: Mapping[str, str]) -> list[str]:
    """Names of the variables that the user's work may depend on."""
    return sorted(name for name in environ if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and not OWN.fullmatch(name))


def on_node(allocation: Allocation, node: str, words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command that runs ``words`` on one node, with our standard input."""
    if allocation.kind == "slurm":
        part = het_group(environ, node)
        return [
            "srun", *([] if part is None else [f"--het-group={part}"]), "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--mpi=none",
            "--cpu-bind=none", "--quiet", "--chdir=/", *words,
        ]  # fmt: skip
    if allocation.kind == "grid engine" and RSH not in environ:
        return [_qrsh(environ), "-inherit", node, shlex.join(words)]
    if allocation.kind == "lsf" and RSH not in environ:
        return ["blaunch", node, *words]
    if allocation.kind == "pbs" and RSH not in environ and shutil.which("pbs_tmrsh"):
        return ["pbs_tmrsh", node, *words]
    return [*shlex.split(environ.get(RSH) or SSH), node, shlex.join(words)]
