"""The command lines that start ranks on nodes, and commands on one node; the environment that a launcher sets for ranks.

The launcher must belong to the MPI library that mpi4py loads; else every rank is a job of its own. So the version of
the library is queried first, and a launcher of that MPI is searched. Nothing else is run here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from millrace.core.errors import RefusedError
from millrace.host import work_places
from millrace.host.core_allocation import find_het_group
from millrace.host.python_launch import make_python_command
from millrace.launch import sweep
from millrace.launch.node_allocation import NodeAllocation

#: Prefixes of variables that describe the job to an MPI library.
OF_MPI = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "OPAL_", "HYDRA_", "HYDI_", "MPIR_", "MPICH_", "MPIEXEC_", "MV2_")


def remove_mpi_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` without the variables of the MPI job, which a tool that uses MPI would try to join."""
    kept = {name: value for name, value in environ.items() if not name.startswith(OF_MPI)}
    prefixes = {environ[name] for name in ("OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX") if environ.get(name)}
    if (paths := kept.get("LD_LIBRARY_PATH")) and prefixes:
        # mpirun prepends its own folders.
        mine = {f"{prefix}/{folder}" for prefix in prefixes for folder in ("lib", "lib64")}
        left = [path for path in paths.split(":") if path.rstrip("/") not in mine]
        if any(left):
            kept["LD_LIBRARY_PATH"] = ":".join(left)
        else:
            del kept["LD_LIBRARY_PATH"]
    return kept


#: Programs that start the processes of an MPI job on a machine, as the kernel names them.
LAUNCHER_PROCESSES = ("prted", "prterun", "orted", "orterun", "mpirun", "mpiexec", "hydra_pmi_proxy", "pmi_proxy")


def find_launcher_process(started: int | None = None) -> int | None:
    """Find the launcher among the ancestors of process ``started`` (None: this one); None: no known launcher."""
    ancestor = os.getpid() if started is None else started
    try:
        while (ancestor := int(Path(f"/proc/{ancestor}/stat").read_text().rpartition(")")[2].split()[1])) > 1:
            if Path(f"/proc/{ancestor}/comm").read_text().strip() in LAUNCHER_PROCESSES:
                return ancestor
    except OSError:
        pass
    return None


def is_stdin_garbled(environ: Mapping[str, str]) -> bool:
    """Tell whether standard input is forwarded by the mpirun of Open MPI 5.

    It repeats some parts many times, and never closes the pipe (https://github.com/openpmix/prrte/issues/2579).
    """
    if not environ.get("OMPI_VERSION", "").startswith("5."):
        return False
    try:
        ours = os.readlink("/proc/self/fd/0")
        folder = f"/proc/{find_launcher_process()}/fd"
        return ours.startswith("pipe:") and any(os.readlink(f"{folder}/{name}") == ours for name in os.listdir(folder))
    except OSError:
        return False


Kind = Literal["openmpi", "hydra", "srun"]

#: Environment variable with the program that starts ranks; takes precedence over the search.
MPIRUN = "MILLRACE_MPIRUN"

#: Environment variable with the remote shell, options included.
RSH = "MILLRACE_RSH"

#: The default remote shell: a password prompt would wait for ever, and a lost node never answers.
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=5"

#: Open MPI refuses to run as root unless both are set.
ALLOW_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

#: Variables for the folder in which the daemons of Open MPI 5 and 4 keep their files.
FOLDERS = ("PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_orte_tmpdir_base")

#: Most nodes whose names are resolved, to find the address families by which they are reached.
MAX_RESOLVED_NODES = 64

#: Programs that may start ranks of a kind, best first, and a pattern for their version text.
PROGRAMS: dict[Kind, tuple[tuple[str, ...], str]] = {
    "openmpi": (("mpirun", "mpirun.openmpi", "mpiexec.openmpi", "orterun"), r"Open MPI|OpenRTE"),
    "hydra": (("mpiexec.hydra", "mpirun", "mpiexec", "mpirun.mpich"), r"HYDRA|Intel\(R\) MPI"),
    "srun": (("srun",), r"slurm"),
}

#: Variables of the session or the batch job, on which the user's work does not depend.
OWN = re.compile(r"(OMPI_|PRTE_|PMIX_|OPAL_|PMI_|SLURM_|SLURMD_|PBS_|SSH_|XDG_|DBUS_|BASH_FUNC_).*|_|PWD|OLDPWD|SHLVL|HOSTNAME|TERM|DISPLAY|TMPDIR|LS_COLORS")  # fmt: skip


