"""The nodes that this process may use: those that the user names, or those of its batch job."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from millrace.core.errors import RefusedError
from millrace.host import core_allocation
from millrace.host.core_allocation import expand_node_list, is_user_step, list_het_groups

#: Environment variable set by a supervisor for its ranks, which do not supervise again: its patience with this start.
SUPERVISED = "MILLRACE_SUPERVISED"

#: The same: the key of this start, with which the ranks seal their messages. It appears in no arguments, and each rank
#: removes it from its environment before it starts a process.
KEY = "MILLRACE_KEY"

#: The same for ranks of a job in phases: ``NAME:MACHINE``, the phase to run and the architecture of the supervisor.
PHASE = "MILLRACE_PHASE"


class NodeAllocation(msgspec.Struct, frozen=True):
    """The nodes of a job, and the batch system or option that they come from."""

    kind: Literal["hosts", "slurm", "pbs", "grid engine", "lsf"]
    #: Names by which the nodes can be reached, each once, in order.
    nodes: tuple[str, ...]

    @property
    def words(self) -> str:
        """The origin of the nodes, for messages."""
        return {
            "hosts": "--hosts",
            "slurm": "the Slurm job",
            "pbs": "the PBS job",
            "grid engine": "the Grid Engine job",
            "lsf": "the LSF job",
        }[self.kind]


def find_node_allocation(hosts: Sequence[str], environ: Mapping[str, str]) -> NodeAllocation | None:
    """Find the nodes to spread a run over; None: the run stays in this process.

    Args:
        hosts: Nodes that the user names, as in ``parse_hosts``; they take precedence over a batch job.

    Raises:
        RefusedError: The job's list of nodes cannot be parsed.
    """
    if environ.get(SUPERVISED):
        return None
    if hosts:
        return NodeAllocation("hosts", tuple(dict.fromkeys(name for text in hosts for name in parse_hosts(text))))
    if core_allocation.is_hyperqueue_task(environ):
        return None  # it has cores of one machine, whatever job its worker runs in
    for kind, nodes in _GRANTED.items():
        if names := nodes(environ):
            found = NodeAllocation(kind, names)
            return found if len(names) > 1 or _is_outside_allocation(found, environ) else None
    return None


def _is_outside_allocation(allocation: NodeAllocation, environ: Mapping[str, str]) -> bool:
    """Tell whether this process is on none of the nodes: ``salloc`` starts its shell on the submitting host."""
    if allocation.kind != "slurm" or is_user_step(environ):
        return False
    here = environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    return here not in allocation.nodes


def get_slurm_nodelist(environ: Mapping[str, str]) -> str:
    """Return Slurm's list of the nodes that this process may use, in its bracket form; empty outside a job.

    Inside a step that the user started with ``srun``: the nodes of that step.
    """
    if "SLURM_JOB_ID" not in environ:
        return ""
    if is_user_step(environ):
        return environ.get("SLURM_STEP_NODELIST", "")
    return ",".join(list_het_groups(environ)) or environ.get("SLURM_JOB_NODELIST", "")


def read_pbs_nodefile(path: Path) -> tuple[str, ...]:
    """Read the nodes of a PBS job, each once: its file names a node once for each core.

    Raises:
        RefusedError: The file cannot be read.
    """
    try:
        lines = path.read_text().split()
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}", "PBS_NODEFILE names no file that can be read") from error
    return tuple(dict.fromkeys(lines))


def _find_pbs_nodes(environ: Mapping[str, str]) -> tuple[str, ...]:
    path = environ.get("PBS_NODEFILE")
    return read_pbs_nodefile(Path(path)) if path and "PBS_JOBID" in environ else ()


#: Functions that return the nodes granted by each batch system; none outside a job of it.
_GRANTED: dict[Literal["slurm", "pbs", "grid engine", "lsf"], Callable[[Mapping[str, str]], tuple[str, ...]]] = {
    "slurm": lambda environ: tuple(expand_node_list(get_slurm_nodelist(environ))),
    "pbs": _find_pbs_nodes,
    "grid engine": lambda environ: tuple(
        core_allocation.read_grid_engine_hosts(environ, core_allocation.read_batch_file) if "JOB_ID" in environ else ()
    ),
    "lsf": lambda environ: tuple(
        core_allocation.read_lsf_hosts(environ, core_allocation.read_batch_file) if "LSB_JOBID" in environ else ()
    ),
}


def parse_hosts(text: str) -> tuple[str, ...]:
    """Parse host names as in ``a,b,c`` or ``n[1-8]``.

    Raises:
        RefusedError: There is none, or one is no host name.
    """
    names = tuple(expand_node_list(text))
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._:@-]*", name):
            raise RefusedError(f"--hosts {text}: {name!r} is not the name of a host", "as in: --hosts node1,node2")
    if not names:
        raise RefusedError("--hosts: no host is named", "as in: --hosts node1,node2")
    return names
