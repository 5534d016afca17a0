"""What a store of searches has, in figures, and whether it is damaged."""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec

from millrace.extensions.reuse.search_store import SearchStore


class StoredSearch(NamedTuple):
    """What is kept of one search, or of the results of one command."""

    #: In words.
    search: str
    n_queries: int
    n_batches: int
    bytes: int
    #: Time of the last use, in seconds since 1970, up to an hour early.
    used: float


class StoreDamage(NamedTuple):
    """The number of rows and sets of entries, and of those that are damaged."""

    n_rows: int
    n_damaged_rows: int
    n_sets: int
    n_damaged_sets: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not (self.n_damaged_rows or self.n_damaged_sets)


def list_searches(store: SearchStore) -> list[StoredSearch]:
    """List what is kept, the last used first.

    Raises:
        CorruptError: The tables are damaged.
    """
    found = [
        StoredSearch(_describe_key(str(key)), n_queries, n_batches, size, used)
        for key, n_queries, n_batches, size, used in store.count_rows()
    ]
    return sorted(found, key=lambda each: -each.used)


def _describe_key(key: str) -> str:
    """Describe the key of a search.

    >>> _describe_key('["blastp", "blastp 2.12.0+", "p", ["-evalue", "1"], {}]'), _describe_key("results 0a1b2c3d4e5f")
    ('blastp 2.12.0+ -evalue 1', 'results of the command 0a1b2c3d')
    """
    if key.startswith("results "):
        return f"results of the command {key.removeprefix('results ')[:8]}"
    try:
        program, version, _, words, _ = msgspec.convert(
            json.loads(key), tuple[str, str, str, list[str], dict[str, str]]
        )
    except (ValueError, msgspec.ValidationError):
        return "damaged"
    return " ".join([version if program in version else f"{program} {version}", *words])


def check_contents(store: SearchStore) -> StoreDamage:
    """Compare all rows and sets of entries with their checksums.

    Raises:
        CorruptError: The tables are damaged.
    """
    rows = list(store.check_rows())
    sets = [store.read_entries(name) is not None for name in store.list_sets()]
    return StoreDamage(len(rows), rows.count(False), len(sets), sets.count(False))