class RankLauncher(msgspec.Struct, frozen=True):
    """A program that starts ranks."""

    kind: Kind
    program: str
    #: Version text of the MPI library that the ranks load.
    library: str
    #: PMI plugin of ``srun``; empty for others.
    plugin: str = ""


def choose_launcher_for_nodes(allocation: NodeAllocation, environ: Mapping[str, str]) -> RankLauncher:
    """Choose a launcher for ranks on the nodes; a single node of Slurm needs no MPI.

    Raises:
        RefusedError: There is none.
    """
    if len(allocation.nodes) == 1 and allocation.kind == "slurm":
        return RankLauncher("srun", shutil.which("srun") or "srun", "", "none")
    return choose_mpi_launcher(environ, query_mpi_library_version())


def choose_mpi_launcher(environ: Mapping[str, str], library: str) -> RankLauncher:
    """Choose a launcher of the MPI with the version text ``library``.

    Raises:
        RefusedError: There is none.
    """
    kind: Kind = "openmpi" if "Open MPI" in library else "hydra"
    names, itself = PROGRAMS[kind]
    if asked := environ.get(MPIRUN):
        names = (asked,)
    # That of the venv comes first, as mpi4py searches its library there first.
    path = os.pathsep.join([str(Path(sys.prefix) / "bin"), environ.get("PATH", os.defpath)])
    seen = []
    for name in names:
        program = shutil.which(name, path=path)
        if program:
            said = capture_command_output([program, "--version"])
            if re.search(itself, said):
                return RankLauncher(kind, program, library)
            seen.append(
                f"{program} is of another: {said.strip().splitlines()[0] if said.strip() else 'it says nothing'}"
            )
    if "SLURM_JOB_ID" in environ and not asked and (program := shutil.which("srun", path=path)):
        plugin = find_srun_plugin(kind, capture_command_output([program, "--mpi=list"]))
        if plugin:
            return RankLauncher("srun", program, library, plugin)
        seen.append("Slurm's srun has no plugin for it")
    detail = "".join(f"\n  {line}" for line in seen)
    raise RefusedError(
        f"no mpirun for the MPI library that this Python loads ({library}){detail}",
        f"put that library's mpirun on PATH (module load?), or name it with {MPIRUN}=/path/to/mpirun",
    )


def find_srun_plugin(kind: Kind, said: str) -> str:
    """Find the plugin with which ``srun`` starts ranks of a library, in its list of plugins; empty if it has none."""
    wanted = ("pmix",) if kind == "openmpi" else ("cray_shasta", "pmi2")
    return next((name for name in wanted if re.search(rf"\b{name}\b", said)), "")


def query_mpi_library_version() -> str:
    """Query the version text of the MPI library that mpi4py loads. Another process does: this one loads no MPI.

    Raises:
        RefusedError: There is no MPI.
    """
    code = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
    asked = subprocess.run(make_python_command("-c", code), capture_output=True, text=True, check=False)
    if asked.returncode:
        raise RefusedError(
            "several nodes need MPI, and this Python has none: "
            + (asked.stderr.strip().splitlines() or ["mpi4py cannot be loaded"])[-1],
            "pip install 'millrace[mpi]' brings one; with your site's MPI: pip install mpi4py, and load its module\n"
            "(on one node of a Slurm job, without MPI: srun -N1 -n1 millrace run ...)",
        )
    return asked.stdout.strip("\0\n ").splitlines()[0]


