"""How much memory this process and its tools may use."""

from __future__ import annotations

import os
from pathlib import Path

#: Limits above this mean that there is none: an unset limit of cgroup v1 is the largest number of pages.
NO_LIMIT = 1 << 60


def usable(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> tuple[int, str]:
    """Bytes of memory, page cache included, and where the limit is from: the machine or a control group.

    >>> usable()[0] > 0
    True
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min((machine, "memory of this machine"), (cgroup_limit(proc, root), "memory limit of the control group"))


def available(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes of the machine's memory that are free, or could be at once."""
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def cgroup_limit(proc: Path, root: Path) -> int:
    """The least memory limit of this group and those above it; `NO_LIMIT` where there is none (cgroup v2 and v1)."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return NO_LIMIT
    limits = [NO_LIMIT]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            limits.append(_group_limit(group, "memory.limit_in_bytes" if controllers else "memory.max"))
            if group == base:
                break
    return min(limits)


def _group_limit(group: Path, name: str) -> int:
    try:
        return int((group / name).read_text())
    except (OSError, ValueError):
        return NO_LIMIT  # no such file at the root, or "max"
