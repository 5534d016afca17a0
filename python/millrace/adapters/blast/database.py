"""Volumes and statistics of a BLAST database, read through all its aliases.

Source: ``seqdbalias.cpp`` and ``seqdbcommon.cpp`` of the NCBI C++ Toolkit, and comparison: volumes are in the order
of their file names, then of their paths, whatever the order in ``DBLIST`` or ``-db``; ``TITLE``, ``NSEQ`` and
``LENGTH`` of an alias replace those of the databases that it names; ``STATS_NSEQ`` and ``STATS_TOTLEN`` go into the
statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from millrace.adapters.blast.search_path import SearchPath, split_names
from millrace.adapters.blast.volumes import BlastVolume, add_ending, read_sequence_bytes, read_volume
from millrace.adapters.option_reader import split_words
from millrace.core.errors import RefusedError

#: Lines of an alias that leave entries out.
FILTERS = split_words("GILIST TILIST SILIST SEQIDLIST TAXIDLIST OIDLIST FIRST_OID LAST_OID MEMB_BIT MAXOID IPGLIST")


class NotInFragmentsError(Exception):
    """A reason, in words, why a command is not searched in fragments."""


class SearchedDatabase(msgspec.Struct, frozen=True):
    """The databases of one ``-db``, as one."""

    letter: str
    #: Paths without ending, of the databases named in ``-db``.
    bases: tuple[Path, ...]
    title: str
    #: Numbers that BLAST prints.
    entries: int
    residues: int
    #: Entries and residues that go into BLAST's statistics.
    counted: tuple[int, int]
    #: In the order of their entries.
    volumes: tuple[BlastVolume, ...]

    @property
    def has_ids(self) -> bool:
        """Whether entries have ids of their own."""
        return any(volume.parsed for volume in self.volumes)

    @property
    def sequence_bytes(self) -> int:
        """Bytes of the sequence files, which a search reads."""
        return sum(read_sequence_bytes(volume) for volume in self.volumes)


class _DatabaseNode(msgspec.Struct, frozen=True):
    """An alias or a volume."""

    title: str
    entries: int
    residues: int
    counted: tuple[int, int]
    volumes: tuple[BlastVolume, ...]
    #: Lines that leave entries out.
    filters: tuple[str, ...] = ()


def read_database(names: str, letter: str, search: SearchPath) -> SearchedDatabase:
    """Read the databases named in ``-db``: aliases, and the heads of the index files of volumes.

    Raises:
        NotInFragmentsError: Their entries or statistics are not certain.
        RefusedError: A volume is damaged.
    """
    bases = []
    for name in split_names(names):
        base = search.find_base(name, letter)
        if base is None:
            raise NotInFragmentsError(f"there is no database {name}")
        bases.append(base)
    nodes = [_read_node(base, letter, search, ()) for base in bases]
    whole = _sum_nodes(nodes)
    paths = [volume.base for volume in whole.volumes]
    if len(set(paths)) < len(paths):
        raise NotInFragmentsError("a volume is named twice")
    for path in paths:
        if other := search.find_namesake(path, letter):
            raise NotInFragmentsError(f"BLAST would take {other} for {path}, as an alias names that")
    if whole.counted != (sum(v.entries for v in whole.volumes), sum(v.residues for v in whole.volumes)):
        raise NotInFragmentsError("an alias has statistics other than those of its volumes")
    if whole.filters:
        raise NotInFragmentsError(f"{whole.filters[0]} of an alias leaves entries out")
    if (whole.entries, whole.residues) != whole.counted:
        raise NotInFragmentsError("an alias counts other entries than those of its volumes")
    if sum(volume.entries for volume in whole.volumes) == 0:
        raise NotInFragmentsError("the database is empty")
    if not whole.title or whole.title != " ".join(whole.title.split()):
        raise NotInFragmentsError("its title has white space that an alias cannot say")
    volumes = sorted(whole.volumes, key=lambda volume: (volume.base.name, str(volume.base)))
    return SearchedDatabase(
        letter, tuple(bases), whole.title, whole.entries, whole.residues, whole.counted, tuple(volumes)
    )


def _read_node(base: Path, letter: str, search: SearchPath, above: tuple[Path, ...]) -> _DatabaseNode:
    alias = add_ending(base, f"{letter}al")
    if not alias.exists():
        return _read_volume_node(base, letter)
    if base in above:
        raise NotInFragmentsError(f"{alias} names itself")
    keys = dict(_read_alias_lines(alias))
    nodes = []
    for name in split_names(keys.get("DBLIST", "")):
        if "/" in name and not name.startswith("/"):
            raise NotInFragmentsError(f"{alias} names {name}: BLAST may take another database of that name")
        found = search.find_base(name, letter, base.parent)
        if found is None:
            raise NotInFragmentsError(f"{alias} names {name}, which is not there")
        # An alias may name a volume of the same name as the alias.
        same = found == base
        nodes.append(_read_volume_node(found, letter) if same else _read_node(found, letter, search, (*above, base)))
    below = _sum_nodes(nodes)
    return _DatabaseNode(
        keys.get("TITLE") or below.title,
        _parse_alias_number(alias, keys, "NSEQ", below.entries),
        _parse_alias_number(alias, keys, "LENGTH", below.residues),
        (
            _parse_alias_number(alias, keys, "STATS_NSEQ", below.counted[0]),
            _parse_alias_number(alias, keys, "STATS_TOTLEN", below.counted[1]),
        ),
        below.volumes,
        (*below.filters, *sorted(keys.keys() & FILTERS)),
    )


def _read_volume_node(base: Path, letter: str) -> _DatabaseNode:
    volume = read_volume(base, letter)
    counts = (volume.entries, volume.residues)
    return _DatabaseNode(volume.title, *counts, counts, (volume,))


def _read_alias_lines(alias: Path) -> Iterator[tuple[str, str]]:
    for line in alias.read_text("utf-8", "surrogateescape").splitlines():
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            yield key, value.strip()


def _parse_alias_number(alias: Path, keys: dict[str, str], key: str, default: int) -> int:
    if key not in keys:
        return default
    try:
        return int(keys[key])
    except ValueError:
        raise RefusedError(f"{alias}: {key} is not a number: {keys[key]}", "make the alias again") from None


def _sum_nodes(nodes: list[_DatabaseNode]) -> _DatabaseNode:
    return _DatabaseNode(
        "; ".join(node.title for node in nodes),
        sum(node.entries for node in nodes),
        sum(node.residues for node in nodes),
        (sum(node.counted[0] for node in nodes), sum(node.counted[1] for node in nodes)),
        tuple(volume for node in nodes for volume in node.volumes),
        tuple(key for node in nodes for key in node.filters),
    )
