"""Files of a database in HDFS: which a node fetches with a volume, and which it gets with the command."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator

from millrace.model import FetchedFile, InlineFile, UserCommand, VolumeIndex
from millrace.tools.blast.database import NotInFragmentsError, SearchedDatabase
from millrace.tools.blast.ids import list_pages_without_ids
from millrace.tools.blast.search_path import split_names
from millrace.tools.blast.volumes import add_ending

#: Endings of the files with the ids of a volume: names, and GenBank numbers.
_IDS = ("db", "og")

#: Bytes up to which a file is compressed to see whether it may go with the command. It may if it gets as small as
#: _CARRIED, or to one _CARRIED_SHARE-th of its size.
_LOOKED_AT, _CARRIED, _CARRIED_SHARE = 1 << 20, 1 << 10, 16


def group_later_files(database: SearchedDatabase, command: UserCommand) -> tuple[tuple[FetchedFile, ...], ...]:
    """Group the files that are fetched when a volume is searched by volume, in the order of volumes."""
    by_volume: dict[str, list[FetchedFile]] = defaultdict(list)
    for file in command.view.later if command.view else ():
        by_volume[file.name.rpartition(".")[0]].append(file)
    return tuple(tuple(by_volume[volume.base.name]) for volume in database.volumes if volume.entries)


def build_indices(
    database: SearchedDatabase, command: UserCommand, elsewhere: Collection[str]
) -> Iterator[VolumeIndex]:
    """Yield the index of each volume that has entries, and its ids, except files named in ``elsewhere``."""
    files = {file.name: file for file in command.view.files} if command.view else {}
    for volume in database.volumes:
        if volume.entries:
            with volume.index.open("rb") as index:
                head = zlib.compress(index.read(volume.head))
            yield VolumeIndex(file=files[volume.index.name], pieces=((0, head),))
        for suffix in _IDS if volume.entries else ():
            path = add_ending(volume.base, f"{volume.letter}{suffix}")
            if path.name in elsewhere or not (file := files.get(path.name)):
                continue
            pages = list_pages_without_ids(path) if suffix == "db" else []
            if pages is not None:  # else all nodes get it
                packed = tuple((at, zlib.compress(page)) for at, page in pages)
                yield VolumeIndex(file=file, pieces=packed, is_part=False)


def pack_carried_files(database: SearchedDatabase, command: UserCommand) -> Iterator[InlineFile]:
    """Yield the small files that go with the command: aliases, and mostly empty files, such as unparsed id lists."""
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
                yield InlineFile(name=file.name, packed=packed)


def check_volumes(db: str, database: SearchedDatabase, command: UserCommand) -> None:
    """Refuse to search volumes that are fetched later, if they are not all of one database.

    Raises:
        NotInFragments: There are several databases, or files of a volume are missing in HDFS.
    """
    if len(split_names(db)) > 1:
        raise NotInFragmentsError("volumes are left in HDFS of one database, not of several")
    if not all(len(files) == 2 for files in group_later_files(database, command)):
        raise NotInFragmentsError("not all of the database is volumes in HDFS (NAME.00, NAME.01 ...)")
