"""The store of searches: a folder with one database of SQLite and the entries of databases that were searched.

A row of candidates has those of one query in one set of entries, as numbers among the sorted digests of the set, with
the depth down to which they are all there. A row of results has what a tool wrote for one batch of records. Each row has a
seal (``store_seals``) and each set a checksum: what is damaged counts as unknown.
Several runs may read and write at the same time; a run that is killed leaves the store as it was before.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from millrace.adapters.adapter_base import QueryCandidates
from millrace.core.errors import CorruptError, RefusedError
from millrace.extensions.pack.hits import decode_numbers, encode_numbers
from millrace.extensions.reuse.store_seals import ChecksumSeal, RowSeal
from millrace.host import permissions
from millrace.host.permissions import replace_file

#: Version of the tables; a store of another version is refused.
VERSION = 2

#: Seconds for which a writer waits for another.
WAIT_SECONDS = 60.0

#: Bytes that a store may take before the rows that were not used for longest go, unless the user says otherwise.
DEFAULT_MAX_BYTES = 20 << 30

#: Seconds by which the time of the last use may be behind: a row is not written again for each use.
USE_GRAIN_SECONDS = 3600.0

#: Queries in one statement.
_PIECE = 500

#: Bytes of rows that are kept at once, about, and of a row without what was found.
PIECE_BYTES, _ROW_BYTES = 16 << 20, 200

#: Name of the file of a set of entries.
_SET_NAME = re.compile(r"[0-9a-f]{32}")

_TABLES = """
CREATE TABLE IF NOT EXISTS search (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS candidates (
    search INTEGER NOT NULL, query BLOB NOT NULL, entries BLOB NOT NULL, depth REAL NOT NULL, found BLOB NOT NULL,
    checksum BLOB NOT NULL, used REAL NOT NULL, PRIMARY KEY (search, query)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS used ON candidates (used);
CREATE TABLE IF NOT EXISTS results (
    search INTEGER NOT NULL, content BLOB NOT NULL, first BLOB NOT NULL, records INTEGER NOT NULL, blocks BLOB NOT NULL,
    checksum BLOB NOT NULL, used REAL NOT NULL, UNIQUE (search, content)
);
CREATE INDEX IF NOT EXISTS results_used ON results (used);
"""

#: Tables whose rows go when they were not used for longest.
_EVICTED = ("candidates", "results")


class KeptCandidates(NamedTuple):
    """The candidates of one query."""

    #: Name of the set of entries that was searched.
    entries: bytes
    #: Numbers among the sorted digests of that set, ascending.
    numbers: tuple[int, ...]
    #: What else was counted in all of the set.
    counts: tuple[int, ...]
    depth: float
    seal: bytes


class KeptResult(NamedTuple):
    """What a tool wrote for a batch of records."""

    #: Digest of the bytes of all its records, and of those of the first one.
    content: bytes
    first: bytes
    n_records: int
    #: Its outputs, compressed.
    blocks: bytes


class SealedRows(NamedTuple):
    """Rows of one search as they are kept, each with its seal last."""

    key: str
    #: Query, name of the set of entries, depth, and what was found.
    candidates: Sequence[tuple[bytes, bytes, float, bytes, bytes]] = ()
    #: Digests of all records and of the first, number of records, and outputs.
    results: Sequence[tuple[bytes, bytes, int, bytes, bytes]] = ()


_Row = TypeVar("_Row", bound=tuple[bytes, bytes, float, bytes, bytes])

_CHECKSUM = ChecksumSeal()

#: Name of the file with the tables.
FILE_NAME = "candidates.sqlite"


class SearchStore:
    """An open store in ``folder``, within the user's store; both are made if they are missing.

    Args:
        read_only: Write nothing; the store must be there.
        seal: Of the rows; if it is shared, other users may write the store.

    Raises:
        RefusedError: Another user may have written into it, or it is no store.
        CorruptError: Its tables are damaged.
        OSError: It cannot be made, or is not there.
    """

    def __init__(self, folder: Path, *, read_only: bool = False, seal: RowSeal = _CHECKSUM) -> None:
        self.folder, self.read_only, self.seal = folder, read_only, seal
        #: Its name in messages.
        self.shown = str(folder)
        self._mode = "ro" if read_only else "rwc"
        self._sets, self._file = folder / "entries", folder / FILE_NAME
        if not read_only:
            self._make_folder(folder)
        for each in (folder.parent, folder):
            why = permissions.find_ownership_problem(each)
            if why and not (seal.is_shared and why == permissions.OF_ANOTHER):
                raise RefusedError(f"{each}: {why}", "name a store of your own")
        for each in (folder, self._sets, self._file) if seal.is_shared else ():
            if each.is_symlink():  # to where a member could have another one write
                raise RefusedError(f"{each}: is a link", "remove it, or name another store")
        with self._connect() as tables:
            version = tables.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise RefusedError(f"{self._file}: is of another release (version {version})", "name another store")
            if read_only:
                return
            if not self._sets.exists():
                self._make_folder(self._sets)
            tables.executescript(_TABLES)
            tables.execute(f"PRAGMA user_version = {VERSION}")
        if seal.is_shared and self._file.stat().st_uid == os.geteuid():
            self._file.chmod(0o660)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder, which the group of the store can write if it is shared."""
        if folder.exists():
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.seal.is_shared:
            folder.chmod(stat.S_IMODE(self.folder.parent.stat().st_mode) & 0o7770)

    @property
    def digests(self) -> Path:
        """Folder of the digests of files that were read: never in a store that others can write."""
        cache = permissions.find_cache_folder(os.environ) if self.seal.is_shared else None
        return cache / "store-digests" if cache else self.folder / "databases"

    @property
    def saves_digests(self) -> bool:
        """Whether new digests are written there."""
        return self.seal.is_shared or not self.read_only

    @staticmethod
    def is_there(folder: Path) -> bool:
        """Tell whether there is a store in ``folder``."""
        return (folder / FILE_NAME).exists()

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Open the tables for one transaction.

        Raises:
            CorruptError: They are damaged.
        """
        try:
            name = f"file:{quote(str(self._file))}?mode={self._mode}"
            with closing(sqlite3.connect(name, uri=True, timeout=WAIT_SECONDS)) as tables, tables:
                yield tables
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter for names of tables
            raise CorruptError(f"{self._file}: {error}", "remove it, or name another store") from error

    def recall_candidates(self, key: str, queries: Iterable[bytes], depth: float) -> dict[bytes, KeptCandidates]:
        """Return what is kept of ``queries`` down to ``depth``, of that set of entries which most of them were searched in."""
        found: dict[bytes, KeptCandidates] = {}
        wanted = list(dict.fromkeys(queries))
        with self._connect() as tables:
            row = tables.execute("SELECT id FROM search WHERE key = ?", (key,)).fetchone()
            if row is None:
                return {}
            for at in range(0, len(wanted), _PIECE):
                part = wanted[at : at + _PIECE]
                marks = ",".join("?" * len(part))
                rows = tables.execute(
                    f"SELECT query, entries, depth, found, checksum FROM candidates WHERE search = ? AND depth >= ? AND query IN ({marks})",
                    (row[0], depth, *part),
                )
                found |= _decode_rows(key, rows, self.seal)
            counted = Counter(each.entries for each in found.values())
            if not counted:
                return {}
            most = max(counted, key=lambda name: (counted[name], name))
            found = {query: each for query, each in found.items() if each.entries == most}
            if self.read_only:
                return found
            now = time.time()
            tables.executemany(
                "UPDATE candidates SET used = ? WHERE search = ? AND query = ? AND used < ?",
                ((now, row[0], query, now - USE_GRAIN_SECONDS) for query in found),
            )
        return found

    def read_entries(self, name: bytes) -> bytes | None:
        """Return the sorted digests of a set of entries; None: it is not there, or damaged."""
        try:
            content = (self._sets / name.hex()).read_bytes()
        except OSError:
            return None
        return content if name_entries(content) == name else None

    def keep_candidates(self, key: str, entries: bytes, depth: float, found: Mapping[bytes, QueryCandidates]) -> None:
        """Keep the candidates of queries, in place of what was kept of them.

        Args:
            entries: Sorted digests of all entries that were searched.
            found: What was found, by query, with numbers among these in the place of ordinals.
        """
        name = name_entries(entries)
        self._keep_entries(name, entries)

        def make_rows() -> Iterator[tuple[bytes, bytes, float, bytes, bytes]]:
            for query, each in found.items():
                packed = encode_candidates(each)
                seal = self.seal.make(format_candidates(key, query, name, depth, packed))
                yield query, name, depth, packed, seal

        for rows in _cut_pieces(make_rows()):
            self._add_rows(SealedRows(key, candidates=rows))

    def _keep_entries(self, name: bytes, entries: bytes) -> None:
        if not (self._sets / name.hex()).exists():
            replace_file(self._sets / name.hex(), entries, 0o640 if self.seal.is_shared else 0o600)

    def _add_rows(self, rows: SealedRows) -> None:
        """Keep rows, in place of those of the same queries and batches."""
        with self._connect() as tables:
            search, now = _add_search(tables, rows.key), time.time()
            for name, added in (("candidates", rows.candidates), ("results", rows.results)):
                values = ((search, *row, now) for row in added)
                tables.executemany(f"INSERT OR REPLACE INTO {name} VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def list_results(self, key: str) -> list[tuple[bytes, int, bytes]]:
        """List the batches whose results are kept: digest of the first record, number of records, and digest of all."""
        with self._connect() as tables:
            rows = tables.execute(
                "SELECT first, records, content, checksum FROM results WHERE search = (SELECT id FROM search WHERE key = ?)",
                (key,),
            )
            return [
                row[:3]
                for row in rows
                if tuple(map(type, row)) == (bytes, int, bytes, bytes) and self.seal.is_read(row[3])
            ]

    def recall_results(self, key: str, contents: Iterable[bytes]) -> Iterator[KeptResult | None]:
        """Yield the results of batches by the digests of all their records; None: it is damaged, or gone."""
        with self._connect() as tables:
            now = time.time()
            for content in contents:
                row = tables.execute(
                    "SELECT first, records, blocks, checksum, results.rowid FROM results JOIN search ON id = search"
                    " WHERE key = ? AND content = ?",
                    (key, content),
                ).fetchone()
                kept = _decode_result(content, row[:3]) if row else None
                if not kept or not self.seal.is_valid(_format_result(key, kept), row[3]):
                    yield None
                    continue
                yield kept
                if not self.read_only:
                    old = now - USE_GRAIN_SECONDS
                    tables.execute("UPDATE results SET used = ? WHERE rowid = ? AND used < ?", (now, row[4], old))

    def keep_results(self, key: str, kept: Iterable[KeptResult]) -> None:
        """Keep the results of batches, in place of what was kept of them."""
        for rows in _cut_pieces((*each, self.seal.make(_format_result(key, each))) for each in kept):
            self._add_rows(SealedRows(key, results=rows))

    def forget_search(self, key: str, seal: bytes = b"") -> int:
        """Drop all that is kept of a search, as it cannot be relied on; return the number of queries, or batches.

        All results go, too: some may have been computed from it.

        Args:
            seal: What the seals of an owner begin with, whose candidates of other searches go, too; empty: there is one owner.
        """
        with self._connect() as tables:
            mine = "WHERE search = (SELECT id FROM search WHERE key = ?)"
            (n_results,) = tables.execute(f"SELECT count(*) FROM results {mine}", (key,)).fetchone()
            n_queries = tables.execute(f"DELETE FROM candidates {mine}", (key,)).rowcount
            if seal:
                tables.execute("DELETE FROM candidates WHERE substr(checksum, 1, ?) = ?", (len(seal), seal))
            tables.execute("DELETE FROM results")
        return int(n_results) + n_queries

    def count_rows(self) -> list[tuple[str, int, int, int, float]]:
        """Count what is kept of each search: its key, queries, batches, their bytes, and the time of the last use."""
        with self._connect() as tables:
            return tables.execute(
                "SELECT key, count(query), count(content), sum(length(coalesce(found, blocks))), max(used) FROM search JOIN ("
                " SELECT search, query, NULL AS content, found, NULL AS blocks, used FROM candidates"
                " UNION ALL SELECT search, NULL, content, NULL, blocks, used FROM results) ON id = search GROUP BY id"
            ).fetchall()

    def check_rows(self) -> Iterator[bool]:
        """Yield for each row whether it is as it was written."""
        with self._connect() as tables:
            for key, *row in tables.execute(
                "SELECT key, query, entries, depth, found, candidates.checksum FROM candidates JOIN search ON id = search"
            ):
                yield bool(_decode_rows(str(key), [row], self.seal))
            for key, content, first, n_records, blocks, checksum in tables.execute(
                "SELECT key, content, first, records, blocks, results.checksum FROM results JOIN search ON id = search"
            ):
                kept = _decode_result(content, (first, n_records, blocks))
                yield kept is not None and self.seal.is_valid(_format_result(str(key), kept), checksum)

    def list_sets(self) -> list[bytes]:
        """List the names of the sets of entries."""
        return [bytes.fromhex(path.name) for path in self._sets.iterdir() if _SET_NAME.fullmatch(path.name)]

    def evict(self, max_bytes: int) -> None:
        """Drop the rows that were not used for longest until the store takes ``max_bytes`` at most."""
        while self.count_bytes() > max_bytes:
            with self._connect() as tables:
                n_dropped = sum(_drop_oldest_quarter(tables, name) for name in _EVICTED)
            self._drop_unused_entries()
            if not n_dropped:
                break
            with closing(sqlite3.connect(self._file, timeout=WAIT_SECONDS, isolation_level=None)) as tables:
                tables.execute("VACUUM")

    def _drop_unused_entries(self) -> None:
        with self._connect() as tables:
            used = {bytes(name).hex() for (name,) in tables.execute("SELECT DISTINCT entries FROM candidates")}
        for file in self._sets.iterdir():
            # A new one may belong to a run that writes its rows just now.
            if file.name not in used and file.stat().st_mtime < time.time() - WAIT_SECONDS:
                file.unlink(missing_ok=True)
        for file in (self.folder / "databases").glob("*"):
            file.unlink(missing_ok=True)

    def count_bytes(self) -> int:
        """Return the bytes of all files of the store."""
        return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(self.folder) for name in names)


def _cut_pieces(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yield rows, whose fourth value is the largest, in pieces that are kept at once."""
    piece: list[_Row] = []
    n_bytes = 0
    for row in rows:
        piece.append(row)
        n_bytes += len(row[3]) + _ROW_BYTES
        if n_bytes > PIECE_BYTES:
            yield piece
            piece, n_bytes = [], 0
    if piece:
        yield piece


def _add_search(tables: sqlite3.Connection, key: str) -> int:
    """Return the number of a search, which is added if it is not there."""
    tables.execute("INSERT OR IGNORE INTO search (key) VALUES (?)", (key,))
    return int(tables.execute("SELECT id FROM search WHERE key = ?", (key,)).fetchone()[0])


def _drop_oldest_quarter(tables: sqlite3.Connection, name: str) -> int:
    """Drop the quarter of the rows of a table that was not used for longest; return how many."""
    keys = "search, query" if name == "candidates" else "search, content"
    (n_rows,) = tables.execute(f"SELECT count(*) FROM {name}").fetchone()
    oldest = f"SELECT {keys} FROM {name} ORDER BY used LIMIT ?"
    return tables.execute(f"DELETE FROM {name} WHERE ({keys}) IN ({oldest})", ((n_rows + 3) // 4,)).rowcount


def name_entries(sorted_digests: bytes) -> bytes:
    """Return the name of a set of entries, which is its digest."""
    return hashlib.sha256(sorted_digests).digest()[:16]


def _decode_rows(key: str, rows: Iterable[Sequence[object]], seal: RowSeal) -> dict[bytes, KeptCandidates]:
    """Decode rows, without those that are damaged."""
    found: dict[bytes, KeptCandidates] = {}
    for query, entries, depth, packed, checksum in rows:
        if not (
            isinstance(query, bytes) and isinstance(entries, bytes) and isinstance(packed, bytes) and isinstance(depth, float)
            and isinstance(checksum, bytes) and seal.is_valid(format_candidates(key, query, entries, depth, packed), checksum)
        ):  # fmt: skip
            continue
        numbers, counts = decode_candidates(packed)
        found[query] = KeptCandidates(entries, numbers, counts, depth, checksum)
    return found


def select_valid_rows(rows: SealedRows, seal: RowSeal) -> SealedRows:
    """Return ``rows`` without those whose seals are not valid."""
    candidates = [row for row in rows.candidates if seal.is_valid(format_candidates(rows.key, *row[:-1]), row[-1])]
    results = [row for row in rows.results if seal.is_valid(_format_result(rows.key, KeptResult(*row[:-1])), row[-1])]
    return SealedRows(rows.key, candidates, results)


def _decode_result(content: object, row: Sequence[object]) -> KeptResult | None:
    """Return a row of results; None: it has values of other types."""
    if (*map(type, (content, *row)),) != (bytes, bytes, int, bytes):
        return None
    return KeptResult(content, *row)  # type: ignore[arg-type]


def format_candidates(key: str, query: bytes, entries: bytes, depth: float, packed: bytes) -> bytes:
    """Return the content of a row of candidates as the text that is sealed."""
    return b"\0".join((key.encode(), query.hex().encode(), entries.hex().encode(), repr(depth).encode(), packed))


def _format_result(key: str, kept: KeptResult) -> bytes:
    text = b"\0".join((key.encode(), kept.content.hex().encode(), kept.first.hex().encode(), b"%d" % kept.n_records))
    return text + b"\0" + kept.blocks


def encode_candidates(found: QueryCandidates) -> bytes:
    """Encode ascending numbers by their distances, behind what was counted.

    >>> decode_candidates(encode_candidates(QueryCandidates([0, 3, 300], (7,))))
    ((0, 3, 300), (7,))
    """
    numbers = found.entries
    steps = [after - before for before, after in zip([0, *numbers], numbers, strict=False)]
    return encode_numbers([len(found.counts), *found.counts, *steps])


def decode_candidates(packed: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers and the counts that ``encode_candidates`` has encoded."""
    n_counts, *rest = decode_numbers(packed) or [0]
    return tuple(accumulate(rest[n_counts:])), tuple(rest[:n_counts])
