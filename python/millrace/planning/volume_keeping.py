"""Volumes of a database that nodes keep by groups: which databases, and how many nodes keep each volume.

A database that no node can hold is searched volume by volume. A node fetches the volumes that it searches from the
shared storage, and keeps them, for later jobs too; a bounded number of nodes does so for each volume. The shared storage
then sends the database once for each group of nodes that holds all of it together.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from millrace.adapters.adapter_base import FragmentingAdapter, MultiFileAdapter
from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec
from millrace.core.text_format import format_count, format_size
from millrace.core.tool_use import FragmentPlan, ToolUse, UserCommand, VolumeKeeping
from millrace.storage import cost_table, locations, staging_choice, url_files
from millrace.storage.staging_choice import MEMORY_SHARE


def check_replicas(job: JobSpec) -> None:
    """Refuse ``--replicas`` beside options that it contradicts.

    Raises:
        RefusedError: There is such an option.
    """
    others = {
        "--fragments": job.fragments != "auto", "--dask": bool(job.dask), "--stage off": job.stage == "off",
    }  # fmt: skip
    for name, is_given in others.items():
        if is_given:
            raise RefusedError(
                f"--replicas {job.replicas}: with it each volume of the database is searched by nodes that keep it, which {name} does not allow",
                f"leave out --replicas, or {name}",
            )


def make_refusal(job: JobSpec, why: str) -> RefusedError:
    """Make the refusal of ``--replicas`` for a database that nodes cannot keep by volumes."""
    return RefusedError(
        f"--replicas {job.replicas}: {why}",
        "leave it out, or make volumes of a BLAST database: millrace db split",
    )


def make_keeping(job: JobSpec, place: str) -> VolumeKeeping:
    """Make the rule for volumes at ``place``, one of their URLs or paths; all nodes may fetch those in HDFS."""
    return VolumeKeeping(max_copies=job.replicas or (0 if place.startswith("hdfs://") else None), stage=job.stage)


def describe_keeping(plan: FragmentPlan) -> str:
    """Describe where the volumes are searched, in words."""
    if plan.volumes[0][0].place.startswith("hdfs://"):
        return "the volumes in HDFS, each searched by a node that holds it where one does"
    n = plan.kept.max_copies
    return f"the volumes on shared storage, each kept by {format_count(n, 'node') if n else 'as many nodes as have memory for all'}"


def is_too_large(n_bytes: int, memory_bytes: int) -> bool:
    """Tell whether a database is too large for copies in the memory of a node."""
    return n_bytes > MEMORY_SHARE * memory_bytes


def plan_volumes_in_place(
    job: JobSpec, use: ToolUse, command: UserCommand, adapter: FragmentingAdapter
) -> tuple[ToolUse, str]:
    """Plan the search of the volumes of a database on storage that all nodes mount.

    Returns:
        The new use; and why the database cannot be kept so, in words, empty: it can.
    """
    paths = {path.name: command.cwd / path for path in use.databases}
    later = _list_volume_files(command, adapter, [*paths.values()])
    why = _explain_unkept(command, [command.cwd / path for path in use.databases], later)
    if not why and not job.replicas and cost_table.classify_place(str(later[0])) in ("memory", "disk"):
        why = "each node has the database"
    if why:
        return use, why
    found = [url_files.UrlFile(path.name, str(path), locations.query_file_status(str(path))) for path in later]
    try:
        use = adapter.plan_fragments(use, command, (), [url_files.describe_before_copy(each) for each in found])
    except RefusedError as refused:
        return use, refused.message
    assert use.fragmented
    others = {name: str(path) for name, path in paths.items() if path not in later}
    kept = replace(make_keeping(job, str(later[0])), in_place=others)
    return replace(use, fragmented=replace(use.fragmented, kept=kept)), ""


def _list_volume_files(command: UserCommand, adapter: object, paths: Sequence[Path]) -> list[Path]:
    """List the files that only the searches of their own volumes read."""
    if not isinstance(adapter, MultiFileAdapter):
        return []
    parts = (adapter.describe_argument_files(command.argv, at, "x") for at in range(1, len(command.argv)))
    patterns = [each.apart for each in parts if each and each.apart]
    return [path for path in paths if any(re.fullmatch(pattern, path.name) for pattern in patterns)]


def _explain_unkept(command: UserCommand, paths: Sequence[Path], later: Sequence[Path]) -> str:
    """Explain why files cannot be fetched by volumes, in words; empty: they can."""
    if not later:
        return "the database has no volumes (NAME.00, NAME.01 ...), which nodes could keep"
    if len({path.name for path in paths}) < len(paths):
        return "two files of the database, in different folders, have one name"
    for path in later:
        if any(command.cwd.glob(f"{glob.escape(path.stem)}.*")):
            return f"the working directory has {path.stem}.*, which BLAST reads there"
    if fresh := [file for file in staging_choice.list_database_files(later, command.cwd) if file.fresh_ns]:
        return (
            f"{fresh[0].path}: was written lately, and its filesystem tells no time of the last change but in seconds"
        )
    return ""


def settle_keeping(use: ToolUse, n_nodes: int, memory_bytes: int) -> tuple[ToolUse, str]:
    """Settle how many nodes keep each volume.

    Args:
        memory_bytes: Memory of a node.

    Returns:
        The new use, and a message for the user; empty: all nodes may fetch all volumes, or there are none.
    """
    plan = use.fragmented
    if not plan or not plan.volumes or plan.kept.max_copies == 0:
        return use, ""
    n_bytes = sum(file.size for files in plan.volumes for file in files)
    copies = choose_max_copies(plan.kept.max_copies, n_bytes, n_nodes, memory_bytes)
    kept = replace(plan.kept, max_copies=copies, share=copies / n_nodes)
    said = (
        f"volumes: {format_size(n_bytes)}, each kept by {format_count(copies, 'node')} of {n_nodes}, "
        f"about {format_size(round(n_bytes * kept.share))} by each node"
    )
    return replace(use, fragmented=replace(plan, kept=kept)), said


def choose_max_copies(asked: int | None, n_bytes: int, n_nodes: int, memory_bytes: int) -> int:
    """Choose how many nodes keep each volume: as asked, else as many as have memory for all of them. Pure.

    >>> [choose_max_copies(None, 100, n_nodes, 50) for n_nodes in (2, 4, 8, 40)], choose_max_copies(3, 100, 2, 50)
    ([1, 1, 2, 10], 2)
    """
    copies = asked or max(1, int(MEMORY_SHARE * memory_bytes * n_nodes // max(n_bytes, 1)))
    return min(copies, n_nodes)
