"""Searches of HMMER in fragments of its targets: which programs and options, and with which arguments.

*Exactness.* HMMER compares a query with one target after the other. It keeps a target as a hit if its E-value is good
enough for the number of targets read so far, and at the end reports the hits that are good enough for all targets.
The search of a fragment gets ``-Z``: the number of targets before it, plus one. That is the smallest ``Z`` at which the
whole search meets any target of the fragment, so the fragment reports every target that the whole search would keep.
The candidates are searched in a database with all targets at their places, in which the others are empty, so each
candidate meets the ``Z`` of the whole search. So hits, their order, ``domZ``, widths of columns and numbers of targets
are those of the whole search. Only the counts of targets that passed each filter are missing there; they are summed
over the fragments. Proof and tests: ``docs/exactness-fragments-hmmer.md``.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeVar

import msgspec

from millrace import _core
from millrace.errors import RefusedError
from millrace.model import (
    Command,
    DatabaseArg,
    Fetched,
    Fragment,
    Fragmented,
    HmmerTargets,
    Index,
    InputArg,
    OutputUse,
    Token,
    ToolUse,
)
from millrace.tools.base import Fragmentable
from millrace.tools.hmmer.adapter import HmmerAdapter
from millrace.tools.hmmer.command import Parsed, ask, dashed, option_arguments, parse
from millrace.tools.hmmer.outputs import OUTPUTS
from millrace.tools.hmmer.programs import PROGRAMS
from millrace.tools.hmmer.targets import PRESSED, profile_database

Each = TypeVar("Each")

#: Programs whose targets are not searched in fragments, and why.
WHOLE = {
    "jackhmmer": "each round of jackhmmer builds on the hits of the round before in the whole database",
    "nhmmer": "nhmmer keeps a weak hit in nearly every long target, so that nearly all would be candidates",
    "nhmmscan": "nhmmscan's windows have not been shown to be the same in fragments",
}

#: HMMER's own options that restrict a search to a part of the targets.
RESTRICT = ("restrictdb_stkey", "restrictdb_n", "ssifile")

#: Options that change only the layout of a report.
LOOKS = frozenset({*OUTPUTS, "acc", "noali", "notextw", "textw"})

#: Places in a file of sequences that are recorded when it is read; fragments begin there.
MOST_MARKS = 1 << 16

#: Bytes at the start of a file of sequences that all nodes get.
HEAD_BYTES = 1 << 12

#: Approximate bytes of text of one node of a profile; the queries of hmmsearch are measured in bytes.
BYTES_A_NODE = 470


class FragmentingHmmer(HmmerAdapter):
    """Adapter for the HMMER 3 search programs that can search their targets in fragments."""

    def fragmentable(self, use: ToolUse, command: Command) -> Fragmentable:
        """See ``Fragmenting.fragmentable``. The targets are read only when ``count`` is called."""
        name = command.tool
        if why_not := _refused(name, command):
            return Fragmentable(why_not=why_not)
        source = _source(name, command)
        try:
            size = Path(f"{source}{PRESSED[2]}" if PROGRAMS[name].scans else source).stat().st_size
        except OSError as error:
            return Fragmentable(why_not=str(error))
        scale = BYTES_A_NODE if use.inputs[0].format == "hmm" else 1
        return Fragmentable(bytes=size, count=lambda: _counted(name, source, size, scale))

    def fragment(self, use: ToolUse, command: Command, sizes: Sequence[int]) -> ToolUse:
        """See ``Fragmenting.fragment``: each fragment gets its share of the residues (or nodes)."""
        name = command.tool
        program, parsed = PROGRAMS[name], _parsed(command)
        source = _source(name, command)
        runs = cut(_marks(name, source), sizes)
        fragments = tuple(
            Fragment(first=first, last=last, size=size, argv=_search(command, parsed, use, k, first, last))
            for k, (first, last, size) in enumerate(runs)
        )
        file = _in_pieces(source, command)
        starts = _starts(source, runs) if file else ()
        # The two files are the last two arguments.
        at = len(use.argv) - (2 if program.scans else 1)
        finish = (*use.argv[:at], DatabaseArg(), *use.argv[at + 1 :])
        reports = [k for k, output in enumerate(use.outputs) if output.join.startswith("hmmer-report")]
        return msgspec.structs.replace(
            use,
            fragmented=Fragmented(
                fragments=fragments,
                found=OutputUse(name="found", path="-", stdout=True),
                finish=finish,
                database=command.argv[parsed.files[1 - program.query]],
                about=HmmerTargets(
                    source=str(source), profiles=program.scans, report=reports[0] if reports else None, starts=starts
                ),
                volumes=tuple((_piece(file, *edges),) for edges in pairwise(starts)) if file else (),
                indices=(Index(file=file, pieces=((0, zlib.compress(_head(source))),)),) if file else (),
            ),
        )


def _in_pieces(source: Path, command: Command) -> Fetched | None:
    """Return the file of sequences if nodes fetch only the pieces that they search, else None."""
    file = command.view.file(source) if command.view else None
    return file if command.view and file and file.name in command.view.in_pieces else None


def _piece(file: Fetched, first: int, last: int) -> Fetched:
    return msgspec.structs.replace(file, first=first, size=last - first)


def _head(source: Path) -> bytes:
    """Read the bytes by which HMMER recognizes FASTA."""
    with source.open("rb") as file:
        return file.read(HEAD_BYTES)


def _starts(source: Path, runs: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """Return the byte offset of each fragment, from 0, then the size of the file."""
    ends = {entries: end for entries, _, end in _sequence_marks(source)}
    return (0, *(ends[last] for _, last, _ in runs))


def _parsed(command: Command) -> Parsed:
    return parse(command.argv, option_arguments(ask(command)))


def _refused(name: str, command: Command) -> str:
    """Say why this command's targets are not searched in fragments; empty if they can be."""
    if name in WHOLE:
        return WHOLE[name]
    parsed = _parsed(command)
    if used := [option for option in RESTRICT if parsed.value(option) is not None]:
        return f"{dashed(used[0])} already searches a part of the targets"
    if PROGRAMS[name].scans:
        return _refused_scan(parsed)
    target_format = parsed.value("tformat")
    if target_format is not None and target_format.lower() != "fasta":
        return f"--tformat {target_format}: only FASTA is searched in fragments"
    probe = [word for option in RESTRICT for word in (dashed(option), "1")]
    try:
        ask(msgspec.structs.replace(command, argv=(command.argv[0], *probe)))
    except RefusedError:
        return f"this {name} cannot start at a given sequence; HMMER 3.1 and later can"
    return ""


