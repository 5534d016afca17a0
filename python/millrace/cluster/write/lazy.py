"""Filesystems on which two machines must not write one file at the same time."""

from __future__ import annotations

from millrace.cluster.journal_visibility import is_lazy_filesystem
from millrace.errors import RefusedError
from millrace.plan.plan import RunPlan


def refuse_lazy_filesystem(plan: RunPlan, way: str) -> None:
    """Refuse a strategy by which machines write one file at the same time.

    Raises:
        RefusedError: The run directory is on a lazy filesystem (``is_lazy_filesystem``).
    """
    if is_lazy_filesystem(plan.run_dir):
        raise RefusedError(
            f"--write {way}: {plan.run_dir} is on a network filesystem on which two machines that write side by side "
            "may undo each other's bytes",
            "use --write merge, which lets one machine write at a time there",
        )
