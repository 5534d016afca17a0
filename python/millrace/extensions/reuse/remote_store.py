"""A store at a URL: files that are written once and never changed, and a copy of what this user has read of them.

Each run writes what it has found as new files: the rows of one search, signed by their owner, and sets of entries. So
runs on any machines may write at the same time, and a run that is killed leaves nothing half. What must not be used any
more is named in a further file. Nothing is removed there; the place has rules of its own for that.
The copy is a store like any other, in the user's cache; the rows of a search are read when a run asks for them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from millrace.core.errors import CorruptError, RefusedError
from millrace.core.replica_rules import redact_place
from millrace.execution.url_outputs import WRITTEN
from millrace.extensions.reuse.known_results import MAX_RESULT_BYTES
from millrace.extensions.reuse.search_store import (
    PIECE_BYTES,
    KeptCandidates,
    SealedRows,
    SearchStore,
    name_entries,
    select_valid_rows,
)
from millrace.extensions.reuse.store_seals import OWNERS, SignatureSeal, read_signature_seal
from millrace.host import permissions
from millrace.storage import locations

#: Names of files of rows: digest of the search, kind of rows, owner, time.
_ROWS = re.compile(r"([0-9a-f]{32})-(candidates|results)-([0-9a-f]{32})-[0-9a-f]{24}")

#: Names of files with the names of those that must not be used any more.
_FORGOTTEN = re.compile(r"forgotten-[0-9a-f]{24}")

#: Most bytes of a file of rows, or of names, and of a set of a billion entries: larger ones are not what Millrace writes.
_MAX_BYTES, _MAX_SET_BYTES = PIECE_BYTES + 2 * MAX_RESULT_BYTES, 1 << 34

#: Names of sets of entries.
_SET = re.compile(r"entries-([0-9a-f]{32})")

_TABLES = """
CREATE TABLE IF NOT EXISTS merged (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS forgotten (name TEXT PRIMARY KEY);
"""


class RemoteStore(SearchStore):
    """An open store at ``url``, with its copy in ``folder``.

    Raises:
        MillraceError: The place cannot be listed, or the copy is damaged.
        OSError: The copy cannot be made.
    """

    def __init__(self, url: str, folder: Path, seal: SignatureSeal) -> None:
        super().__init__(folder, seal=seal)
        self._url, self._own_name, self.shown = url.rstrip("/"), seal.own_name.hex(), redact_place(url)
        #: Whether this user keeps nothing at the place.
        self.read_only = not seal.can_make
        with self._connect() as tables:
            tables.executescript(_TABLES)
        with closing(locations.open_location(f"{self._url}/")) as place:
            self._names = place.list_names()
        self._drop_forgotten()

    def recall_candidates(self, key: str, queries: Iterable[bytes], depth: float) -> dict[bytes, KeptCandidates]:
        """See ``SearchStore.recall_candidates``."""
        self._merge_rows(_digest_key(key))
        return super().recall_candidates(key, queries, depth)

    def list_results(self, key: str) -> list[tuple[bytes, int, bytes]]:
        """See ``SearchStore.list_results``."""
        self._merge_rows(_digest_key(key))
        return super().list_results(key)

    def read_entries(self, name: bytes) -> bytes | None:
        """See ``SearchStore.read_entries``."""
        if (content := super().read_entries(name)) is not None or _name_set(name) not in self._names:
            return content
        content = self._read_file(_name_set(name), _MAX_SET_BYTES)
        if name_entries(content) != name:
            return None
        super()._keep_entries(name, content)
        return content

    def count_rows(self) -> list[tuple[str, int, int, int, float]]:
        """See ``SearchStore.count_rows``: of all searches at the place."""
        self._merge_rows("")
        return super().count_rows()

    def check_rows(self) -> Iterator[bool]:
        """See ``SearchStore.check_rows``: of all files at the place whose owners are listed."""
        for name in self._list_read_files():
            rows = _decode_rows(name, self._read_file(name))
            if rows is None:
                yield False
                continue
            valid = select_valid_rows(rows, self.seal)
            n_valid = len(valid.candidates) + len(valid.results)
            yield from [True] * n_valid
            yield from [False] * (len(rows.candidates) + len(rows.results) - n_valid)

    def list_sets(self) -> list[bytes]:
        """See ``SearchStore.list_sets``: of all at the place."""
        return [bytes.fromhex(found[1]) for found in map(_SET.fullmatch, self._names) if found]

    def forget_search(self, key: str, seal: bytes = b"") -> int:
        """See ``SearchStore.forget_search``; others do not use it any more, either."""
        n_dropped = super().forget_search(key, seal)
        gone = []
        for found in filter(None, map(_ROWS.fullmatch, self._names)):
            search, kind, owner = found.groups()
            if search == _digest_key(key) or kind == "results" or (seal and owner == seal.hex()):
                gone.append(found[0])
        self._write_file(f"forgotten-{_make_stamp()}", "\n".join(gone).encode())
        self._note_names("forgotten", gone)
        return n_dropped

    def evict(self, max_bytes: int) -> None:
        """See ``SearchStore.evict``: of the copy. What was dropped there is read again when it is asked for."""
        if self.count_bytes() > max_bytes:
            super().evict(max_bytes)
            with self._connect() as tables:
                tables.execute("DELETE FROM merged")

    def _keep_entries(self, name: bytes, entries: bytes) -> None:
        super()._keep_entries(name, entries)
        if _name_set(name) not in self._names:
            self._write_file(_name_set(name), entries)

    def _add_rows(self, rows: SealedRows) -> None:
        super()._add_rows(rows)
        kind = "candidates" if rows.candidates else "results"
        name = f"{_digest_key(rows.key)}-{kind}-{self._own_name}-{_make_stamp()}"
        self._write_file(name, msgspec.msgpack.encode(rows))
        self._note_names("merged", [name])

    def _merge_rows(self, search: str) -> None:
        """Read the files of a search that were not read yet into the copy; empty: of all."""
        with self._connect() as tables:
            done = {
                name for table in ("merged", "forgotten") for (name,) in tables.execute(f"SELECT name FROM {table}")
            }
        for name in self._list_read_files():
            if not name.startswith(search) or name in done:
                continue
            rows = _decode_rows(name, self._read_file(name))
            if rows is not None:  # else it is damaged, and nothing of it is known
                super()._add_rows(select_valid_rows(rows, self.seal))
            self._note_names("merged", [name])

    def _list_read_files(self) -> list[str]:
        """List the files of rows of listed owners, in the order of writing."""
        found = filter(None, map(_ROWS.fullmatch, self._names))
        return sorted((each[0] for each in found if self.seal.is_read(bytes.fromhex(each[3]))), key=_read_stamp)

    def _drop_forgotten(self) -> None:
        """Forget what further files name; if some of it was read, the copy begins anew."""
        with self._connect() as tables:
            known = {name for (name,) in tables.execute("SELECT name FROM forgotten")}
            merged = {name for (name,) in tables.execute("SELECT name FROM merged")}
        new = [name for name in self._names if _FORGOTTEN.fullmatch(name) and name not in known]
        gone = [line for name in new for line in self._read_file(name).decode("ascii", "replace").splitlines()]
        if not merged.isdisjoint(gone):
            self._clear_copy()
        self._note_names("forgotten", [*new, *gone])

    def _clear_copy(self) -> None:
        with self._connect() as tables:
            for table in ("candidates", "results", "merged"):
                tables.execute(f"DELETE FROM {table}")

    def _note_names(self, table: str, names: Iterable[str]) -> None:
        with self._connect() as tables:
            tables.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?)", ((name,) for name in names))

    def _read_file(self, name: str, most: int = _MAX_BYTES) -> bytes:
        with closing(locations.open_location(f"{self._url}/{name}")) as place:
            about = place.query_status()
            if about.size > most:
                raise CorruptError(f"{place.shown}: has {about.size:,} bytes", "remove it")
            return b"".join(piece for _, piece in place.stream_with_retries([(0, about.size)], about))

    def _write_file(self, name: str, content: bytes) -> None:
        with closing(locations.open_location(f"{self._url}/{name}")) as place:
            place.write_file([content], len(content))


def open_remote_store(url: str, environ: Mapping[str, str]) -> RemoteStore:
    """Open the store at ``url``, with a copy in the user's cache. Whoever can write there can hide hits, so its rows are signed.

    Raises:
        MillraceError: It cannot be used.
        OSError: Its copy cannot be made.
    """
    shown = redact_place(url)
    if not url.startswith(WRITTEN):
        raise RefusedError(f"{shown}: a store cannot be written there", f"name a folder, or {', '.join(WRITTEN)}")
    config, cache = permissions.find_config_folder(environ), permissions.find_cache_folder(environ)
    if config is None or not (config / OWNERS).exists():
        raise RefusedError(
            f"{shown}: others may be able to write it, and you have no list of owners",
            f"list yourself, and whom you trust, in {(config or Path('~/.config/millrace')) / OWNERS}: see docs/reuse.md, A store of a group",
        )
    seal = read_signature_seal(shown, config, environ)
    assert cache  # or there is no such seal
    digest = hashlib.sha256(url.rstrip("/").encode(errors="surrogateescape")).hexdigest()[:32]
    folder = cache / "stores" / digest
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return RemoteStore(url, folder / "candidates", seal)


def _digest_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _name_set(name: bytes) -> str:
    return f"entries-{name.hex()}"


def _make_stamp() -> str:
    """Return the time, and a number by chance."""
    return f"{time.time_ns():016x}{secrets.token_hex(4)}"


def _read_stamp(name: str) -> str:
    return name[-24:]


def _decode_rows(name: str, content: bytes) -> SealedRows | None:
    """Decode a file of rows; None: it is damaged, or is not what its name says."""
    try:
        rows = msgspec.msgpack.decode(content, type=SealedRows)
    except msgspec.MsgspecError:
        return None
    return rows if name.startswith(_digest_key(rows.key)) else None
