"""Programs that run a script or program named in their arguments, such as shells: never asked for their version."""

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

#: Their names, without version numbers.
INTERPRETERS = frozenset(_NAMES.split())


def is_interpreter(name: str) -> bool:
    """Tell whether a program of this name runs a script or program named in its arguments.

    >>> [is_interpreter(name) for name in ("sh", "python3.11", "perl5.36-x86_64-linux-gnu", "blastp", "samtools")]
    [True, True, True, False, False]
    """
    return name in INTERPRETERS or re.sub(r"[-.0-9].*", "", name) in INTERPRETERS


def can_run_scripts(exe: Path) -> bool:
    """Tell whether a program is an interpreter, by its name or by that of the target of its links."""
    return is_interpreter(exe.name) or is_interpreter(os.path.basename(os.path.realpath(exe)))
