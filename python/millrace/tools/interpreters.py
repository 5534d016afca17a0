"""Programs that run what their arguments name. A word that asks another program for its version starts a script here."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NAMES = (
    "sh ash bash dash ksh mksh rbash zsh fish csh tcsh busybox toybox python pypy perl ruby node nodejs deno bun lua luajit php R "
    "Rscript julia java groovy scala kotlin tclsh wish expect awk gawk mawk nawk sed ed ex vi vim emacs guile racket sbcl clisp ghc "
    "runghc ocaml go cargo make cmake ninja gdb env sudo su doas runuser setpriv nice ionice nohup timeout stdbuf taskset numactl "
    "setsid chrt chroot unshare nsenter flock xargs find parallel watch time ssh srun mpirun mpiexec docker podman apptainer "
    "singularity git"
)

#: Without the version in their names.
INTERPRETERS = frozenset(_NAMES.split())


def is_interpreter(name: str) -> bool:
    """Tell whether a program runs what its arguments name, given its name.

    >>> [is_interpreter(name) for name in ("sh", "python3.11", "perl5.36-x86_64-linux-gnu", "blastp", "samtools")]
    [True, True, True, False, False]
    """
    return name in INTERPRETERS or re.sub(r"[-.0-9].*", "", name) in INTERPRETERS


def runs_scripts(exe: Path) -> bool:
    """Tell whether a program is an interpreter by its own name, or by that of the file to which its links lead."""
    return is_interpreter(exe.name) or is_interpreter(os.path.basename(os.path.realpath(exe)))
