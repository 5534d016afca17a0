"""``python -m millrace.launch.node_shell NODE COMMAND...``: takes the place of ``ssh`` where a batch system starts processes.

Launchers know how to reach nodes by a remote shell, but not each batch system, nor the parts of a heterogeneous Slurm job.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace.launch import command, sweep
from millrace.launch.allocation import SUPERVISED, Allocation, find
from millrace.plan.slurm import het_groups


def is_needed(allocation: Allocation, environ: Mapping[str, str]) -> bool:
    """Whether launchers reach the nodes by this alone."""
    if command.RSH in environ:
        return False
    return allocation.kind in ("grid engine", "lsf") or (allocation.kind == "slurm" and bool(het_groups(environ)))


def environ_of_launcher(kind: command.Kind, folder: Path) -> dict[str, str]:
    """Make a launcher start its daemons by this.

    Those of Open MPI stay children of what the batch system watches, and all are started from here: other nodes may not
    start any.

    Args:
        folder: For a script, as the launcher of MPICH takes the name of a file.
    """
    shell = f"{sys.executable} -P -m millrace.launch.node_shell"
    if kind == "hydra":
        script = folder / "node-shell"
        script.write_text(f'#!/bin/sh\nexec {shell} "$@"\n')
        script.chmod(0o700)
        return {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(script)}
    return {
        "PRTE_MCA_plm": "ssh", "OMPI_MCA_plm": "rsh", "PRTE_MCA_plm_ssh_agent": shell, "OMPI_MCA_plm_rsh_agent": shell,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1", "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1", "OMPI_MCA_orte_leave_session_attached": "1",
        # They would take the hosts that they know of for all there are.
        "PRTE_MCA_ras": "^slurm,gridengine,lsf", "OMPI_MCA_ras": "^slurm,gridengine,lsf",
    }  # fmt: skip


#: What a host of Grid Engine runs for a line of shell on its standard input. A task of a job that ends by a signal ends the
#: job, so a shell stays around what may be swept, without the token of the run; warnings are for the job script alone.
IN_GRID_ENGINE = "trap : USR1 USR2; read -r line; (trap '' USR1 USR2; eval \"$line\") || exit 1"


def split_words(words: Sequence[str]) -> tuple[str, str]:
    """The node, and the line of shell for it, in the words that ``ssh`` would get.

    >>> split_words(["-x", "n2", "cd", "/;", "true"])
    ('n2', 'cd /; true')
    """
    at = next(number for number, word in enumerate(words) if not word.startswith("-"))
    return words[at], " ".join(words[at + 1 :])


def run_on_node(allocation: Allocation, node: str, line: str, environ: Mapping[str, str]) -> int:
    """Run a line of shell on a node; its exit code.

    Raises:
        OSError: The batch system's command cannot be started.
    """
    if allocation.kind != "grid engine":
        found = command.on_node(allocation, node, ["/bin/sh", "-c", line], environ)
        os.execvp(found[0], found)
    kept = {name: value for name, value in environ.items() if name != sweep.NAME}
    words = command.on_node(allocation, node, ["/bin/sh", "-c", IN_GRID_ENGINE], environ)
    return subprocess.run(words, input=f"{line}\n".encode(), env=kept, start_new_session=True, check=False).returncode


def main() -> int:
    """Run on the node what the arguments say; the exit code."""
    node, line = split_words(sys.argv[1:])
    environ = {name: value for name, value in os.environ.items() if name != SUPERVISED}
    allocation = find((), environ)
    if allocation is None:
        sys.exit("millrace.launch.node_shell: not in a job of several nodes")
    try:
        return run_on_node(allocation, node, line, environ)
    except OSError as error:
        sys.exit(f"millrace.launch.node_shell: {node}: cannot be reached: {error.strerror}")


if __name__ == "__main__":
    sys.exit(main())
