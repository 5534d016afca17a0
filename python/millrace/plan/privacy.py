"""Who may look into a run directory: whoever may read all inputs, and nobody else. The umask takes more away."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from millrace.plan.plan import Plan
from millrace.tools.base import NUL

#: The owner's, a group's and everybody's part of the mode of a folder.
OWN, GROUP, OTHERS = 0o700, 0o050, 0o005


def folder_mode(plan: Plan) -> int:
    """The mode with which the run directory is made: it holds parts of the inputs, and what becomes of them."""
    group = group_of_new(plan.run_dir.parent)
    mode = OWN | GROUP | OTHERS
    for item in plan.use.inputs:
        if item.path == "-":
            mode &= _of_file("/proc/self/fd/0", group)
        for name in item.path.split(NUL) if item.path != "-" else ():
            mode &= _of_file(str(plan.command.seen.cwd / name), group)
    return mode


def _of_file(path: str, group: int) -> int:
    """What a file allows, and all folders on the way to it."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        seen = [os.stat(real), *(os.stat(folder) for folder in real.parents)]
    except OSError:
        return OWN
    if not stat.S_ISREG(seen[0].st_mode):
        return OWN  # a pipe is read by us alone
    return allowed(((about.st_mode, about.st_gid) for about in seen), group)


def allowed(seen: Iterable[tuple[int, int]], group: int) -> int:
    """What (mode, group) of a file and of the folders on the way to it grant, for a folder of ``group``.

    >>> oct(allowed([(0o100640, 7), (0o40755, 0)], 7)), oct(allowed([(0o100640, 7), (0o40755, 0)], 8))
    ('0o750', '0o700')
    >>> oct(allowed([(0o100644, 7), (0o40700, 7)], 7))
    '0o700'
    """
    granted = OWN | GROUP | OTHERS
    for mode, owner in seen:
        wanted = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
        # Members of another group are strangers to it.
        if not (mode >> 3 if owner == group else mode) & wanted:
            granted &= ~GROUP
        if not mode & wanted:
            granted &= ~OTHERS
    return granted


def group_of_new(folder: Path) -> int:
    """The group of what this process makes in ``folder``."""
    try:
        about = os.stat(folder)
    except OSError:
        return os.getegid()
    return about.st_gid if about.st_mode & stat.S_ISGID else os.getegid()
