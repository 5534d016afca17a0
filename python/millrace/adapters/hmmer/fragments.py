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
from millrace.adapters.adapter_base import CandidateListReader, DatabaseFacts, QueryCandidates, ReusableSearch
from millrace.adapters.hmmer import candidate_reuse
from millrace.adapters.hmmer.adapter import HmmerAdapter
from millrace.adapters.hmmer.command_line import (
    LOOKS,
    PROGRAMS,
    HmmerCommandLine,
    add_dashes,
    add_searched_files,
    parse_command_line,
    parse_help_options,
    read_help_page,
)
from millrace.adapters.hmmer.inputs import PRESSED, find_profile_database
from millrace.core.errors import RefusedError
from millrace.core.tool_use import (
    ArgumentToken,
    DatabaseArg,
    DatabaseFragment,
    FetchedFile,
    FragmentPlan,
    HmmerTargets,
    OutputUse,
    ToolUse,
    UserCommand,
    VolumeIndex,
)

Each = TypeVar("Each")

#: Programs whose targets are not searched in fragments, and why.
WHOLE = {
    "jackhmmer": "each round of jackhmmer builds on the hits of the round before in the whole database",
    "nhmmer": "nhmmer keeps a weak hit in nearly every long target, so that nearly all would be candidates",
    "nhmmscan": "nhmmscan's windows have not been shown to be the same in fragments",
}

#: HMMER's own options that restrict a search to a part of the targets.
RESTRICT = ("restrictdb_stkey", "restrictdb_n", "ssifile")

#: Places in a file of sequences that are recorded when it is read; fragments begin there.
MAX_MARKS = 1 << 16

#: Bytes at the start of a file of sequences that all nodes get.
HEAD_BYTES = 1 << 12

#: See ``DatabaseFacts.finish``: measured with phmmer and the real relatives of each query among 20 MB of sequences; where
#: there are fewer, it is less.
FINISH = 0.4

#: Approximate bytes of text of one node of a profile; the queries of hmmsearch are measured in bytes.
BYTES_A_NODE = 470


class HmmerFragmentingAdapter(HmmerAdapter):
    """Adapter for the HMMER 3 search programs that can search their targets in fragments."""

    def examine_database(self, use: ToolUse, command: UserCommand) -> DatabaseFacts:
        """See ``FragmentingAdapter.examine_database``. The targets are read only when ``count`` is called."""
        name = command.tool
        if why_not := _explain_refusal(name, command):
            return DatabaseFacts(why_not=why_not)
        source = _find_target_file(name, command)
        try:
            size = Path(f"{source}{PRESSED[2]}" if PROGRAMS[name].scans else source).stat().st_size
        except OSError as error:
            return DatabaseFacts(why_not=str(error))
        scale = BYTES_A_NODE if use.inputs[0].format == "hmm" else 1
        return DatabaseFacts(bytes=size, finish=FINISH, count=lambda: _count_targets(name, source, size, scale))

    def plan_fragments(
        self, use: ToolUse, command: UserCommand, sizes: Sequence[int], later: Sequence[FetchedFile] = ()
    ) -> ToolUse:
        """See ``FragmentingAdapter.plan_fragments``: each fragment gets its share of the residues (or nodes)."""
        name = command.tool
        program, parsed = PROGRAMS[name], _parse_command(command)
        source = _find_target_file(name, command)
        runs = cut_targets(_read_marks(name, source), sizes)
        fragments = tuple(
            DatabaseFragment(
                first=first, last=last, size=size, argv=_build_search_arguments(command, parsed, use, k, first, last)
            )
            for k, (first, last, size) in enumerate(runs)
        )
        file = _find_piece_file(source, command)
        starts = _find_fragment_starts(source, runs) if file else ()
        # The two files are the last two arguments.
        at = len(use.argv) - (2 if program.scans else 1)
        finish = (*use.argv[:at], DatabaseArg(), *use.argv[at + 1 :])
        reports = [k for k, output in enumerate(use.outputs) if output.join.startswith("hmmer-report")]
        return msgspec.structs.replace(
            use,
            fragmented=FragmentPlan(
                fragments=fragments,
                found=OutputUse(name="found", path="-", stdout=True),
                finish=finish,
                database=command.argv[parsed.files[1 - program.query]],
                about=HmmerTargets(
                    source=str(source), profiles=program.scans, report=reports[0] if reports else None, starts=starts
                ),
                volumes=tuple((_cut_piece(file, *edges),) for edges in pairwise(starts)) if file else (),
                indices=(VolumeIndex(file=file, pieces=((0, zlib.compress(_read_head(source))),)),) if file else (),
            ),
        )

    def describe_reusable_search(self, use: ToolUse, command: UserCommand) -> ReusableSearch:
        """See ``ReusingAdapter.describe_reusable_search``."""
        return candidate_reuse.describe_reusable_search(use, command, _parse_command(command))

    def plan_reuse(
        self, use: ToolUse, command: UserCommand, new: Sequence[tuple[int, int]] | None, known_depth: float, *, is_kept: bool,
    ) -> ToolUse:  # fmt: skip
        """See ``ReusingAdapter.plan_reuse``."""
        return candidate_reuse.plan_reuse(use, command, _parse_command(command), new)

    def format_candidates(self, queries: Sequence[QueryCandidates]) -> bytes:
        """See ``ReusingAdapter.format_candidates``."""
        return candidate_reuse.format_candidates(queries)

    def make_list_reader(self, use: ToolUse, command: UserCommand) -> CandidateListReader:
        """See ``ReusingAdapter.make_list_reader``."""
        assert use.fragmented  # it was searched in fragments
        return candidate_reuse.make_list_reader(use.fragmented)


