"""Mode of a run directory: readable by users who may read all inputs, databases and outputs, within the umask.
The journal holds the results, which repeat parts of the inputs and of the database entries that were found. A user who
may not read one of these files must not read its content in the journal.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from millrace.plan.plan import Plan
from millrace.tools.base import NUL

#: Bits of the mode of a folder for its owner, its group and others.
OWN, GROUP, OTHERS = 0o700, 0o050, 0o005


def folder_mode(plan: Plan) -> int:
    """Return the mode with which the run directory is made."""
    group = group_of_new(plan.run_dir.parent)
    return _of_inputs(plan, group) & _of_databases(plan, group) & _of_outputs(plan, group)


def _of_inputs(plan: Plan, group: int) -> int:
    mode = OWN | GROUP | OTHERS
    for item in plan.use.inputs:
        if item.path == "-":
            mode &= _of_file("/proc/self/fd/0", group)
        for name in item.path.split(NUL) if item.path != "-" else ():
            mode &= _of_file(str(plan.command.seen.cwd / name), group)
    return mode


def _of_databases(plan: Plan, group: int) -> int:
    """Return the access that all local databases grant; copies of those behind URLs belong to this user in any case."""
    view, mode = plan.command.view, OWN | GROUP | OTHERS
    here = [plan.command.cwd / path for path in plan.use.databases if not (view and view.file(path))]
    real = [Path(os.path.realpath(path)) for path in here if path.is_file()]
    mode &= allowed(((about.st_mode, about.st_gid) for about in map(os.stat, real)), group)
    for folder in {path.parent for path in real}:  # many volumes lie in few folders
        mode &= _of_folder(folder, group)
    return mode


def _of_outputs(plan: Plan, group: int) -> int:
    """Return the access that existing outputs and the folders of missing ones grant; pipes and devices do not count."""
    mode = OWN | GROUP | OTHERS
    for output in plan.use.outputs:
        path = "/proc/self/fd/1" if output.path == "-" else str(plan.command.cwd / (output.to or output.path))
        if os.path.isfile(path):
            mode &= _of_file(path, group)
        elif not os.path.exists(path):
            mode &= _of_folder(Path(path).parent, group)
    return mode


def _of_file(path: str, group: int) -> int:
    """Return the access that a file and all folders above it grant."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        about = os.stat(real)
    except OSError:
        return OWN
    if not stat.S_ISREG(about.st_mode):
        return OWN  # only this process reads a pipe
    return allowed([(about.st_mode, about.st_gid)], group) & _of_folder(real.parent, group)


def _of_folder(path: Path, group: int) -> int:
    """Return the access that a folder and all above it grant; those that do not exist yet do not count."""
    real, mode = Path(os.path.realpath(path)), OWN | GROUP | OTHERS
    for folder in (real, *real.parents):
        with suppress(OSError):
            about = os.stat(folder)
            mode &= allowed([(about.st_mode, about.st_gid)], group)
    return mode


def allowed(seen: Iterable[tuple[int, int]], group: int) -> int:
    """Return the access for members of ``group`` and others that each (mode, group) of a file and its folders grants.

    >>> oct(allowed([(0o100640, 7), (0o40755, 0)], 7)), oct(allowed([(0o100640, 7), (0o40755, 0)], 8))
    ('0o750', '0o700')
    >>> oct(allowed([(0o100644, 7), (0o40700, 7)], 7))
    '0o700'
    """
    granted = OWN | GROUP | OTHERS
    for mode, owner in seen:
        wanted = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
        # To a file of another group, members of ours are others.
        if not (mode >> 3 if owner == group else mode) & wanted:
            granted &= ~GROUP
        if not mode & wanted:
            granted &= ~OTHERS
    return granted


def group_of_new(folder: Path) -> int:
    """Return the group of files that this process makes in ``folder``."""
    try:
        about = os.stat(folder)
    except OSError:
        return os.getegid()
    return about.st_gid if about.st_mode & stat.S_ISGID else os.getegid()
