"""Whether and where each node keeps a copy of the databases, and why. Pure, except for `look`.

Tools on a node read a database again and again. From shared storage each node reads it once at least, and all of them at
once. Read once, and passed on from node to node, it costs the storage one reader, however many nodes there are.
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

#: Share of what is available of the memory now that may be taken of it.
AVAILABLE_SHARE = 0.8

#: Share of the free space of a disk that may be taken of it.
DISK_SHARE = 0.9

#: A file is fresh so long after it was written; clocks of servers may differ by less.
FRESH_SECONDS = 3600

WHERE = {"ram": "memory", "disk": "local disk"}


class File(Frozen, frozen=True):
    """One file of the databases, as it is at the coordinator."""

    #: Absolute, without symbolic links.
    path: str
    size: int
    mtime_ns: int
    inode: int
    mode: int
    #: When anything at all was done to it: one that was written and put back has another.
    ctime_ns: int
    #: Name of its copies, of a file that is itself a copy; in use, it does not change.
    copied: str = ""
    #: When it was asked, of one that may be written again without a sign: no later job uses its copies.
    fresh_ns: int = 0

    @property
    def key(self) -> str:
        """Name of its copies: the same as long as the file is."""
        if self.copied:
            return self.copied
        place = _core.crc32c(os.fsencode(os.path.dirname(self.path)))
        state = f"{place:08x}.{self.inode:x}.{self.size:x}.{self.mtime_ns:x}.{self.ctime_ns:x}"
        state += f".{self.fresh_ns:x}" if self.fresh_ns else ""
        return f"{state}-{os.path.basename(self.path)[-80:]}"


class Place(Frozen, frozen=True):
    """What there is to say of a folder for copies on one node."""

    folder: str
    #: Bytes free now; those of copies that are being made are not.
    free: int
    #: Bytes of copies of other files, those that a job uses, and those that may go.
    busy: int
    idle: int
    #: Keys of the asked files that are there.
    held: frozenset[str] = frozenset()


class Node(Frozen, frozen=True):
    """One node, as it sees itself."""

    host: str
    #: Bytes of memory that this job may use there, and that are available now.
    memory: int
    available: int
    ram: Place | None
    disk: Place | None
    #: Why a copy could not take the place of the file, in words; empty: it could.
    why_not: str = ""


class Choice(Frozen, frozen=True):
    """What one node does."""

    #: ``ram``, ``disk``, or empty: it reads in place.
    place: str
    #: Keys of what it lacks there.
    missing: frozenset[str] = frozenset()
    #: Most bytes that copies may fill there.
    budget: int = 0
    #: Why it reads in place.
    why: str = ""


def look(paths: Iterable[Path], cwd: Path) -> list[File]:
    """The files of the databases, each once, largest first; those that are not there, or not plain files, are left out."""
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
    """Whether any of the files is on a filesystem of which a node may have to read it again for each task, however small it is."""
    folders = {os.path.dirname(os.path.realpath(cwd / path)) for path in paths}
    return any(is_in_user_space(kind(Path(folder))) for folder in folders)


def _file(real: str, about: os.stat_result) -> File:
    # A filesystem in user space may make up another number each time it is asked.
    made_up = is_in_user_space(kind(Path(real).parent))
    return File(
        path=real, size=about.st_size, mtime_ns=about.st_mtime_ns, inode=0 if made_up else about.st_ino,
        mode=stat.S_IMODE(about.st_mode), ctime_ns=0 if made_up else about.st_ctime_ns,
    )  # fmt: skip


def _with_freshness(file: File, now_ns: int) -> File:
    """Mark a file that has no time of change, and was written so lately that a server of whole seconds may not tell the next time.

    >>> file = File(path="/s/nr", size=9, mtime_ns=10**18, inode=0, mode=0o644, ctime_ns=0)
    >>> [_with_freshness(file, 10**18 + age * 10**9).fresh_ns for age in (60, 7200)]
    [1000000060000000000, 0]
    """
    is_fresh = not file.ctime_ns and now_ns - file.mtime_ns < FRESH_SECONDS * 10**9
    return msgspec.structs.replace(file, fresh_ns=now_ns) if is_fresh else file


def copies(paths: Iterable[str]) -> list[File]:
    """Copies in the cache of this node, to be passed on by their own names."""
    found = [_file(path, os.stat(path)) for path in paths]
    return [msgspec.structs.replace(file, copied=os.path.basename(file.path)) for file in found]


def changed(files: Iterable[File]) -> str:
    """The first of ``files`` that is not what it was; empty: all are.

    Each is opened, as a network filesystem may know of others' changes no sooner.
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
    """Choose a place on each node: memory if they fit, else local disk.

    Args:
        way: ``auto``, ``ram``, ``disk`` or a folder, which counts as disk.
        nodes: In any order; the choices come in the same.
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
    """Bytes of all, keys of those that lack, and their bytes."""
    missing = [file for file in files if file.key not in place.held]
    return sum(file.size for file in files), frozenset(file.key for file in missing), sum(file.size for file in missing)


def in_words(files: Sequence[File], nodes: Sequence[Node], choices: Sequence[Choice]) -> list[str]:
    """What is done, and why not more: one line for each way."""
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
