"""Cores of this machine that a batch system has allocated, from its environment variables. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from millrace.plan.slurm import expand_node_list, is_user_step, list_het_groups, parse_node_counts

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
