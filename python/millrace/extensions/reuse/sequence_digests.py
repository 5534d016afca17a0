"""Digests of the sequences of queries and of database entries, and of whole files that a result depends on.

Of sequences, names, order and volumes do not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from millrace import _core
from millrace.core.record_digests import DIGEST_BYTES, split_digests
from millrace.core.tool_use import BlastDatabase, HmmerTargets, InputUse, UserCommand
from millrace.extensions.pack import known_databases
from millrace.extensions.pack.blast_codec import find_blastdbcmd, read_blastdbcmd_lines
from millrace.extensions.pack.known_databases import read_file_states, read_unchanged
from millrace.extensions.pack.result_codec import NotPackableError
from millrace.host.permissions import replace_file
from millrace.node.batch_files import open_reader
from millrace.rundir.checksummed_json import encode_json

_WHITESPACE = b" \t\r\n\v\f"


def digest_sequence(sequence: bytes) -> bytes:
    """Return the digest of a sequence."""
    return hashlib.sha256(sequence).digest()[:DIGEST_BYTES]


def digest_queries(path: Path, item: InputUse) -> list[bytes]:
    """Return the digest of each query of a file; see ``split_query_digests``.

    Raises:
        NotPackableError: A record is damaged, or has no title.
        OSError: The file cannot be read.
    """
    try:
        records, queries, _ = open_reader([str(path)], item).digest_records()
    except _core.RecordError as error:
        raise NotPackableError(str(error)) from error
    return split_query_digests(item, records, queries)


def split_query_digests(item: InputUse, records: bytes, queries: bytes) -> list[bytes]:
    """Split the digests of the queries: of FASTA, of the sequences as they are written, without titles; else of whole records.

    Raises:
        NotPackableError: A sequence has no title.
    """
    if item.format != "fasta":
        return split_digests(records)
    if len(queries) != len(records):
        raise NotPackableError("the records of the queries could not be told apart")
    return split_digests(queries)


def digest_entries(
    about: BlastDatabase | HmmerTargets, command: UserCommand, files: Iterable[Path], cache: Path, *, save: bool = True
) -> bytes:
    """Return the digests of all entries of a database, in their order: of their sequences, or of their profiles.

    Args:
        files: All files of the database, by which an unchanged one is recognised.
        cache: Folder for the digests of databases that were read.
        save: Whether they are written there.

    Raises:
        NotPackableError: The entries cannot be listed.
        OSError: The cache cannot be read.
    """

    def read_targets(targets: HmmerTargets) -> bytes:
        try:
            return _core.target_digests(targets.source, pressed=targets.profiles)
        except ValueError as error:
            raise NotPackableError(str(error)) from error

    def read_database(database: BlastDatabase) -> bytes:
        lines = read_blastdbcmd_lines(database, command, "%s")
        return b"".join(digest_sequence(line.translate(None, _WHITESPACE)) for line in lines)

    if isinstance(about, HmmerTargets):
        return _get_cached_digests("targets", files, cache, partial(read_targets, about), save=save)
    return _get_cached_digests(
        "entries", [find_blastdbcmd(command), *files], cache, partial(read_database, about), save=save
    )


def digest_files(files: Sequence[Path], cache: Path, *, save: bool = True) -> list[str]:
    """Return the digest of the content of each file; ``cache`` and ``save`` as in ``digest_entries``.

    Raises:
        OSError: One cannot be read.
    """

    def read() -> bytes:
        found = []
        for path in files:
            with path.open("rb") as file:
                found.append(hashlib.file_digest(file, "sha256").digest()[:DIGEST_BYTES])
        return b"".join(found)

    digests = _get_cached_digests("files", files, cache, read, save=save) if files else b""
    return [each.hex() for each in split_digests(digests)]


def _get_cached_digests(
    kind: str, files: Iterable[Path | str], cache: Path, read: Callable[[], bytes], *, save: bool
) -> bytes:
    """Return digests of one kind, as they were read of the same files, or as ``read`` returns them now."""
    before = read_file_states(files)
    name = hashlib.sha256(encode_json([known_databases.VERSION, kind, *before])).hexdigest()[:32]
    place = cache / name
    if before and place.exists():
        content = place.read_bytes()
        digests, check = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
        if _compute_checksum(name, digests) == check:
            return digests
    digests, is_unchanged = read_unchanged(before, read)
    if save and is_unchanged:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(place, digests + _compute_checksum(name, digests), 0o600)
    return digests


def _compute_checksum(name: str, digests: bytes) -> bytes:
    """Compute the checksum of a file of digests; with its name, as it may be a copy of another."""
    return hashlib.sha256(name.encode() + digests).digest()[:DIGEST_BYTES]
