"""Reader of HMMER results: the targets that they name, for each batch of queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from millrace.pack.queries import QueryBatch

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
