"""Which nodes this process may use: those that the user names, or those of the batch job that it is in."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from millrace.errors import RefusedError
from millrace.plan import cores, granted
from millrace.plan.slurm import expand, het_groups, is_users_step

#: Set for the processes that a supervisor starts, which do not supervise again: to its patience with this start.
SUPERVISED = "MILLRACE_SUPERVISED"

#: Set for the same: the key of this start, with which the ranks seal what they say to each other. It stands in no arguments,
#: and each rank takes it out of its environment before it starts anything.
KEY = "MILLRACE_KEY"

#: Set for ranks of a job in phases: the phase that they are to do.
PHASE = "MILLRACE_PHASE"


class Allocation(msgspec.Struct, frozen=True):
    """Nodes, and who gave them."""

    kind: Literal["hosts", "slurm", "pbs", "grid engine", "lsf"]
    #: Names by which the nodes can be reached, each once, in the order given.
    nodes: tuple[str, ...]

    @property
    def words(self) -> str:
        """Where the nodes come from, for messages."""
        return {
            "hosts": "--hosts",
            "slurm": "the Slurm job",
            "pbs": "the PBS job",
            "grid engine": "the Grid Engine job",
            "lsf": "the LSF job",
        }[self.kind]


def find(hosts: Sequence[str], environ: Mapping[str, str]) -> Allocation | None:
    """The nodes to spread a run over; None if it is to stay in this process.

    Args:
        hosts: Nodes that the user names, as in `parse_hosts`; they beat any job that we are in.

    Raises:
        RefusedError: The job's list of nodes cannot be understood.
    """
    if environ.get(SUPERVISED):
        return None
    if hosts:
        return Allocation("hosts", tuple(dict.fromkeys(name for text in hosts for name in parse_hosts(text))))
    if granted.is_hyperqueue_task(environ):
        return None  # it has cores of one machine, whatever job that is in
    for kind, nodes in _GRANTED.items():
        if names := nodes(environ):
            found = Allocation(kind, names)
            return found if len(names) > 1 or _is_elsewhere(found, environ) else None
    return None


def _is_elsewhere(allocation: Allocation, environ: Mapping[str, str]) -> bool:
    """Whether this process is on none of the nodes: ``salloc`` starts its shell where it was typed."""
    if allocation.kind != "slurm" or is_users_step(environ):
        return False
    here = environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    return here not in allocation.nodes


def slurm_nodes(environ: Mapping[str, str]) -> str:
    """Slurm's list of the nodes that we may use, packed; empty outside a job.

    A step that the user started with ``srun`` keeps to the nodes of that step.
    """
    if "SLURM_JOB_ID" not in environ:
        return ""
    if is_users_step(environ):
        return environ.get("SLURM_STEP_NODELIST", "")
    return ",".join(het_groups(environ)) or environ.get("SLURM_JOB_NODELIST", "")


def pbs_nodes(path: Path) -> tuple[str, ...]:
    """The nodes of a PBS job: its file names each as often as it gave cores there.

    Raises:
        RefusedError: The file cannot be read.
    """
    try:
        lines = path.read_text().split()
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}", "PBS_NODEFILE names no file that can be read") from error
    return tuple(dict.fromkeys(lines))


def _pbs(environ: Mapping[str, str]) -> tuple[str, ...]:
    path = environ.get("PBS_NODEFILE")
    return pbs_nodes(Path(path)) if path and "PBS_JOBID" in environ else ()


#: The nodes that each kind of batch system has granted, if this process is in a job of it.
_GRANTED: dict[Literal["slurm", "pbs", "grid engine", "lsf"], Callable[[Mapping[str, str]], tuple[str, ...]]] = {
    "slurm": lambda environ: tuple(expand(slurm_nodes(environ))),
    "pbs": _pbs,
    "grid engine": lambda environ: tuple(
        granted.on_grid_engine_hosts(environ, cores.read) if "JOB_ID" in environ else ()
    ),
    "lsf": lambda environ: tuple(granted.on_lsf_hosts(environ, cores.read) if "LSB_JOBID" in environ else ()),
}


def parse_hosts(text: str) -> tuple[str, ...]:
    """The names in ``a,b,c`` or ``n[1-8]``.

    Raises:
        RefusedError: There is none, or one that is no host name.
    """
    names = tuple(expand(text))
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._:@-]*", name):
            raise RefusedError(f"--hosts {text}: {name!r} is not the name of a host", "as in: --hosts node1,node2")
    if not names:
        raise RefusedError("--hosts: no host is named", "as in: --hosts node1,node2")
    return names
