"""Choice of the place for copies of the databases on each node, with the reason. Pure, except for ``look``.

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
from millrace.model import Frozen
from millrace.plan.filesystems import is_in_user_space, kind
from millrace.words import count, size

#: Share of a node's memory that all staged files may fill; the rest is for tools and results.
MEMORY_SHARE = 0.5

#: Share of the memory that is available now that copies may take.
AVAILABLE_SHARE = 0.8

#: Share of the free space of a disk that copies may take.
DISK_SHARE = 0.9

#: Seconds for which a file counts as fresh after it was written; clocks of servers differ by less.
FRESH_SECONDS = 3600

WHERE = {"ram": "memory", "disk": "local disk"}


class File(Frozen, frozen=True):
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


class Place(Frozen, frozen=True):
    """Space and contents of a folder for copies on one node."""

    folder: str
    #: Bytes free now, less those of copies that are being made.
    free: int
    #: Bytes of copies of other files: in use by a job, and removable.
    busy: int
    idle: int
    #: Keys of the wanted files that are there.
    held: frozenset[str] = frozenset()


class Node(Frozen, frozen=True):
    """Memory and places for copies of one node, as it reports them."""

    host: str
    #: Bytes of memory that this job may use there, and bytes that are available now.
    memory: int
    available: int
    ram: Place | None
    disk: Place | None
    #: Reason why a copy cannot be mounted in the place of the file, in words; empty: it can.
    why_not: str = ""


class Choice(Frozen, frozen=True):
    """The place for copies on one node, or the reason to read in place."""

    #: ``ram``, ``disk``, or empty: read in place.
    place: str
    #: Keys of the files that it lacks there.
    missing: frozenset[str] = frozenset()
    #: Most bytes that copies may fill there.
    budget: int = 0
    #: Reason to read in place.
    why: str = ""


def look(paths: Iterable[Path], cwd: Path) -> list[File]:
    """List the database files, each once, largest first, without missing, empty and irregular ones."""
    found: dict[str, File] = {}
    for path in paths:
        real = os.path.realpath(cwd / path)
        try:
            about = os.stat(real)
        except OSError:
            continue
        if stat.S_ISREG(about.st_mode) and about.st_size:
            found[real] = _with_freshness(_file(real, about), time.time_ns())
    return sorted(found.values(), key=lambda file: (-file.size, file.path))


def is_read_again(paths: Iterable[Path], cwd: Path) -> bool:
    """Tell whether a filesystem of any file may not cache it, so that each task reads it again, however small it is."""
    folders = {os.path.dirname(os.path.realpath(cwd / path)) for path in paths}
    return any(is_in_user_space(kind(Path(folder))) for folder in folders)


def _file(real: str, about: os.stat_result) -> File:
    # A filesystem in user space may return another inode number each time.
    made_up = is_in_user_space(kind(Path(real).parent))
    return File(
        path=real, size=about.st_size, mtime_ns=about.st_mtime_ns, inode=0 if made_up else about.st_ino,
        mode=stat.S_IMODE(about.st_mode), ctime_ns=0 if made_up else about.st_ctime_ns,
    )  # fmt: skip


def _with_freshness(file: File, now_ns: int) -> File:
    """Mark a file without a change time that was written lately: in whole seconds, the next write may not show.

    >>> file = File(path="/s/nr", size=9, mtime_ns=10**18, inode=0, mode=0o644, ctime_ns=0)
    >>> [_with_freshness(file, 10**18 + age * 10**9).fresh_ns for age in (60, 7200)]
    [1000000060000000000, 0]
    """
    is_fresh = not file.ctime_ns and now_ns - file.mtime_ns < FRESH_SECONDS * 10**9
    return msgspec.structs.replace(file, fresh_ns=now_ns) if is_fresh else file


def copies(paths: Iterable[str]) -> list[File]:
    """List copies in the cache of this node, to be passed on under their own names."""
    found = [_file(path, os.stat(path)) for path in paths]
    return [msgspec.structs.replace(file, copied=os.path.basename(file.path)) for file in found]


def changed(files: Iterable[File]) -> str:
    """Return the path of the first of ``files`` that has changed; empty: none has.

    Each is opened, as a network filesystem may notice changes by other machines only then.
    """
    for file in files:
        if file.copied:
            continue
        try:
            with open(file.path, "rb") as now:
                if _file(file.path, os.fstat(now.fileno())) == msgspec.structs.replace(file, fresh_ns=0):
                    continue
        except OSError:
            pass
        return file.path
    return ""


def decide(way: str, files: Sequence[File], nodes: Sequence[Node]) -> list[Choice]:
    """Choose a place on each node: memory if the files fit, else local disk.

    Args:
        way: ``auto``, ``ram``, ``disk`` or a folder, which counts as disk.
        nodes: In any order; the choices are in the same order.
    """
    return [_decide(way, files, node) for node in nodes]


def _decide(way: str, files: Sequence[File], node: Node) -> Choice:
    if node.why_not:
        return Choice(place="", why=node.why_not)
    places = {"ram": _ram(files, node), "disk": _disk(files, node)}
    asked = ("ram", "disk") if way == "auto" else ("ram",) if way == "ram" else ("disk",)
    fit = [place for place in asked if isinstance(places[place], Choice)]
    for place in sorted(fit, key=lambda place: bool(places[place].missing)):  # type: ignore[union-attr]
        return places[place]  # type: ignore[return-value]
    return Choice(place="", why="; ".join(str(places[place]) for place in asked))


def _ram(files: Sequence[File], node: Node) -> Choice | str:
    if node.ram is None:
        return "no memory filesystem"
    total, missing, lacking = _sizes(files, node.ram)
    budget = int(MEMORY_SHARE * node.memory)
    if node.ram.busy + total > budget:
        used = f", of which {size(node.ram.busy)} are in use" if node.ram.busy else ""
        return f"{size(total)} do not fit into half of its memory ({size(budget)}{used})"
    if lacking > node.ram.free + node.ram.idle:
        return f"{size(lacking)} do not fit into its memory filesystem ({size(node.ram.free)} free)"
    if lacking > AVAILABLE_SHARE * node.available + node.ram.idle:
        return f"{size(lacking)} do not fit into what is available of its memory ({size(node.available)})"
    return Choice(place="ram", missing=missing, budget=budget)


def _disk(files: Sequence[File], node: Node) -> Choice | str:
    if node.disk is None:
        return "no local disk"
    _, missing, lacking = _sizes(files, node.disk)
    room = int(DISK_SHARE * (node.disk.free + node.disk.idle))
    if lacking > room:
        return f"{size(lacking)} do not fit on its disk ({size(node.disk.free)} free)"
    held = sum(file.size for file in files if file.key in node.disk.held)
    return Choice(place="disk", missing=missing, budget=room + node.disk.busy + held)


def _sizes(files: Sequence[File], place: Place) -> tuple[int, frozenset[str], int]:
    """Return the bytes of all files, the keys of those that a place lacks, and their bytes."""
    missing = [file for file in files if file.key not in place.held]
    return sum(file.size for file in files), frozenset(file.key for file in missing), sum(file.size for file in missing)


def in_words(files: Sequence[File], nodes: Sequence[Node], choices: Sequence[Choice]) -> list[str]:
    """Describe the choices, one line for each group of nodes with the same choice and reason."""
    of_all = f"{size(sum(file.size for file in files))} in {count(len(files), 'file')}"
    groups: dict[tuple[str, bool, str], list[str]] = {}
    for node, choice in zip(nodes, choices, strict=True):
        groups.setdefault((choice.place, bool(choice.missing), choice.why), []).append(node.host)
    lines = []
    for (place, lacks, why), hosts in groups.items():
        where = hosts[0] if len(hosts) == 1 else count(len(hosts), "node")
        if not place:
            lines.append(f"databases: {where} read them in place: {why}" if len(hosts) > 1 else
                         f"databases: {where} reads them in place: {why}")  # fmt: skip
        elif lacks:
            lines.append(f"databases: {of_all}, to be copied to the {WHERE[place]} of {where}")
        else:
            lines.append(f"databases: {of_all}, kept by an earlier job in the {WHERE[place]} of {where}")
    return lines