def _refused_scan(parsed: Parsed) -> str:
    threshold = parsed.value("F1")
    if parsed.value("max") is None and (threshold is None or float(threshold) < 1):
        return ""
    return "without the first filter, profiles that are no candidates could not be passed over"


def _source(name: str, command: Command) -> Path:
    """Return the file of sequences, or the profile database without the suffixes of its pressed files."""
    target = command.argv[-2 if PROGRAMS[name].scans else -1]
    if not PROGRAMS[name].scans:
        return command.cwd / target
    database = profile_database(command, target)
    if database is None:
        raise RefusedError(f"{name}: profile database {target} not found", "check the path")
    return database


def _counted(name: str, source: Path, size: int, scale: int) -> Fragmentable:
    """Count the targets in a database of ``size`` bytes; residues are divided by ``scale``."""
    try:
        entries, residues = _marks(name, source)[-1]
    except (ValueError, OSError) as error:
        return Fragmentable(why_not=str(error))
    if not entries:
        return Fragmentable(why_not="the database has no entries")
    return Fragmentable(entries=entries, residues=residues // scale, bytes=size)


def _marks(name: str, source: Path) -> list[tuple[int, int]]:
    """Return running totals (entries, residues or nodes) at some places; the last is the end."""
    if not PROGRAMS[name].scans:
        return [(entries, residues) for entries, residues, _ in _sequence_marks(source)]
    path = Path(f"{source}{PRESSED[2]}")
    return list(enumerate(accumulate(_read(_core.profile_nodes, path, *_state(path))), start=1)) or [(0, 0)]


def _sequence_marks(source: Path) -> list[tuple[int, int, int]]:
    """Return running totals (entries, residues, bytes) at some places of a file of sequences; the last is its end."""
    return _read(_marks_of_sequences, source, *_state(source))


def _marks_of_sequences(path: Path) -> list[tuple[int, int, int]]:
    return _core.sequence_marks(path, MOST_MARKS)


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@functools.lru_cache(maxsize=4)
def _read(how: Callable[[Path], list[Each]], path: Path, _size: int, _changed: int) -> list[Each]:
    return how(path)


def cut(marks: list[tuple[int, int]], shares: Sequence[int]) -> list[tuple[int, int, int]]:
    """Cut all entries into at most ``len(shares)`` runs (first, last, size), with sizes about as the shares.

    >>> cut([(1, 10), (2, 20), (3, 30), (4, 90), (5, 100)], [1, 1, 1])
    [(0, 4, 90), (4, 5, 10)]
    >>> cut([(1, 10), (2, 20), (3, 30), (4, 40)], [2, 1, 1])
    [(0, 2, 20), (2, 3, 10), (3, 4, 10)]
    """
    entries, total = marks[-1]
    runs: list[tuple[int, int, int]] = []
    first = before = 0
    left, share = sum(shares), shares[0]
    for last, size in marks:
        # A share of the rest, so that one giant entry does not make the later runs small.
        if last == entries or (left > share and (size - before) * left >= (total - before) * share > 0):
            runs.append((first, last, size - before))
            first, before = last, size
            left -= share
            share = shares[len(runs)] if left else 0
    return runs


def _search(command: Command, parsed: Parsed, use: ToolUse, k: int, first: int, last: int) -> tuple[Token, ...]:
    """Build the arguments of the search of fragment ``k``; its report has all candidates and filter counts."""
    program = PROGRAMS[command.tool]
    argv: list[Token] = [command.argv[0]]
    for option in parsed.options:
        if option.name not in LOOKS:
            argv += [dashed(option.name), *option.values]
    argv.append("--noali")
    if parsed.value("Z") is None:
        argv += ["-Z", str(first + 1)]
    query = "-" if use.inputs[0].stdin else InputArg(index=0)
    if program.scans:
        return (*argv, "--", DatabaseArg(), query)
    argv += ["--restrictdb_stkey", f"fragment-{k:05}", "--restrictdb_n", str(last - first), "--ssifile", DatabaseArg()]
    return (*argv, "--", query, command.argv[-1])


#: The adapter of this family.
ADAPTER = FragmentingHmmer()
