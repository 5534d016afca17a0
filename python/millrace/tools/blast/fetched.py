"""What nodes fetch of a database in HDFS whose volumes they search, and what goes to them with the command."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator

from millrace.model import Carried, Command, Fetched, Index
from millrace.tools.blast.database import Database, NotInFragments
from millrace.tools.blast.ids import without_ids
from millrace.tools.blast.search_path import split_names
from millrace.tools.blast.volumes import ending

#: Endings of what has the ids of a volume: names, and numbers of GenBank.
_IDS = ("db", "og")

#: Bytes of a file up to which it is looked at whether it packs well; and of what nodes are told with the command, or the part
#: of the file that this may be.
_LOOKED_AT, _CARRIED, _CARRIED_SHARE = 1 << 20, 1 << 10, 16


def later(database: Database, command: Command) -> tuple[tuple[Fetched, ...], ...]:
    """The files of each volume that are fetched when it is searched."""
    by_volume: dict[str, list[Fetched]] = defaultdict(list)
    for file in command.view.later if command.view else ():
        by_volume[file.name.rpartition(".")[0]].append(file)
    return tuple(tuple(by_volume[volume.base.name]) for volume in database.volumes if volume.entries)


def indices(database: Database, command: Command, elsewhere: Collection[str]) -> Iterator[Index]:
    """The index of each volume that has entries, and its ids, unless they are ``elsewhere``."""
    files = {file.name: file for file in command.view.files} if command.view else {}
    for volume in database.volumes:
        if volume.entries:
            with volume.index.open("rb") as index:
                head = zlib.compress(index.read(volume.head))
            yield Index(file=files[volume.index.name], pieces=((0, head),))
        for suffix in _IDS if volume.entries else ():
            path = ending(volume.base, f"{volume.letter}{suffix}")
            if path.name in elsewhere or not (file := files.get(path.name)):
                continue
            pages = without_ids(path) if suffix == "db" else []
            if pages is not None:  # else all nodes get it
                packed = tuple((at, zlib.compress(page)) for at, page in pages)
                yield Index(file=file, pieces=packed, is_part=False)


def carried(database: Database, command: Command) -> Iterator[Carried]:
    """Aliases, and what is empty for the most part, as lists of ids are where none were parsed."""
    heads = {volume.index.name for volume in database.volumes}
    for file in command.view.files if command.view else ():
        if (
            re.search(rf"\.{database.letter}[a-z][a-z]$", file.name)
            and file.name not in heads
            and file.size <= _LOOKED_AT
        ):
            assert command.view
            packed = zlib.compress((command.view.folder / file.name).read_bytes())
            if len(packed) <= max(_CARRIED, file.size // _CARRIED_SHARE):
                yield Carried(name=file.name, packed=packed)


def check_volumes(db: str, database: Database, command: Command) -> None:
    """Raises `NotInFragments` if a database cannot be searched whose volumes are fetched later."""
    if len(split_names(db)) > 1:
        raise NotInFragments("volumes are left in HDFS of one database, not of several")
    if not all(len(files) == 2 for files in later(database, command)):
        raise NotInFragments("not all of the database is volumes in HDFS (NAME.00, NAME.01 ...)")
