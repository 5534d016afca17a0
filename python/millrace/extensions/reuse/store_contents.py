"""What a store of searches has, in figures, and whether it is damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from millrace.core.tool_use import DatabaseArg, InputArg, OutputArg, ScratchArg, ThreadsArg
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


class KeptRows(NamedTuple):
    """The number of queries and batches of which something is kept."""

    n_queries: int
    n_batches: int


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


def count_kept(store: SearchStore) -> KeptRows:
    """Count the queries and batches of which something is kept.

    Raises:
        CorruptError: The tables are damaged.
    """
    found = list_searches(store)
    return KeptRows(sum(each.n_queries for each in found), sum(each.n_batches for each in found))


def _describe_key(key: str) -> str:
    """Describe the key of a search by program, version and the user's options.

    >>> _describe_key('["blastp", "blastp: 2.12.0+", "p", ["-query", "InputArg", "-evalue", "1", "-db", "DatabaseArg", "-html"], {}]')
    'blastp 2.12.0+ -evalue 1'
    >>> _describe_key("results blastp 0a1b2c3d4e5f")
    'results of blastp, command 0a1b2c3d'
    """
    if key.startswith("results "):
        tool, _, digest = key.removeprefix("results ").rpartition(" ")
        return f"results of {tool}, command {digest[:8]}"
    try:
        program, version, _, words, _ = msgspec.convert(
            json.loads(key), tuple[str, str, str, list[str], dict[str, str]]
        )
    except (ValueError, msgspec.ValidationError):
        return "damaged"
    version = version.replace(f"{program}:", program)
    return " ".join([version if program in version else f"{program} {version}", *_select_user_words(words)])


def _select_user_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the options of the user's command, without those that name files, which are no part of a key.

    In a key a file stands as the name of its type, such as ``InputArg``; behind the database are the options of Millrace's
    own search.
    """
    own = words.index(DatabaseArg.__name__) - 1 if DatabaseArg.__name__ in words else len(words)
    files = {InputArg.__name__, OutputArg.__name__, ThreadsArg.__name__, ScratchArg.__name__}
    for word, value in zip(words[:own], [*words[1:own], ""], strict=True):
        if word not in files and not (value in files and word.startswith("-")):
            yield word


def check_contents(store: SearchStore) -> StoreDamage:
    """Compare all rows and sets of entries with their checksums.

    Raises:
        CorruptError: The tables are damaged.
    """
    rows = list(store.check_rows())
    sets = [store.read_entries(name) is not None for name in store.list_sets()]
    return StoreDamage(len(rows), rows.count(False), len(sets), sets.count(False))
