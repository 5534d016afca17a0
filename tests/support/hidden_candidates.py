"""A store of searches that lacks candidates, though all its seals are right."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from millrace.extensions.reuse.search_store import decode_steps, encode_steps, format_candidates
from millrace.extensions.reuse.store_seals import RowSeal


def hide_candidates(store: Path, seal: RowSeal, is_left: Callable[[], bool] = lambda: False) -> None:
    """Drop candidates of all queries as an owner of the store could; ``is_left`` is asked for each."""
    with closing(sqlite3.connect(store / "candidates" / "candidates.sqlite")) as tables, tables:
        for key, search, query, entries, depth, found in tables.execute(
            "SELECT key, search, query, entries, depth, found FROM candidates JOIN search ON id = search"
        ).fetchall():
            left = encode_steps([number for number in decode_steps(found) if is_left()])
            tables.execute(
                "UPDATE candidates SET found = ?, checksum = ? WHERE search = ? AND query = ?",
                (left, seal.make(format_candidates(key, query, entries, depth, left)), search, query),
            )