def capture_command_output(command: Sequence[str]) -> str:
    """Run a command; return its stdout and stderr as text, empty if it cannot be started or takes over 60 s."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def _find_qrsh(environ: Mapping[str, str]) -> str:
    """Find Grid Engine's remote shell, which may not be on a job's ``PATH``."""
    own = Path(environ.get("SGE_BINARY_PATH", "/"), "qrsh")
    return shutil.which("qrsh", path=environ.get("PATH")) or str(own)


def build_ranks_command(
    launcher: RankLauncher, allocation: NodeAllocation, nodes: Sequence[str], words: Sequence[str], *, cwd: Path, forward: Sequence[str]
) -> list[str]:  # fmt: skip
    """Build the command that starts ``words`` once on each of ``nodes``.

    Args:
        forward: Names of the environment variables that the launcher passes to the ranks.
    """
    n = str(len(nodes))
    if launcher.kind == "srun":
        return [
            launcher.program, f"--mpi={launcher.plugin}", f"--nodelist={','.join(nodes)}", f"--nodes={n}", f"--ntasks={n}",
            "--ntasks-per-node=1", "--overlap", "--no-kill", "--kill-on-bad-exit=1", "--cpu-bind=none", f"--chdir={cwd}", *words,
        ]  # fmt: skip
    if launcher.kind == "hydra":
        # Hydra passes all variables of this process to the ranks.
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


def find_spare_address_family(nodes: Sequence[str]) -> str:
    """Find the address family, 6 or 4, that is not needed as all nodes have the other one; empty: unknown."""
    import socket  # a run on one machine does without

    families: list[set[socket.AddressFamily]] = []
    for node in nodes[:MAX_RESOLVED_NODES]:
        try:
            found = socket.getaddrinfo(node.rpartition("@")[2], None, proto=socket.IPPROTO_TCP)
        except OSError:
            return ""
        families.append({each[0] for each in found})
    common = set.intersection(*families) if families else set()
    return "6" if socket.AF_INET in common else "4" if socket.AF_INET6 in common else ""


def build_launcher_environ(
    environ: Mapping[str, str], token: str, launcher: RankLauncher, folder: Path, nodes: Sequence[str] = ()
) -> dict[str, str]:
    """Build the environment of the launcher: the user's, and settings that make restarts possible.

    Args:
        folder: Folder of this start for the launcher's files, see ``millrace.host.work_places``.
        nodes: The nodes of the ranks.
    """
    made = dict(environ)
    made[sweep.NAME] = token
    # Daemons keep their files where a sweep finds them, and so have the token in their arguments.
    defaults = dict.fromkeys(FOLDERS, str(folder))
    if launcher.kind == "openmpi" and not any(name in environ for name in FOLDERS):
        made[work_places.LAUNCHER_VARIABLE] = str(folder)
    shell = environ.get(RSH) or SSH
    defaults |= {"PRTE_MCA_plm_ssh_agent": shell, "OMPI_MCA_plm_rsh_agent": shell}
    if environ.get(RSH):
        defaults |= {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": shell}
    # Steps on a lost node keep their cores for minutes; a new start must not wait for them.
    defaults["SLURM_OVERLAP"] = "1"
    # Slurm's PMIx plugin uses two kinds of fence by default, and may let a process out of one too early: Open MPI then gets
    # a message in the middle of MPI_Init and crashes (https://github.com/open-mpi/ompi/issues/12495).
    defaults["SLURM_PMIX_FENCE"] = "tree"
    if launcher.kind == "openmpi" and (family := find_spare_address_family(nodes)):
        # Open MPI reports a node with IPv4 and IPv6 and one with IPv4 alone as unreachable from each other.
        defaults |= {"OMPI_MCA_btl_tcp_disable_family": family}
    if os.geteuid() == 0:
        # Usually the only user of a container.
        defaults |= ALLOW_ROOT
    return defaults | made


def list_forwarded_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the environment variables that the user's work may depend on, sorted."""
    return sorted(name for name in environ if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and not OWN.fullmatch(name))


def build_node_command(
    allocation: NodeAllocation, node: str, words: Sequence[str], environ: Mapping[str, str]
) -> list[str]:
    """Build the command that runs ``words`` on one node, with the standard input of this process."""
    if allocation.kind == "slurm":
        part = find_het_group(environ, node)
        return [
            "srun", *([] if part is None else [f"--het-group={part}"]), "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--mpi=none",
            "--cpu-bind=none", "--quiet", "--chdir=/", *words,
        ]  # fmt: skip
    if allocation.kind == "grid engine" and RSH not in environ:
        return [_find_qrsh(environ), "-inherit", node, shlex.join(words)]
    if allocation.kind == "lsf" and RSH not in environ:
        return ["blaunch", node, *words]
    if allocation.kind == "pbs" and RSH not in environ and shutil.which("pbs_tmrsh"):
        return ["pbs_tmrsh", node, *words]
    return [*shlex.split(environ.get(RSH) or SSH), node, shlex.join(words)]
