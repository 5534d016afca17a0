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

from millrace.planning.run_plan import RunPlan

#: Bits of the mode of a folder for its owner, its group and others.
OWN, GROUP, OTHERS = 0o700, 0o050, 0o005


def compute_run_dir_mode(plan: RunPlan) -> int:
    """Return the mode with which the run directory is made."""
    group = find_new_file_group(plan.run_dir.parent)
    return (
        _compute_input_access(plan, group) & _compute_database_access(plan, group) & _compute_output_access(plan, group)
    )


def _compute_input_access(plan: RunPlan, group: int) -> int:
    mode = OWN | GROUP | OTHERS
    for item in plan.use.inputs:
        if item.path == "-":
            mode &= _compute_file_access("/proc/self/fd/0", group)
        for name in item.paths if item.path != "-" else ():
            mode &= _compute_file_access(str(plan.command.resolved_command.cwd / name), group)
    return mode


def _compute_database_access(plan: RunPlan, group: int) -> int:
    """Return the access that all local databases grant; copies of those behind URLs belong to this user in any case."""
    view, mode = plan.command.view, OWN | GROUP | OTHERS
    here = [plan.command.cwd / path for path in plan.use.databases if not (view and view.find_file(path))]
    real = [Path(os.path.realpath(path)) for path in here if path.is_file()]
    mode &= compute_common_access(((about.st_mode, about.st_gid) for about in map(os.stat, real)), group)
    for folder in {path.parent for path in real}:  # many volumes lie in few folders
        mode &= _compute_folder_access(folder, group)
    return mode


def _compute_output_access(plan: RunPlan, group: int) -> int:
    """Return the access that existing outputs and the folders of missing ones grant; pipes and devices do not count."""
    mode = OWN | GROUP | OTHERS
    for output in plan.use.outputs:
        path = "/proc/self/fd/1" if output.path == "-" else str(plan.command.cwd / (output.to or output.path))
        if os.path.isfile(path):
            mode &= _compute_file_access(path, group)
        elif not os.path.exists(path):
            mode &= _compute_folder_access(Path(path).parent, group)
    return mode


def _compute_file_access(path: str, group: int) -> int:
    """Return the access that a file and all folders above it grant."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        about = os.stat(real)
    except OSError:
        return OWN
    if not stat.S_ISREG(about.st_mode):
        return OWN  # only this process reads a pipe
    return compute_common_access([(about.st_mode, about.st_gid)], group) & _compute_folder_access(real.parent, group)


def _compute_folder_access(path: Path, group: int) -> int:
    """Return the access that a folder and all above it grant; those that do not exist yet do not count."""
    real, mode = Path(os.path.realpath(path)), OWN | GROUP | OTHERS
    for folder in (real, *real.parents):
        with suppress(OSError):
            about = os.stat(folder)
            mode &= compute_common_access([(about.st_mode, about.st_gid)], group)
    return mode


def compute_common_access(seen: Iterable[tuple[int, int]], group: int) -> int:
    """Return the access for members of ``group`` and others that each (mode, group) of a file and its folders grants.

    >>> oct(compute_common_access([(0o100640, 7), (0o40755, 0)], 7)), oct(compute_common_access([(0o100640, 7), (0o40755, 0)], 8))
    ('0o750', '0o700')
    >>> oct(compute_common_access([(0o100644, 7), (0o40700, 7)], 7))
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


def find_new_file_group(folder: Path) -> int:
    """Return the group of files that this process makes in ``folder``."""
    try:
        about = os.stat(folder)
    except OSError:
        return os.getegid()
    return about.st_gid if about.st_mode & stat.S_ISGID else os.getegid()
