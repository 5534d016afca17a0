"""Cores that this process may use: affinity, control group, and what a batch system has allocated; its rank in a job.

Allocations are read from the environment variables of the batch systems, in their packed forms. The heartbeat needs the
rank before any slow import: this module imports little.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from millrace.core.errors import RefusedError


class LaunchedProcess(NamedTuple):
    """This process as one of ``size`` that ``launcher`` started."""

    launcher: str
    rank: int
    size: int


#: (launcher, variables of rank and size). The first whose variables are set counts: ``mpirun`` inside ``srun`` leaves
#: those of both, and the inner one comes first here.
LAUNCHERS = (
    ("mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpirun (MVAPICH)", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("a launcher of MPICH's kind", "PMI_RANK", "PMI_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def find_launched_process(environ: Mapping[str, str]) -> LaunchedProcess | None:
    """Find the rank and size of this process; None: no launcher started it."""
    for launcher, rank, size in LAUNCHERS:
        if launcher == "srun" and "SLURM_STEP_ID" not in environ:
            continue  # a batch script, which is no step
        if environ.get(rank, "").isdigit() and environ.get(size, "").isdigit():
            return LaunchedProcess(launcher, int(environ[rank]), int(environ[size]))
    return None


#: Steps below this number are a user's ``srun``; Slurm keeps those above for itself (batch script, interactive shell).
_FIRST_OF_SLURM = 0xFFFF_FFF0


def is_user_step(environ: Mapping[str, str]) -> bool:
    """Tell whether this process is in a step that was started with ``srun``."""
    step = environ.get("SLURM_STEP_ID", "")
    return step.isdigit() and int(step) < _FIRST_OF_SLURM


def list_het_groups(environ: Mapping[str, str]) -> list[str]:
    """Return the packed node lists of the components of a heterogeneous job, by number; empty: it has none.

    >>> list_het_groups({"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]"})
    ['n1', 'n[2-3]']
    """
    n = int(environ.get("SLURM_HET_SIZE", "0") or 0)
    return [environ.get(f"SLURM_JOB_NODELIST_HET_GROUP_{group}", "") for group in range(n)]


def find_het_group(environ: Mapping[str, str], node: str) -> int | None:
    """Return the number of the component of a heterogeneous job with ``node``; None: there is none."""
    return next(
        (number for number, text in enumerate(list_het_groups(environ)) if node in expand_node_list(text)), None
    )


def parse_node_counts(text: str) -> list[int]:
    """Return the number for each node from a packed list; empty if it cannot be parsed.

    >>> parse_node_counts("4(x2),2"), parse_node_counts("16"), parse_node_counts("?")
    ([4, 4, 2], [16], [])
    """
    found: list[int] = []
    for part in text.split(","):
        matched = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if not matched:
            return []
        found += [int(matched[1])] * int(matched[2] or 1)
    return found


def expand_node_list(text: str) -> Iterator[str]:
    """Yield the names in a packed node list.

    >>> list(expand_node_list("login,n[1-3,08-10],r[1-2]c[1,3]"))
    ['login', 'n1', 'n2', 'n3', 'n08', 'n09', 'n10', 'r1c1', 'r1c3', 'r2c1', 'r2c3']

    Raises:
        RefusedError: It is not such a list.
    """
    # A comma within brackets belongs to them.
    for part in re.findall(r"(?:\[[^\]]*\]|[^,\[\]])+", text):
        yield from _expand_node_range(part)


def _expand_node_range(text: str) -> Iterator[str]:
    before, bracket, rest = text.partition("[")
    if not bracket:
        yield before
        return
    ranges, _, after = rest.partition("]")
    for each in ranges.split(","):
        matched = re.fullmatch(r"(\d+)(?:-(\d+))?", each)
        if not matched:
            raise RefusedError(f"{text}: not a list of nodes as Slurm writes it", "name the nodes with --hosts")
        first, last = matched[1], matched[2] or matched[1]
        for number in range(int(first), int(last) + 1):
            for tail in _expand_node_range(after):
                yield f"{before}{number:0{len(first)}}{tail}"


#: Variable that a supervisor sets for its processes: cores of each node, which batch systems tell only the first node.
GRANTED = "MILLRACE_GRANTED"

#: Reads a file that the batch system names; empty if it cannot be read.
ReadBatchFile = Callable[[str], str]


def find_granted_cores(environ: Mapping[str, str], host: str, read: ReadBatchFile) -> tuple[int, str] | None:
    """Return the cores granted on this machine, and the source in words; None: no batch system is found.

    Args:
        host: Name of this machine.
    """
    # A node's name in Slurm may differ from its host name.
    host = environ.get("SLURMD_NODENAME") or host
    # HyperQueue's workers run in jobs of the others.
    for find in (
        _read_inherited_grant,
        _read_hyperqueue_grant,
        _read_slurm_grant,
        _read_pbs_grant,
        _read_grid_engine_grant,
        _read_lsf_grant,
    ):
        found = find(environ, host, read)
        if found and found[0] > 0:
            return found
    return None


def make_grant_variable(environ: Mapping[str, str], read: ReadBatchFile) -> dict[str, str]:
    """Return the variable, by name, that tells processes on all nodes of a job their cores; empty: none is known."""
    cores = (
        _read_slurm_nodes(environ)
        or _read_pbs_nodes(environ, read)
        or read_grid_engine_hosts(environ, read)
        or read_lsf_hosts(environ, read)
    )
    return {GRANTED: " ".join(f"{name}={n}" for name, n in cores.items())} if cores else {}


def _read_slurm_nodes(environ: Mapping[str, str]) -> dict[str, int]:
    parts = [
        (nodes, environ.get(f"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_{group}", ""))
        for group, nodes in enumerate(list_het_groups(environ))
    ]
    parts = parts or [(environ.get("SLURM_JOB_NODELIST", ""), environ.get("SLURM_JOB_CPUS_PER_NODE", ""))]
    return {
        node: n
        for nodes, cores in parts
        for node, n in zip(expand_node_list(nodes), parse_node_counts(cores), strict=False)
    }


def _read_pbs_nodes(environ: Mapping[str, str], read: ReadBatchFile) -> dict[str, int]:
    """Return the cores of each node of a PBS job.

    Torque names a node once for each core. PBS Pro does so for each MPI process, and has the cores of a chunk in
    ``NCPUS``, unless these are its threads: the larger number is never more than was granted.
    """
    path, least = environ.get("PBS_NODEFILE"), _read_number(environ, "NCPUS")
    return {name: max(times, least) for name, times in Counter(read(path).split()).items()} if path else {}


def _read_inherited_grant(environ: Mapping[str, str], host: str, _: ReadBatchFile) -> tuple[int, str] | None:
    pairs = (word.rpartition("=")[::2] for word in environ.get(GRANTED, "").split())
    n = _find_host_cores({name: int(n) for name, n in pairs if n.isdigit()}, host)
    return (n, "granted by the batch system") if n else None


def _read_slurm_grant(environ: Mapping[str, str], host: str, _: ReadBatchFile) -> tuple[int, str] | None:
    if is_user_step(environ) and (found := _read_slurm_step(environ)):
        return found
    if cores := _read_slurm_nodes(environ):
        return _find_host_cores(cores, host) or min(cores.values()), "granted by Slurm: SLURM_JOB_CPUS_PER_NODE"
    for name in ("SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK"):
        if n := _read_number(environ, name):
            return n, f"granted by Slurm: {name}"
    return None


def _read_slurm_step(environ: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the cores on this node of a step that the user has started, for all of its processes."""
    found = []
    if n := _read_number(environ, "SLURM_CPUS_ON_NODE"):
        found.append((n, "granted by Slurm: SLURM_CPUS_ON_NODE"))
    tasks = parse_node_counts(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    at = environ.get("SLURM_NODEID", "")
    here = tasks[int(at)] if at.isdigit() and int(at) < len(tasks) else 1
    if n := _read_number(environ, "SLURM_CPUS_PER_TASK"):
        found.append((n * here, "granted by Slurm: SLURM_CPUS_PER_TASK"))
    return min(found, default=None)


def _read_pbs_grant(environ: Mapping[str, str], host: str, read: ReadBatchFile) -> tuple[int, str] | None:
    if n := _find_host_cores(_read_pbs_nodes(environ, read), host):
        return n, "granted by PBS: PBS_NODEFILE" + (", NCPUS" if n == _read_number(environ, "NCPUS") else "")
    for name in ("NCPUS", "PBS_NUM_PPN", "PBS_NP"):
        if n := _read_number(environ, name):
            return n, f"granted by PBS: {name}"
    return None


def read_grid_engine_hosts(environ: Mapping[str, str], read: ReadBatchFile) -> dict[str, int]:
    """Return the slots on each host of a job in a parallel environment, the master's first; empty: it is in none."""
    path = environ.get("PE_HOSTFILE")
    found: Counter[str] = Counter()
    for words in (line.split() for line in (read(path) if path else "").splitlines()):
        if len(words) > 1 and words[1].isdigit():
            found[words[0]] += int(words[1])  # a line for each queue
    return dict(found)


def _read_grid_engine_grant(environ: Mapping[str, str], host: str, read: ReadBatchFile) -> tuple[int, str] | None:
    if slots := read_grid_engine_hosts(environ, read):
        return _find_host_cores(slots, host) or min(slots.values()), "granted by Grid Engine: PE_HOSTFILE"
    n = _read_number(environ, "NSLOTS")
    return (n, "granted by Grid Engine: NSLOTS") if n else None


def read_lsf_hosts(environ: Mapping[str, str], read: ReadBatchFile) -> dict[str, int]:
    """Return the slots on each host of an LSF job, the first host's first; empty: it is in none."""
    words = environ.get("LSB_MCPU_HOSTS", "").split()
    if words:
        return {name: int(n) for name, n in zip(words[::2], words[1::2], strict=False) if n.isdigit()}
    path = environ.get("LSB_DJOB_HOSTFILE")
    return dict(Counter(read(path).split())) if path else {}


def _read_lsf_grant(environ: Mapping[str, str], host: str, read: ReadBatchFile) -> tuple[int, str] | None:
    if slots := read_lsf_hosts(environ, read):
        name = "LSB_MCPU_HOSTS" if environ.get("LSB_MCPU_HOSTS") else "LSB_DJOB_HOSTFILE"
        return _find_host_cores(slots, host) or min(slots.values()), f"granted by LSF: {name}"
    n = _read_number(environ, "LSB_DJOB_NUMPROC")
    return (n, "granted by LSF: LSB_DJOB_NUMPROC") if n else None


def is_hyperqueue_task(environ: Mapping[str, str]) -> bool:
    """Tell whether this process is a task of HyperQueue."""
    return "HQ_TASK_ID" in environ


def _read_hyperqueue_grant(environ: Mapping[str, str], _: str, __: ReadBatchFile) -> tuple[int, str] | None:
    cpus = [word for word in environ.get("HQ_CPUS", "").split(",") if word] if is_hyperqueue_task(environ) else []
    return (len(cpus), "granted by HyperQueue: HQ_CPUS") if cpus else None


def _find_host_cores(cores: Mapping[str, int], host: str) -> int:
    """Return the cores of ``host``, named with or without its domain; 0: it is not listed."""
    if host in cores:
        return cores[host]
    short = host.partition(".")[0]
    return next((n for name, n in cores.items() if name.partition(".")[0] == short), 0)


def _read_number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() else 0


def release_cpu_binding(launcher: int | None) -> None:
    """Give this process the CPU affinity of its launcher, in place of the few cores to which ``mpirun`` binds it.

    The binding is made for processes that compute; ours starts the tools. Limits of a batch system stay.

    Args:
        launcher: Process id of the launcher on this machine; None: there is none.
    """
    if launcher is not None:
        with suppress(OSError):
            os.sched_setaffinity(0, os.sched_getaffinity(launcher))


def count_usable_cores(environ: Mapping[str, str]) -> tuple[int, str]:
    """Return the cores that this process may use, and the reason: the least of affinity, cgroup quota and grant."""
    found = [(len(os.sched_getaffinity(0)), "cores of this machine that the process may use")]
    quota = read_cgroup_quota()
    if quota is not None:
        found.append((max(1, math.floor(quota + 0.01)), "CPU quota of the control group"))
    if grant := find_granted_cores(environ, os.uname().nodename, read_batch_file):
        found.append(grant)
    return choose_least_limit(found)


def choose_least_limit(found: Sequence[tuple[int, str]]) -> tuple[int, str]:
    """Return the least of several limits with its reason; of equal ones the last, which is the most specific.

    >>> choose_least_limit([(16, "cores of this machine"), (2, "granted by Slurm")])
    (2, 'granted by Slurm; of 16 cores of this machine')
    """
    n, why = min(reversed(found), key=lambda each: each[0])
    machine, what = found[0]
    return (n, f"{why}; of {machine} {what}") if n < machine else (n, why)


def read_batch_file(path: str) -> str:
    """Read a file that a batch system names; empty if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def read_cgroup_quota(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the least CPU quota, in cores, of this control group and those above it; None: no quota.

    Reads ``cpu.max`` of cgroup v2 and ``cpu.cfs_*_us`` of v1.
    """
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = (
            root
            if not controllers
            else next((root / name for name in ("cpu", "cpu,cpuacct") if (root / name).is_dir()), root)
        )
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            quotas.append(_read_group_quota(group))
            if group == base:
                break
    return min((quota for quota in quotas if quota is not None), default=None)


def _read_group_quota(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except ValueError:
        return None  # "max"
