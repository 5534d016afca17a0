"""The codec for results of HMMER 3: the targets that they name, and their profiles or sequences."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from millrace.adapters.database_backend import FragmentOutput
from millrace.adapters.hmmer.command_line import OUTPUTS, add_dashes
from millrace.core.errors import MillraceError
from millrace.core.tool_use import FragmentPlan, HmmerTargets, OutputUse, ToolUse, UserCommand
from millrace.extensions.pack import hits, known_databases
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.known_databases import DatabaseEntries, digest_entries
from millrace.extensions.pack.layout import PackedDatabase
from millrace.extensions.pack.result_codec import (
    CandidateReader,
    NotPackableError,
    QueryBatch,
    collect_named_ordinals,
)

#: Columns of the target and of the query, by the name of a table.
_TABLES = {"tblout": (0, 2), "domtblout": (0, 3)}

#: A line with the number of targets that passed a filter.
_PASSED = re.compile(rb"^Passed (?:MSV|bias|Vit|Fwd) filter: +(\d+)")

#: Index of the target among the words of a row in a report.
_ROW = 8


class NamedTargets(NamedTuple):
    """The targets and filter counts that a result names, for each batch."""

    #: Words that may be names of targets.
    targets: list[set[bytes]]
    #: Numbers of targets that passed the four filters, query after query; empty where the result does not list them.
    passed: list[list[int]]


def read_named_targets(
    names: Sequence[str], report: int | None, outputs: Sequence[Path], batches: Sequence[QueryBatch]
) -> NamedTargets | None:
    """Read the targets of each batch from a result; None if the query of a line is uncertain.

    Args:
        names: Names of the outputs, in order.
        report: Index of the report among them; None: there is no report.
    """
    if report is not None:
        with outputs[report].open("rb") as lines:
            return _collect_from_report(lines, batches)
    for name, path in zip(names, outputs, strict=True):
        if name in _TABLES:
            with path.open("rb") as lines:
                return _collect_from_table(lines, *_TABLES[name], batches)
    return None


def read_report(lines: Iterable[bytes], queries: int) -> NamedTargets | None:
    """Read a report as one batch; None if it has not ``queries`` queries."""
    return _collect_from_report(lines, [QueryBatch(0, queries, (0, 0))])


def _collect_from_report(lines: Iterable[bytes], batches: Sequence[QueryBatch]) -> NamedTargets | None:
    ends = list(accumulate(batch.last - batch.first for batch in batches))
    found: list[set[bytes]] = [set() for _ in batches]
    passed: list[list[int]] = [[] for _ in batches]
    query, batch = -1, -1
    for line in lines:
        if line.startswith(b"Query:"):
            query += 1
            if query == (ends[batch] if batch >= 0 else 0):
                batch += 1
            if batch == len(ends):
                return None
        elif batch >= 0:
            if count := _PASSED.match(line):
                passed[batch].append(int(count[1]))
            words = line.split(None, _ROW + 1)
            if words[:1] == [b">>"]:
                found[batch].update(words[1:2])
            elif len(words) > _ROW:
                found[batch].add(words[_ROW])
    return NamedTargets(found, passed) if query + 1 == (ends[-1] if ends else 0) else None


def _collect_from_table(
    lines: Iterable[bytes], target: int, query: int, batches: Sequence[QueryBatch]
) -> NamedTargets | None:
    names = [(name, number) for number, batch in enumerate(batches) for name in batch.names]
    if len(names) != sum(batch.last - batch.first for batch in batches):
        return None
    found: list[set[bytes]] = [set() for _ in batches]
    at, last = -1, None
    for line in lines:
        words = line.split(None, query + 1)
        if line.startswith(b"#") or len(words) <= query:
            continue
        if words[query] != last:
            last = words[query]
            at += 1
            while at < len(names) and names[at][0] != last:
                at += 1
            if at == len(names):
                return None
        found[names[at][1]].add(words[target])
    return NamedTargets(found, [[] for _ in batches])


#: The statistics that a report has at the end of one query.
_COUNTS = b"""Internal pipeline statistics summary:
Target model(s): %d (%d
Passed MSV filter: %d
Passed bias filter: %d
Passed Vit filter: %d
Passed Fwd filter: %d
//
"""

#: Number of filters in these statistics.
_FILTERS = 4

_ROWS = b"""Scores for complete sequence
    ------- ------ -----
%s
"""


class HmmerCodec:
    """The ``millrace.extensions.pack.result_codec.ResultCodec`` of HMMER 3."""

    def drop_speed_options(self, argv: Sequence[str]) -> Sequence[str]:
        """Implement ``ResultCodec.drop_speed_options``: change nothing, as the adapter sets the threads."""
        return argv

    def list_output_paths(self, argv: Sequence[str]) -> Sequence[str]:
        """Implement ``ResultCodec.list_output_paths``."""
        names, found = {add_dashes(name) for name in OUTPUTS}, []
        for word, following in pairwise([*argv, ""]):
            name, equals, value = word.partition("=")
            if name in names:
                found.append(value if equals else following)
        return [path for path in found if path not in ("", os.devnull)]

    def build_search_command(self, argv: Sequence[str], output: str) -> None:
        """Implement ``ResultCodec.build_search_command``: every result names its hits."""

    def list_volatile_patterns(self, output: OutputUse) -> Sequence[str]:
        """Implement ``ResultCodec.list_volatile_patterns``: the folder, and the day of the search."""
        return (r"^# Current dir: .*$", r"^# Date: .*$")

    def describe_database(
        self, use: ToolUse, command: UserCommand, *, like: PackedDatabase | None = None
    ) -> PackedDatabase:
        """Implement ``ResultCodec.describe_database``. More entries make another database, as E-values depend on their number."""
        about = _require_hmmer_targets(use)
        found = known_databases.get_database_entries(
            (about.source, *use.databases), None, command.environ, lambda: _digest_targets(about)
        )
        return PackedDatabase(
            name=use.fragmented.database if use.fragmented else "", title="", entries=found.entries, residues=found.residues,
            ordered=found.ordered, unordered=found.unordered,
        )  # fmt: skip

    def read_result_hits(
        self, use: ToolUse, command: UserCommand, outputs: Sequence[Path], batches: Sequence[QueryBatch]
    ) -> list[BatchHits] | None:
        """Implement ``ResultCodec.read_result_hits``."""
        about = _require_hmmer_targets(use)
        words = read_named_targets([each.name for each in use.outputs], about.report, outputs, batches)
        if words is None:
            return None
        names = _index_targets_by_name(about)
        found = [collect_named_ordinals(names, list(each)) for each in words.targets]
        return [
            BatchHits(batch.last - batch.first, sorted(entries), hits.encode_numbers(passed))
            for batch, entries, passed in zip(batches, found, words.passed, strict=True)
        ]

    def make_candidate_reader(self, fragmented: FragmentPlan, cwd: Path, environ: Mapping[str, str]) -> CandidateReader:
        """Implement ``ResultCodec.make_candidate_reader``, from the report of each fragment."""
        assert isinstance(fragmented.about, HmmerTargets)  # by which this codec was found
        names = _index_targets_by_name(fragmented.about)

        def read_hits(queries: int, found: Sequence[FragmentOutput]) -> BatchHits:
            told = [read_report(bytes(report).splitlines(keepends=True), queries) for report in found]
            if None in told:
                raise MillraceError("HMMER has written a report that is not understood", "run it without --pack-to")
            reports = [each for each in told if each]
            entries = {entry for each in reports for entry in collect_named_ordinals(names, list(each.targets[0]))}
            passed = [sum(counts) for counts in zip(*(each.passed[0] for each in reports), strict=True)]
            return BatchHits(queries, sorted(entries), hits.encode_numbers(passed))

        return read_hits

    def format_search_blocks(self, use: ToolUse, command: UserCommand, batches: Sequence[BatchHits]) -> Iterator[bytes]:
        """Implement ``ResultCodec.format_search_blocks``: a report."""
        entries = list(_read_target_texts(_require_hmmer_targets(use)))
        names = [_get_target_name(entry) for entry in entries]
        sizes = (len(entries), sum(map(_count_residues, entries)))
        for batch in batches:
            rows = b"".join(b"0 0 0 0 0 0 0 0 %s\n" % names[entry] for entry in batch.entries)
            passed = [*hits.decode_numbers(batch.more), *[0] * _FILTERS * batch.queries][: _FILTERS * batch.queries]
            counts = (passed[at : at + _FILTERS] for at in range(0, len(passed), _FILTERS))
            yield _ROWS % rows + b"".join(_COUNTS % (*sizes, *each) for each in counts) + b"[ok]\n"

    def adopt_packed_database(self, fragmented: FragmentPlan, database: PackedDatabase) -> FragmentPlan:
        """Implement ``ResultCodec.adopt_packed_database``."""
        return msgspec.structs.replace(fragmented, database=database.name)

    def resolve_database_name(self, name: str, cwd: Path, environ: Mapping[str, str]) -> str:
        """Implement ``ResultCodec.resolve_database_name``. A name without a folder may be in a folder of ``PFAMDB``."""
        path = cwd / name
        return str(path) if path.exists() or path.with_name(f"{path.name}.h3f").exists() else path.name

    def format_database_argument(self, use: ToolUse, command: UserCommand) -> str:
        """Implement ``ResultCodec.format_database_argument``."""
        return str(Path(_require_hmmer_targets(use).source).resolve())


def _require_hmmer_targets(use: ToolUse) -> HmmerTargets:
    about = use.fragmented.about if use.fragmented else None
    assert isinstance(about, HmmerTargets)  # it is to be searched
    return about


def _digest_targets(about: HmmerTargets) -> DatabaseEntries:
    """Read and digest all targets."""
    return digest_entries((entry, _count_residues(entry)) for entry in _read_target_texts(about))


def _read_target_texts(about: HmmerTargets) -> Iterator[bytes]:
    """Yield the text of each target: a profile, or the title and letters of a sequence without its line breaks."""
    begin = b"HMMER3" if about.profiles else b">"
    kept: list[bytes] = []
    try:
        with open(about.source, "rb") as lines:
            for line in lines:
                if line.startswith(begin) and kept:
                    yield b"".join(kept)
                    kept = []
                kept.append(line if about.profiles or line.startswith(b">") else line.strip())
    except OSError as error:
        raise NotPackableError(f"{about.source}: {error.strerror}; it tells what the database holds") from error
    if kept:
        yield b"".join(kept)


def _index_targets_by_name(about: HmmerTargets) -> Mapping[bytes, Sequence[int]]:
    """Return the ordinals of the targets, by name."""
    names: dict[bytes, list[int]] = defaultdict(list)
    for number, entry in enumerate(_read_target_texts(about)):
        names[_get_target_name(entry)].append(number)
    return names


def _count_residues(entry: bytes) -> int:
    """Return the number of nodes of a profile, or of letters of a sequence."""
    if entry.startswith(b">"):
        return len(entry) - entry.find(b"\n") - 1
    found = next((line for line in entry.split(b"\n") if line.startswith(b"LENG")), b"LENG 0")
    return int(found.split()[1])


def _get_target_name(entry: bytes) -> bytes:
    """Return the name that HMMER gives a target."""
    if entry.startswith(b">"):
        return (entry[1:].split(None, 1) or [b""])[0]
    found = next((line for line in entry.split(b"\n") if line.startswith(b"NAME")), b"NAME ?")
    return found.split()[1]


#: The codec of this family.
CODEC = HmmerCodec()
