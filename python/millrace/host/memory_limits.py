"""Limits on the memory that this process and its tools may use: machine and control group."""

from __future__ import annotations

import os
from pathlib import Path

#: Value for "no limit"; an unset limit of cgroup v1 is the largest number of pages, which is above it.
NO_LIMIT = 1 << 60


def read_usable_memory(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> tuple[int, str]:
    """Return the bytes of memory, page cache included, and the source of the limit: machine or control group.

    >>> read_usable_memory()[0] > 0
    True
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(
        (machine, "memory of this machine"), (read_cgroup_memory_limit(proc, root), "memory limit of the control group")
    )


def read_available_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the bytes of the machine's memory that are free or can be freed at once; 0: unknown."""
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def read_cgroup_memory_limit(proc: Path, root: Path) -> int:
    """Return the least memory limit of this group and those above it; ``NO_LIMIT``: there is none (cgroup v2, v1)."""
    limits = [_read_group_limit(group, "memory.max" if unified else "memory.limit_in_bytes")
              for group, unified in list_memory_groups(proc, root)]  # fmt: skip
    return min(limits, default=NO_LIMIT)


def find_oom_kill_counter(
    proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup"), vmstat: Path = Path("/proc/vmstat")
) -> tuple[str, bool] | None:
    """Find the file in which the kernel counts the processes that it kills for lack of memory.

    Returns:
        A file with a line ``oom_kill N``, and whether it counts only processes of our control group; None: no file
        counts them.
    """
    found = list_memory_groups(proc, root)
    for group, unified in found:
        if _has_oom_kill_counter(file := group / ("memory.events" if unified else "memory.oom_control")):
            # Version 1 counts a group without its sub-groups, version 2 with them. In version 1 the root group holds
            # all processes that are in no other group.
            own = group == found[0][0] if unified else len(found) > 1
            return str(file), own
    return (str(vmstat), False) if _has_oom_kill_counter(vmstat) else None


def list_memory_groups(proc: Path, root: Path) -> list[tuple[Path, bool]]:
    """List the control groups of this process that account for memory, innermost first: (folder, is version 2).

    In a container the innermost group may appear as the last folder, the root of the mount.
    """
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            found.append((group, not controllers))
            if group == base:
                break
        if controllers:
            return found[-len(folder.relative_to(base).parts) - 1 :]  # version 2 does not account for memory then
    return found


def _has_oom_kill_counter(file: Path) -> bool:
    try:
        return any(line.startswith("oom_kill ") for line in file.read_text().splitlines())
    except OSError:
        return False


def _read_group_limit(group: Path, name: str) -> int:
    try:
        return int((group / name).read_text())
    except (OSError, ValueError):
        return NO_LIMIT  # no such file at the root, or "max"
