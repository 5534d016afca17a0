"""What a BLAST database is made of and what BLAST counts of it, through all its aliases.

Source: ``seqdbalias.cpp`` and ``seqdbcommon.cpp`` of the NCBI C++ Toolkit, and comparison: volumes are in the order
of their file names, then of their paths, whatever the order in ``DBLIST`` or ``-db``; ``TITLE``, ``NSEQ`` and
``LENGTH`` of an alias stand for those of what it names; ``STATS_NSEQ`` and ``STATS_TOTLEN`` go into the statistics.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import RefusedError
from millrace.tools.blast_volumes import Volume, ending, read_volume
from millrace.tools.blastdb import SearchPath, split_names

#: Lines of an alias that leave entries out.
FILTERS = frozenset(
    [
        "GILIST",
        "TILIST",
        "SILIST",
        "SEQIDLIST",
        "TAXIDLIST",
        "OIDLIST",
        "FIRST_OID",
        "LAST_OID",
        "MEMB_BIT",
        "MAXOID",
        "IPGLIST",
    ]
)

#: Those that name a file of ids.
LISTS = frozenset(["GILIST", "SEQIDLIST", "TAXIDLIST"])


class NotInFragments(Exception):
    """Why a command is not searched in fragments, in words."""


@dataclass(frozen=True)
class Database:
    """What one command searches."""

    letter: str
    #: Paths without ending, of the databases named in ``-db``, or of what they are made of if there is a list.
    bases: tuple[Path, ...]
    title: str
    #: As BLAST prints them.
    entries: int
    residues: int
    #: As they go into its statistics.
    counted: tuple[int, int]
    #: In the order of their entries.
    volumes: tuple[Volume, ...]
    #: The line of an alias that leaves entries out: ``SEQIDLIST FILE``; empty: none does.
    list: str = ""

    @property
    def parsed(self) -> bool:
        """Whether entries have ids of their own."""
        return any(volume.parsed for volume in self.volumes)


@dataclass(frozen=True)
class _Node:
    """An alias or a volume."""

    title: str
    entries: int
    residues: int
    counted: tuple[int, int]
    volumes: tuple[Volume, ...]
    #: Lines that leave entries out.
    filters: tuple[str, ...] = ()


def read_database(names: str, letter: str, search: SearchPath) -> Database:
    """Read the databases named in ``-db``.

    Raises:
        NotInFragments: Their statistics are not certain.
        RefusedError: A volume is damaged.
    """
    bases = []
    for name in split_names(names):
        base = search.base(name, letter)
        if base is None:
            raise NotInFragments(f"there is no database {name}")
        bases.append(base)
    nodes = [_read(base, letter, search, ()) for base in bases]
    whole = _sum(nodes)
    paths = [volume.base for volume in whole.volumes]
    if len(set(paths)) < len(paths):
        raise NotInFragments("a volume is named twice")
    if whole.counted != (sum(v.entries for v in whole.volumes), sum(v.residues for v in whole.volumes)):
        raise NotInFragments("an alias has statistics other than those of its volumes")
    if sum(volume.entries for volume in whole.volumes) == 0:
        raise NotInFragments("the database is empty")
    if not whole.title or whole.title != " ".join(whole.title.split()):
        raise NotInFragments("its title has white space that an alias cannot say")
    volumes = sorted(whole.volumes, key=lambda volume: (volume.base.name, str(volume.base)))
    counted, line = whole.counted, ""
    if whole.filters:
        line = whole.filters[0]
        if len(bases) > 1 or len(whole.filters) > 1 or line.split()[0] not in LISTS:
            raise NotInFragments(f"{line.split()[0]} of an alias leaves entries out")
        bases = paths
        # The alias's own NSEQ and LENGTH are printed, but do not go into the statistics.
        counted = count_listed(letter, bases, line, search)
    return Database(letter, tuple(bases), whole.title, whole.entries, whole.residues, counted, tuple(volumes), line)


def count_listed(letter: str, bases: Sequence[Path], line: str, search: SearchPath) -> tuple[int, int]:
    """Entries and residues that a line of an alias (``SEQIDLIST FILE``) leaves of the databases; asks blastdbcmd.

    Raises:
        NotInFragments: It does not know.
    """
    program = shutil.which("blastdbcmd", path=search.path)
    if program is None:
        raise NotInFragments("blastdbcmd is not on the PATH, which counts the entries of a list")
    with tempfile.TemporaryDirectory() as folder:
        names = " ".join(f'"{base}"' for base in bases)
        (Path(folder) / f"listed.{letter}al").write_text(f"TITLE listed\nDBLIST {names}\n{line}\n", "utf-8")
        answer = subprocess.run(
            [program, "-db", f"{folder}/listed", "-dbtype", {"p": "prot", "n": "nucl"}[letter], "-info"],
            capture_output=True,
            text=True,
            check=False,
        )
    counts = re.search(r"^\s*([\d,]+) sequences?; ([\d,]+) total", answer.stdout, re.M)
    if answer.returncode != 0 or counts is None:
        raise NotInFragments(f"blastdbcmd cannot count what {line.split()[0]} leaves: {answer.stderr.strip()}")
    entries, residues = (int(text.replace(",", "")) for text in counts.groups())
    if entries == 0:
        raise NotInFragments(f"{line.split()[0]} leaves no entry")
    return entries, residues


def _read(base: Path, letter: str, search: SearchPath, above: tuple[Path, ...]) -> _Node:
    alias = ending(base, f"{letter}al")
    if not alias.exists():
        return _read_volume(base, letter)
    if base in above:
        raise NotInFragments(f"{alias} names itself")
    keys = dict(_lines(alias))
    nodes = []
    for name in split_names(keys.get("DBLIST", "")):
        found = search.base(name, letter, base.parent)
        if found is None:
            raise NotInFragments(f"{alias} names {name}, which is not there")
        # An alias may name a volume that has its own name.
        same = found == base
        nodes.append(_read_volume(found, letter) if same else _read(found, letter, search, (*above, base)))
    below = _sum(nodes)
    return _Node(
        keys.get("TITLE") or below.title,
        _number(alias, keys, "NSEQ", below.entries),
        _number(alias, keys, "LENGTH", below.residues),
        (
            _number(alias, keys, "STATS_NSEQ", below.counted[0]),
            _number(alias, keys, "STATS_TOTLEN", below.counted[1]),
        ),
        below.volumes,
        (*below.filters, *(f"{key} {_beside(alias, key, keys[key])}" for key in sorted(keys.keys() & FILTERS))),
    )


def _read_volume(base: Path, letter: str) -> _Node:
    volume = read_volume(base, letter)
    counts = (volume.entries, volume.residues)
    return _Node(volume.title, *counts, counts, (volume,))


def _beside(alias: Path, key: str, value: str) -> str:
    """The value of a filter; a list is a file beside the alias."""
    return str(alias.parent / value.strip('"')) if key in LISTS else value


def _lines(alias: Path) -> Iterator[tuple[str, str]]:
    for line in alias.read_text("utf-8", "surrogateescape").splitlines():
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            yield key, value.strip()


def _number(alias: Path, keys: dict[str, str], key: str, default: int) -> int:
    if key not in keys:
        return default
    try:
        return int(keys[key])
    except ValueError:
        raise RefusedError(f"{alias}: {key} is not a number: {keys[key]}", "make the alias again") from None


def _sum(nodes: list[_Node]) -> _Node:
    return _Node(
        "; ".join(node.title for node in nodes),
        sum(node.entries for node in nodes),
        sum(node.residues for node in nodes),
        (sum(node.counted[0] for node in nodes), sum(node.counted[1] for node in nodes)),
        tuple(volume for node in nodes for volume in node.volumes),
        tuple(key for node in nodes for key in node.filters),
    )
