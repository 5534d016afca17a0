"""A store of searches that lacks candidates, though all its seals are right."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from millrace.adapters.adapter_base import QueryCandidates
from millrace.extensions.reuse.search_store import decode_candidates, encode_candidates, format_candidates
from millrace.extensions.reuse.store_seals import RowSeal


def hide_candidates(
    store: Path, seal: RowSeal, is_left: Callable[[], bool] = lambda: False,
    change_counts: Callable[[Sequence[int]], Sequence[int]] = tuple,
) -> None:  # fmt: skip
    """Drop candidates of all queries as an owner of the store could; ``is_left`` is asked for each."""
    with closing(sqlite3.connect(store / "candidates" / "candidates.sqlite")) as tables, tables:
        for key, search, query, entries, depth, found in tables.execute(
            "SELECT key, search, query, entries, depth, found FROM candidates JOIN search ON id = search"
        ).fetchall():
            numbers, counts = decode_candidates(found)
            left = encode_candidates(
                QueryCandidates([number for number in numbers if is_left()], tuple(change_counts(counts)))
            )
            tables.execute(
                "UPDATE candidates SET found = ?, checksum = ? WHERE search = ? AND query = ?",
                (left, seal.make(format_candidates(key, query, entries, depth, left)), search, query),
            )
