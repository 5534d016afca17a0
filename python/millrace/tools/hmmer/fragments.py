"""HMMER in fragments of its targets: which programs and options, and with which arguments.

Exactness. HMMER compares a query with one target after the other, and keeps a target as a hit if its E-value is good
enough for the number of targets read so far; in the end it reports the hits that are good enough for all. The search
of a fragment gets the number of targets before it and one more as ``-Z``, the smallest number that any target of it
meets in the search of the whole: so it reports all that the whole would keep. The candidates are searched in a
database with all targets at their places, of which those that are no candidates are empty; there each candidate
meets the number of targets that it meets in the whole. So hits, their order, ``domZ``, widths of columns and numbers
of targets are those of the whole. What it cannot know, how many of the others passed each filter, is summed up over the
fragments. Proof and tests: ``docs/exactness-fragments-hmmer.md``.
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

#: Programs whose targets are not searched in fragments, with the reason.
WHOLE = {
    "jackhmmer": "each round of jackhmmer builds on the hits of the round before in the whole database",
    "nhmmer": "nhmmer keeps a weak hit in nearly every long target, so that nearly all would be candidates",
    "nhmmscan": "nhmmscan's windows have not been shown to be the same in fragments",
}

#: Options that make a fragment, as HMMER itself offers them.
RESTRICT = ("restrictdb_stkey", "restrictdb_n", "ssifile")

#: Options that only change what a report looks like.
LOOKS = frozenset({*OUTPUTS, "acc", "noali", "notextw", "textw"})

#: Places in a file of sequences that are remembered when it is read; fragments begin there.
MOST_MARKS = 1 << 16

#: Bytes at the begin of a file of sequences that all nodes get.
HEAD_BYTES = 1 << 12

#: Bytes of text that a node of a profile takes, about: the queries of hmmsearch are measured in these.
BYTES_A_NODE = 470


class FragmentingHmmer(HmmerAdapter):
    """The HMMER 3 search programs, with fragments of their targets."""

    def fragmentable(self, use: ToolUse, command: Command) -> Fragmentable:
        """See `Fragmenting`; the targets are read through when they are counted."""
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
        """Give each fragment its share of the residues (or nodes)."""
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
    """The file of sequences, if nodes fetch the pieces of it that they search."""
    file = command.view.file(source) if command.view else None
    return file if command.view and file and file.name in command.view.in_pieces else None


def _piece(file: Fetched, first: int, last: int) -> Fetched:
    return msgspec.structs.replace(file, first=first, size=last - first)


def _head(source: Path) -> bytes:
    """What HMMER looks at to see that it is FASTA."""
    with source.open("rb") as file:
        return file.read(HEAD_BYTES)


def _starts(source: Path, runs: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """Offsets at which fragments begin, and the size of the file. What is before the first sequence goes with it."""
    ends = {entries: end for entries, _, end in _sequence_marks(source)}
    return (0, *(ends[last] for _, last, _ in runs))


def _parsed(command: Command) -> Parsed:
    return parse(command.argv, option_arguments(ask(command)))


def _refused(name: str, command: Command) -> str:
    """Why this command's targets are not searched in fragments; empty if they are."""
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
    """The file of sequences, or the profile database without the suffixes of its pressed files."""
    target = command.argv[-2 if PROGRAMS[name].scans else -1]
    if not PROGRAMS[name].scans:
        return command.cwd / target
    database = profile_database(command, target)
    if database is None:
        raise RefusedError(f"{name}: profile database {target} not found", "check the path")
    return database


def _counted(name: str, source: Path, size: int, scale: int) -> Fragmentable:
    """What a database of ``size`` bytes holds; its residues count a ``scale``-th."""
    try:
        entries, residues = _marks(name, source)[-1]
    except (ValueError, OSError) as error:
        return Fragmentable(why_not=str(error))
    if not entries:
        return Fragmentable(why_not="the database has no entries")
    return Fragmentable(entries=entries, residues=residues // scale, bytes=size)


def _marks(name: str, source: Path) -> list[tuple[int, int]]:
    """(entries, residues or nodes) up to some places, the last one the end."""
    if not PROGRAMS[name].scans:
        return [(entries, residues) for entries, residues, _ in _sequence_marks(source)]
    path = Path(f"{source}{PRESSED[2]}")
    return list(enumerate(accumulate(_read(_core.profile_nodes, path, *_state(path))), start=1)) or [(0, 0)]


def _sequence_marks(source: Path) -> list[tuple[int, int, int]]:
    """(entries, residues, bytes) up to some places of a file of sequences, the last one its end."""
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
    """(first, last, size) of at most as many runs as ``shares``, about so large, which together are all entries.

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
        # A share of what is left, so that one giant entry does not make those after it small.
        if last == entries or (left > share and (size - before) * left >= (total - before) * share > 0):
            runs.append((first, last, size - before))
            first, before = last, size
            left -= share
            share = shares[len(runs)] if left else 0
    return runs


def _search(command: Command, parsed: Parsed, use: ToolUse, k: int, first: int, last: int) -> tuple[Token, ...]:
    """Arguments of the search of fragment ``k``: its report names all candidates, and counts."""
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
