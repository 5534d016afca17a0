"""Searches of BLAST in fragments of the database.

*Exactness.* BLAST keeps the best subjects of a query by their preliminary scores, and only then aligns them again
and writes. So the fragments are searched for more than that list can hold, with the statistics of the whole
database, and then BLAST itself searches what was found, with the user's own options: the list is the same, and what
comes of it too. ``docs/exactness-fragments.md`` has the argument, its sources and what is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from millrace.model import (
    Command,
    DatabaseArg,
    Fragment,
    Fragmented,
    InputArg,
    OutputArg,
    OutputUse,
    Token,
    ToolUse,
)
from millrace.tools.base import Fragmentable
from millrace.tools.blast_volumes import Volume, cut, read_volume
from millrace.tools.blastdb import FLAGS, SearchPath, split_names

#: Options of the command that say how it is written, or what is left out after the preliminary search: not for the
#: search of a fragment.
_OWN = frozenset(
    [
        "outfmt",
        "out",
        "num_descriptions",
        "num_alignments",
        "max_target_seqs",
        "max_hsps",
        "evalue",
        "comp_based_stats",
        "html",
        "show_gis",
        "sorthits",
        "sorthsps",
        "line_length",
        "use_sw_tback",
        "qcov_hsp_perc",
        "perc_identity",
        "xdrop_gap_final",
        "db",
    ]
)

#: How far a preliminary E-value may be above the final one where the composition of the sequences counts
#: (``EVALUE_STRETCH`` of BLAST), twice.
_STRETCH = 10

#: Fewest subjects of a query that one fragment may report.
_FEWEST = 5000

#: Options with which a subject's result depends on the other subjects, or which were not compared.
_REFUSED = {
    "ungapped": "an ungapped search",
    "culling_limit": "hits of other subjects decide what is kept",
    "best_hit_overhang": "hits of other subjects decide what is kept",
    "best_hit_score_edge": "hits of other subjects decide what is kept",
    "subject": "-subject is not a database",
    "dbsize": "it was not compared with serial runs",
    "searchsp": "it was not compared with serial runs",
}

_PROGRAMS = {"blastp": "p"}


@dataclass(frozen=True)
class _Database:
    """What is searched: volumes in the order of their entries, and what BLAST counts."""

    letter: str
    title: str
    volumes: tuple[Volume, ...]

    @property
    def entries(self) -> int:
        return sum(volume.entries for volume in self.volumes)

    @property
    def residues(self) -> int:
        return sum(volume.residues for volume in self.volumes)


class _NotInFragments(Exception):
    """Why a command is not searched in fragments, in words."""


def fragmentable(program: str, options: dict[str, str], command: Command) -> Fragmentable:
    """Look at the database of a command that `millrace.tools.blast` has understood."""
    try:
        database = _database(program, options, command)
    except _NotInFragments as why:
        return Fragmentable(why_not=str(why))
    size = sum(volume.index.with_suffix(f".{volume.letter}sq").stat().st_size for volume in database.volumes)
    return Fragmentable(entries=database.entries, residues=database.residues, bytes=size)


def fragment(use: ToolUse, program: str, options: dict[str, str], command: Command, n: int) -> Fragmented:
    """Cut the database into at most ``n`` fragments of about equal size."""
    database = _database(program, options, command)
    limit = _limit(options)
    argv = _search(use, program, options, limit)
    return Fragmented(
        kind="blast",
        fragments=tuple(
            Fragment(first=first, last=last, size=size, argv=argv) for first, last, size in cut(database.volumes, n)
        ),
        found=OutputUse(name="found", path="found"),
        finish=_finish(use),
        database=options["db"],
        about={
            "letter": database.letter,
            "title": database.title,
            "entries": str(database.entries),
            "residues": str(database.residues),
            "limit": str(limit),
            "volumes": json.dumps([[str(volume.base), volume.entries] for volume in database.volumes]),
        },
    )


def _database(program: str, options: dict[str, str], command: Command) -> _Database:
    letter = _PROGRAMS.get(program)
    if letter is None:
        raise _NotInFragments(f"{program} in fragments was not compared with serial runs")
    for name, why in _REFUSED.items():
        if name in options:
            raise _NotInFragments(f"-{name}: {why}")
    names = split_names(options.get("db", ""))
    if len(names) != 1:
        raise _NotInFragments("more than one database")
    base = SearchPath(command).base(names[0], letter)
    if base is None:
        raise _NotInFragments(f"there is no database {names[0]}")
    if base.with_name(f"{base.name}.{letter}al").exists():
        raise _NotInFragments(f"{names[0]} is an alias")
    volume = read_volume(base, letter)
    if volume.parsed:
        raise _NotInFragments(f"{names[0]} has parsed ids")
    return _Database(letter, volume.title, (volume,))


def _limit(options: dict[str, str]) -> int:
    """Subjects of one query that one fragment may report: more than the preliminary list of the whole can hold."""
    kept = [options[name] for name in ("max_target_seqs", "num_descriptions", "num_alignments") if name in options]
    most = max([500, *(int(text) for text in kept if re.fullmatch(r"\d{1,9}", text))])
    return max(_FEWEST, 2 * (2 * most + 50))


def _search(use: ToolUse, program: str, options: dict[str, str], limit: int) -> tuple[Token, ...]:
    """The program and its arguments for the search of a fragment: only which entries are found counts."""
    argv: list[Token] = [use.argv[0]]
    tokens = list(use.argv[1:])
    while tokens:
        token = tokens.pop(0)
        if isinstance(token, InputArg):
            argv.append(token)
            continue
        if isinstance(token, OutputArg):
            continue
        assert isinstance(token, str)
        name, equals, _ = token[1:].partition("=")
        has_value = not equals and name not in FLAGS
        value = tokens.pop(0) if has_value else None
        if name in _OWN:
            continue
        argv.append(token)
        if value is not None:
            argv.append(value)
    argv += ["-db", DatabaseArg(), "-evalue", _evalue(options), "-out", OutputArg(index=0)]
    if program != "blastn":
        argv += ["-comp_based_stats", "0"]
    argv += ["-html", "-num_descriptions", str(limit), "-num_alignments", "0"]
    return tuple(argv)


def _evalue(options: dict[str, str]) -> str:
    default = {"blastp-short": "20000"}.get(options.get("task", ""), "10")
    return repr(float(options.get("evalue", default)) * _STRETCH)


def _finish(use: ToolUse) -> tuple[Token, ...]:
    """The user's own arguments with the place of the database marked."""
    argv: list[Token] = []
    tokens = list(use.argv)
    while tokens:
        token = tokens.pop(0)
        if token == "-db":
            argv += [token, DatabaseArg()]
            tokens.pop(0)
        elif isinstance(token, str) and token.startswith("-db="):
            argv.append(DatabaseArg(prefix="-db="))
        else:
            argv.append(token)
    return tuple(argv)
