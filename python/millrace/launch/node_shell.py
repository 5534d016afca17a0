"""``python -m millrace.launch.node_shell NODE COMMAND...``: a replacement of ``ssh`` by the batch system's own command.

Launchers reach nodes by a remote shell, but not by every batch system, nor the components of a heterogeneous Slurm job.
"""

from __future__ import annotations

import os

from millrace.host.python_launch import make_python_command, move_user_modules_last

if __name__ == "__main__":
    move_user_modules_last(os.environ)  # before anything is imported that may be there, too

import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace.host.core_allocation import list_het_groups
from millrace.launch import launch_commands, sweep
from millrace.launch.node_allocation import SUPERVISED, NodeAllocation, find_node_allocation


def is_node_shell_needed(allocation: NodeAllocation, environ: Mapping[str, str]) -> bool:
    """Tell whether launchers reach the nodes by this replacement only."""
    if launch_commands.RSH in environ:
        return False
    return allocation.kind in ("grid engine", "lsf") or (allocation.kind == "slurm" and bool(list_het_groups(environ)))


def build_node_shell_environ(kind: launch_commands.Kind, folder: Path) -> dict[str, str]:
    """Build the environment that makes a launcher start its daemons by this replacement.

    Daemons of Open MPI stay children of processes that the batch system watches, and all are started from this node:
    other nodes may not start any.

    Args:
        folder: Gets a script, as the launcher of MPICH takes the name of one file.
    """
    shell = shlex.join(make_python_command("-m", "millrace.launch.node_shell"))
    if kind == "hydra":
        script = folder / "node-shell"
        script.write_text(f'#!/bin/sh\nexec {shell} "$@"\n')
        script.chmod(0o700)
        return {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(script)}
    return {
        "PRTE_MCA_plm": "ssh", "OMPI_MCA_plm": "rsh", "PRTE_MCA_plm_ssh_agent": shell, "OMPI_MCA_plm_rsh_agent": shell,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1", "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1", "OMPI_MCA_orte_leave_session_attached": "1",
        # With these modules the launcher would use only the hosts that it finds by itself.
        "PRTE_MCA_ras": "^slurm,gridengine,lsf", "OMPI_MCA_ras": "^slurm,gridengine,lsf",
    }  # fmt: skip


#: Shell code that runs a line from its standard input on a host of Grid Engine. A task that ends by a signal ends the whole
#: job, so this shell, without the token of the run, outlives a sweep; warning signals are for the job script alone.
IN_GRID_ENGINE = "trap : USR1 USR2; read -r line; (trap '' USR1 USR2; eval \"$line\") || exit 1"


def split_shell_words(words: Sequence[str]) -> tuple[str, str]:
    """Split the arguments of ``ssh`` into the node and the line of shell code for it.

    >>> split_shell_words(["-x", "n2", "cd", "/;", "true"])
    ('n2', 'cd /; true')
    """
    at = next(number for number, word in enumerate(words) if not word.startswith("-"))
    return words[at], " ".join(words[at + 1 :])


def run_on_node(allocation: NodeAllocation, node: str, line: str, environ: Mapping[str, str]) -> int:
    """Run a line of shell code on a node; return its exit code. Outside Grid Engine this process becomes the command.

    Raises:
        OSError: The batch system's command cannot be started.
    """
    if allocation.kind != "grid engine":
        found = launch_commands.build_node_command(allocation, node, ["/bin/sh", "-c", line], environ)
        os.execvp(found[0], found)
    kept = {name: value for name, value in environ.items() if name != sweep.NAME}
    words = launch_commands.build_node_command(allocation, node, ["/bin/sh", "-c", IN_GRID_ENGINE], environ)
    return subprocess.run(words, input=f"{line}\n".encode(), env=kept, start_new_session=True, check=False).returncode


def main() -> int:
    """Run the command in the arguments on its node; return the exit code."""
    node, line = split_shell_words(sys.argv[1:])
    environ = {name: value for name, value in os.environ.items() if name != SUPERVISED}
    allocation = find_node_allocation((), environ)
    if allocation is None:
        sys.exit("millrace.launch.node_shell: not in a job of several nodes")
    try:
        return run_on_node(allocation, node, line, environ)
    except OSError as error:
        sys.exit(f"millrace.launch.node_shell: {node}: cannot be reached: {error.strerror}")


if __name__ == "__main__":
    sys.exit(main())