def _find_piece_file(source: Path, command: UserCommand) -> FetchedFile | None:
    """Return the file of sequences if nodes fetch only the pieces that they search, else None."""
    file = command.view.find_file(source) if command.view else None
    return file if command.view and file and file.name in command.view.in_pieces else None


def _cut_piece(file: FetchedFile, first: int, last: int) -> FetchedFile:
    return msgspec.structs.replace(file, first=first, size=last - first)


def _read_head(source: Path) -> bytes:
    """Read the bytes by which HMMER recognizes FASTA."""
    with source.open("rb") as file:
        return file.read(HEAD_BYTES)


def _find_fragment_starts(source: Path, runs: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """Return the byte offset of each fragment, from 0, then the size of the file."""
    ends = {entries: end for entries, _, end in _read_sequence_marks(source)}
    return (0, *(ends[last] for _, last, _ in runs))


def _parse_command(command: UserCommand) -> HmmerCommandLine:
    return parse_command_line(command.argv, parse_help_options(read_help_page(command)))


def _explain_refusal(name: str, command: UserCommand) -> str:
    """Say why this command's targets are not searched in fragments; empty if they can be."""
    if name in WHOLE:
        return WHOLE[name]
    parsed = _parse_command(command)
    if used := [option for option in RESTRICT if parsed.get_value(option) is not None]:
        return f"{add_dashes(used[0])} already searches a part of the targets"
    if PROGRAMS[name].scans:
        return _explain_scan_refusal(parsed)
    target_format = parsed.get_value("tformat")
    if target_format is not None and target_format.lower() != "fasta":
        return f"--tformat {target_format}: only FASTA is searched in fragments"
    probe = [word for option in RESTRICT for word in (add_dashes(option), "1")]
    try:
        read_help_page(msgspec.structs.replace(command, argv=(command.argv[0], *probe)))
    except RefusedError:
        return f"this {name} cannot start at a given sequence; HMMER 3.1 and later can"
    return ""


def _explain_scan_refusal(parsed: HmmerCommandLine) -> str:
    threshold = parsed.get_value("F1")
    if parsed.get_value("max") is None and (threshold is None or float(threshold) < 1):
        return ""
    return "without the first filter, profiles that are no candidates could not be passed over"


def _find_target_file(name: str, command: UserCommand) -> Path:
    """Return the file of sequences, or the profile database without the suffixes of its pressed files."""
    target = command.argv[-2 if PROGRAMS[name].scans else -1]
    if not PROGRAMS[name].scans:
        return command.cwd / target
    database = find_profile_database(command, target)
    if database is None:
        raise RefusedError(f"{name}: profile database {target} not found", "check the path")
    return database


def _count_targets(name: str, source: Path, size: int, scale: int) -> DatabaseFacts:
    """Count the targets in a database of ``size`` bytes; residues are divided by ``scale``."""
    try:
        entries, residues = _read_marks(name, source)[-1]
    except (ValueError, OSError) as error:
        return DatabaseFacts(why_not=str(error))
    if not entries:
        return DatabaseFacts(why_not="the database has no entries")
    return DatabaseFacts(entries=entries, residues=residues // scale, bytes=size)


def _read_marks(name: str, source: Path) -> list[tuple[int, int]]:
    """Return running totals (entries, residues or nodes) at some places; the last is the end."""
    if not PROGRAMS[name].scans:
        return [(entries, residues) for entries, residues, _ in _read_sequence_marks(source)]
    path = Path(f"{source}{PRESSED[2]}")
    return list(enumerate(accumulate(_read_cached(_core.profile_nodes, path, *_get_file_state(path))), start=1)) or [
        (0, 0)
    ]


def _read_sequence_marks(source: Path) -> list[tuple[int, int, int]]:
    """Return running totals (entries, residues, bytes) at some places of a file of sequences; the last is its end."""
    return _read_cached(_scan_sequence_marks, source, *_get_file_state(source))


def _scan_sequence_marks(path: Path) -> list[tuple[int, int, int]]:
    return _core.sequence_marks(path, MAX_MARKS)


def _get_file_state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@functools.lru_cache(maxsize=4)
def _read_cached(how: Callable[[Path], list[Each]], path: Path, _size: int, _changed: int) -> list[Each]:
    return how(path)


def cut_targets(marks: list[tuple[int, int]], shares: Sequence[int]) -> list[tuple[int, int, int]]:
    """Cut all entries into at most ``len(shares)`` runs (first, last, size), with sizes about as the shares.

    >>> cut_targets([(1, 10), (2, 20), (3, 30), (4, 90), (5, 100)], [1, 1, 1])
    [(0, 4, 90), (4, 5, 10)]
    >>> cut_targets([(1, 10), (2, 20), (3, 30), (4, 40)], [2, 1, 1])
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


def _build_search_arguments(
    command: UserCommand, parsed: HmmerCommandLine, use: ToolUse, k: int, first: int, last: int
) -> tuple[ArgumentToken, ...]:
    """Build the arguments of the search of fragment ``k``; its report has all candidates and filter counts."""
    argv: list[ArgumentToken] = [command.argv[0]]
    for option in parsed.options:
        if option.name not in LOOKS:
            argv += [add_dashes(option.name), *option.values]
    argv.append("--noali")
    if parsed.get_value("Z") is None:
        argv += ["-Z", str(first + 1)]
    return add_searched_files(argv, command, use, k, last - first)


#: The adapter of this family.
ADAPTER = HmmerFragmentingAdapter()
