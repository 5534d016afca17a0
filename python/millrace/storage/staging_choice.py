"""Choice of the place for copies of the databases on each node, with the reason. Pure, except for ``list_database_files``.

Tools on a node read a database repeatedly. From shared storage each node reads it at least once, all nodes at the
same time. Read once and passed on from node to node, it costs the storage one reader for any number of nodes.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.text_format import format_count, format_size
from millrace.core.tool_use import FrozenValue
from millrace.host.file_lock import find_filesystem_kind, is_user_space_filesystem

#: Share of a node's memory that all staged files may fill; the rest is for tools and results.
MEMORY_SHARE = 0.5

#: Share of the memory that is available now that copies may take.
AVAILABLE_SHARE = 0.8

#: Share of the free space of a disk that copies may take.
DISK_SHARE = 0.9

#: Seconds for which a file counts as fresh after it was written; clocks of servers differ by less.
FRESH_SECONDS = 3600

WHERE = {"ram": "memory", "disk": "local disk"}


class DatabaseFile(FrozenValue, frozen=True):
    """One database file, with its status at the coordinator."""

    #: Absolute, without symbolic links.
    path: str
    size: int
    mtime_ns: int
    inode: int
    mode: int
    #: Time of the last change of content or metadata: a file that was replaced and put back has another.
    ctime_ns: int
    #: Name of its copies, if the file is itself a copy, which does not change while in use.
    copied: str = ""
    #: Time of this query, if a later write may leave no trace in the status: no later job uses its copies. Else 0.
    fresh_ns: int = 0

    @property
    def key(self) -> str:
        """Name of its copies: the same as long as the file is unchanged."""
        if self.copied:
            return self.copied
        place = _core.crc32c(os.fsencode(os.path.dirname(self.path)))
        state = f"{place:08x}.{self.inode:x}.{self.size:x}.{self.mtime_ns:x}.{self.ctime_ns:x}"
        state += f".{self.fresh_ns:x}" if self.fresh_ns else ""
        return f"{state}-{os.path.basename(self.path)[-80:]}"


class StagingPlace(FrozenValue, frozen=True):
    """Space and contents of a folder for copies on one node."""

    folder: str
    #: Bytes free now, less those of copies that are being made.
    free: int
    #: Bytes of copies of other files: in use by a job, and removable.
    busy: int
    idle: int
    #: Keys of the wanted files that are there.
    held: frozenset[str] = frozenset()


class StagingNode(FrozenValue, frozen=True):
    """Memory and places for copies of one node, as it reports them."""

    host: str
    #: Bytes of memory that this job may use there, and bytes that are available now.
    memory: int
    available: int
    ram: StagingPlace | None
    disk: StagingPlace | None
    #: Reason why a copy cannot be mounted in the place of the file, in words; empty: it can.
    why_not: str = ""


class StagingChoice(FrozenValue, frozen=True):
    """The place for copies on one node, or the reason to read in place."""

    #: ``ram``, ``disk``, or empty: read in place.
    place: str
    #: Keys of the files that it lacks there.
    missing: frozenset[str] = frozenset()
    #: Most bytes that copies may fill there.
    budget: int = 0
    #: Reason to read in place.
    why: str = ""


def list_database_files(paths: Iterable[Path], cwd: Path) -> list[DatabaseFile]:
    """List the database files, each once, largest first, without missing, empty and irregular ones."""
    found: dict[str, DatabaseFile] = {}
    for path in paths:
        real = os.path.realpath(cwd / path)
        try:
            about = os.stat(real)
        except OSError:
            continue
        if stat.S_ISREG(about.st_mode) and about.st_size:
            found[real] = _mark_fresh_file(_make_database_file(real, about), time.time_ns())
    return sorted(found.values(), key=lambda file: (-file.size, file.path))


def may_be_read_again(paths: Iterable[Path], cwd: Path) -> bool:
    """Tell whether a filesystem of any file may not cache it, so that each task reads it again, however small it is."""
    folders = {os.path.dirname(os.path.realpath(cwd / path)) for path in paths}
    return any(is_user_space_filesystem(find_filesystem_kind(Path(folder))) for folder in folders)


def _make_database_file(real: str, about: os.stat_result) -> DatabaseFile:
    # A filesystem in user space may return another inode number each time.
    made_up = is_user_space_filesystem(find_filesystem_kind(Path(real).parent))
    return DatabaseFile(
        path=real, size=about.st_size, mtime_ns=about.st_mtime_ns, inode=0 if made_up else about.st_ino,
        mode=stat.S_IMODE(about.st_mode), ctime_ns=0 if made_up else about.st_ctime_ns,
    )  # fmt: skip


def _mark_fresh_file(file: DatabaseFile, now_ns: int) -> DatabaseFile:
    """Mark a file without a change time that was written lately: in whole seconds, the next write may not show.

    >>> file = DatabaseFile(path="/s/nr", size=9, mtime_ns=10**18, inode=0, mode=0o644, ctime_ns=0)
    >>> [_mark_fresh_file(file, 10**18 + age * 10**9).fresh_ns for age in (60, 7200)]
    [1000000060000000000, 0]
    """
    is_fresh = not file.ctime_ns and now_ns - file.mtime_ns < FRESH_SECONDS * 10**9
    return msgspec.structs.replace(file, fresh_ns=now_ns) if is_fresh else file


def list_cached_copies(paths: Iterable[str]) -> list[DatabaseFile]:
    """List copies in the cache of this node, to be passed on under their own names."""
    found = [_make_database_file(path, os.stat(path)) for path in paths]
    return [msgspec.structs.replace(file, copied=os.path.basename(file.path)) for file in found]


def find_changed_file(files: Iterable[DatabaseFile]) -> str:
    """Return the path of the first of ``files`` that has changed; empty: none has.

    Each is opened, as a network filesystem may notice changes by other machines only then.
    """
    for file in files:
        if file.copied:
            continue
        try:
            with open(file.path, "rb") as now:
                if _make_database_file(file.path, os.fstat(now.fileno())) == msgspec.structs.replace(file, fresh_ns=0):
                    continue
        except OSError:
            pass
        return file.path
    return ""


def choose_staging_places(way: str, files: Sequence[DatabaseFile], nodes: Sequence[StagingNode]) -> list[StagingChoice]:
    """Choose a place on each node: memory if the files fit, else local disk.

    Args:
        way: ``auto``, ``ram``, ``disk`` or a folder, which counts as disk.
        nodes: In any order; the choices are in the same order.
    """
    return [_choose_staging_place(way, files, node) for node in nodes]


def _choose_staging_place(way: str, files: Sequence[DatabaseFile], node: StagingNode) -> StagingChoice:
    if node.why_not:
        return StagingChoice(place="", why=node.why_not)
    places = {"ram": _choose_memory(files, node), "disk": _choose_disk(files, node)}
    asked = ("ram", "disk") if way == "auto" else ("ram",) if way == "ram" else ("disk",)
    fit = [place for place in asked if isinstance(places[place], StagingChoice)]
    for place in sorted(fit, key=lambda place: bool(places[place].missing)):  # type: ignore[union-attr]
        return places[place]  # type: ignore[return-value]
    return StagingChoice(place="", why="; ".join(str(places[place]) for place in asked))


def _choose_memory(files: Sequence[DatabaseFile], node: StagingNode) -> StagingChoice | str:
    if node.ram is None:
        return "no memory filesystem"
    total, missing, lacking = _sum_sizes(files, node.ram)
    budget = int(MEMORY_SHARE * node.memory)
    if node.ram.busy + total > budget:
        used = f", of which {format_size(node.ram.busy)} are in use" if node.ram.busy else ""
        return f"{format_size(total)} do not fit into half of its memory ({format_size(budget)}{used})"
    if lacking > node.ram.free + node.ram.idle:
        return f"{format_size(lacking)} do not fit into its memory filesystem ({format_size(node.ram.free)} free)"
    if lacking > AVAILABLE_SHARE * node.available + node.ram.idle:
        return f"{format_size(lacking)} do not fit into what is available of its memory ({format_size(node.available)})"
    return StagingChoice(place="ram", missing=missing, budget=budget)


def _choose_disk(files: Sequence[DatabaseFile], node: StagingNode) -> StagingChoice | str:
    if node.disk is None:
        return "no local disk"
    _, missing, lacking = _sum_sizes(files, node.disk)
    room = int(DISK_SHARE * (node.disk.free + node.disk.idle))
    if lacking > room:
        return f"{format_size(lacking)} do not fit on its disk ({format_size(node.disk.free)} free)"
    held = sum(file.size for file in files if file.key in node.disk.held)
    return StagingChoice(place="disk", missing=missing, budget=room + node.disk.busy + held)


def _sum_sizes(files: Sequence[DatabaseFile], place: StagingPlace) -> tuple[int, frozenset[str], int]:
    """Return the bytes of all files, the keys of those that a place lacks, and their bytes."""
    missing = [file for file in files if file.key not in place.held]
    return sum(file.size for file in files), frozenset(file.key for file in missing), sum(file.size for file in missing)


def describe_staging(
    files: Sequence[DatabaseFile], nodes: Sequence[StagingNode], choices: Sequence[StagingChoice]
) -> list[str]:
    """Describe the choices, one line for each group of nodes with the same choice and reason."""
    of_all = f"{format_size(sum(file.size for file in files))} in {format_count(len(files), 'file')}"
    groups: dict[tuple[str, bool, str], list[str]] = {}
    for node, choice in zip(nodes, choices, strict=True):
        groups.setdefault((choice.place, bool(choice.missing), choice.why), []).append(node.host)
    lines = []
    for (place, lacks, why), hosts in groups.items():
        where = hosts[0] if len(hosts) == 1 else format_count(len(hosts), "node")
        if not place:
            lines.append(f"databases: {where} read them in place: {why}" if len(hosts) > 1 else
                         f"databases: {where} reads them in place: {why}")  # fmt: skip
        elif lacks:
            lines.append(f"databases: {of_all}, to be copied to the {WHERE[place]} of {where}")
        else:
            lines.append(f"databases: {of_all}, kept by an earlier job in the {WHERE[place]} of {where}")
    return lines
