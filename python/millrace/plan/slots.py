"""Number of slots, and threads of each."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from millrace.job import JobSpec
from millrace.model import ToolUse
from millrace.plan import cores
from millrace.words import format_count


def count_slots(job: JobSpec, use: ToolUse, environ: Mapping[str, str]) -> tuple[ToolUse, int, str]:
    """Return ``use`` with the threads of each task, the number of slots, and the reason in words."""
    n_cores, source = cores.count_usable_cores(environ)
    if not use.threads:
        slots = job.slots or 1
        use = set_threads(use, max(1, n_cores // slots))
        asked = "as asked" if job.slots else f"as {use.adapter} itself spreads its work over all cores ({source})"
        return use, slots, f"slots: {slots} of {format_count(use.threads, 'thread')}, {asked}"
    return use, *_count_slots_by_threads(job, use, n_cores, source)


def set_threads(use: ToolUse, threads: int) -> ToolUse:
    """Set the threads of a tool that uses as many as it gets; they share the cost of its start."""
    cost = msgspec.structs.replace(use.cost, startup_seconds=use.cost.startup_seconds / threads)
    return msgspec.structs.replace(use, threads=threads, cost=cost)


def _count_slots_by_threads(job: JobSpec, use: ToolUse, n_cores: int, source: str) -> tuple[int, str]:
    if job.slots:
        more = f"; {use.threads} threads each" if use.threads > 1 else ""
        over = "" if job.slots * use.threads <= n_cores else f" (more than the {n_cores} cores there are)"
        return job.slots, f"slots: {job.slots}, as asked{more}{over}"
    slots = max(1, n_cores // use.threads)
    if use.threads > 1:
        return slots, (
            f"slots: {slots} of {use.threads} threads each on {n_cores} cores ({source}); "
            "without the tool's own threads every core would have a slot, which is usually faster"
        )
    return slots, f"slots: {slots} ({source})"
