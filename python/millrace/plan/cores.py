"""Limits on the cores that this process may use: affinity, control group, batch system."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from millrace.plan.granted import find_granted_cores


def release_cpu_binding(launcher: int | None) -> None:
    """Give this process the CPU affinity of its launcher, in place of the few cores to which ``mpirun`` binds it.

    The binding is made for processes that compute; ours starts the tools. Limits of a batch system stay.

    Args:
        launcher: Process id of the launcher on this machine; None: there is none.
    """
    if launcher is not None:
        with suppress(OSError):
            os.sched_setaffinity(0, os.sched_getaffinity(launcher))


def count_usable_cores(environ: Mapping[str, str]) -> tuple[int, str]:
    """Return the cores that this process may use, and the reason: the least of affinity, cgroup quota and grant."""
    found = [(len(os.sched_getaffinity(0)), "cores of this machine that the process may use")]
    quota = read_cgroup_quota()
    if quota is not None:
        found.append((max(1, math.floor(quota + 0.01)), "CPU quota of the control group"))
    if grant := find_granted_cores(environ, os.uname().nodename, read_batch_file):
        found.append(grant)
    return choose_least_limit(found)


def choose_least_limit(found: Sequence[tuple[int, str]]) -> tuple[int, str]:
    """Return the least of several limits with its reason; of equal ones the last, which is the most specific.

    >>> choose_least_limit([(16, "cores of this machine"), (2, "granted by Slurm")])
    (2, 'granted by Slurm; of 16 cores of this machine')
    """
    n, why = min(reversed(found), key=lambda each: each[0])
    machine, what = found[0]
    return (n, f"{why}; of {machine} {what}") if n < machine else (n, why)


def read_batch_file(path: str) -> str:
    """Read a file that a batch system names; empty if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def read_cgroup_quota(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the least CPU quota, in cores, of this control group and those above it; None: no quota.

    Reads ``cpu.max`` of cgroup v2 and ``cpu.cfs_*_us`` of v1.
    """
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = (
            root
            if not controllers
            else next((root / name for name in ("cpu", "cpu,cpuacct") if (root / name).is_dir()), root)
        )
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            quotas.append(_read_group_quota(group))
            if group == base:
                break
    return min((quota for quota in quotas if quota is not None), default=None)


def _read_group_quota(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except ValueError:
        return None  # "max"
