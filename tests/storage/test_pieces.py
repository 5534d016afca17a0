"""Copies of pieces of files behind URLs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from web_server import Web

from millrace.core.errors import CorruptError
from millrace.core.tool_use import FetchedFile, StorageRead
from millrace.node.node_volumes import SparseFile
from millrace.storage import hdfs_blocks, locations
from millrace.storage.cache import cache_location
from millrace.storage.cache.cache_download import fetch_to_cache
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.clients.base import FileStatus

CONTENT = os.urandom(1_000_003)


def piece(url: str, about: FileStatus, first: int, size: int, folder: Path) -> Path:
    """Of the version of the file that ``about`` tells of."""
    cache = NodeCache(folder, fetched=True)
    try:
        wanted = FileStatus(size=size, version=about.version)
        return fetch_to_cache(url, cache, 1 << 40, lambda seconds: None, wanted, first)
    finally:
        cache.close()


@pytest.fixture
def about(web: Web) -> FileStatus:
    return locations.query_file_status(web.put("db.fa", CONTENT))


def test_piece_reads_only_its_own_bytes(web: Web, about: FileStatus, tmp_path: Path) -> None:
    url = web.put("db.fa", CONTENT)
    first = piece(url, about, 0, 300_000, tmp_path)
    second = piece(url, about, 300_000, 700_003, tmp_path)
    assert first != second
    assert (first.read_bytes(), second.read_bytes()) == (CONTENT[:300_000], CONTENT[300_000:])
    assert web.n_bytes == len(CONTENT)
    assert piece(url, about, 0, 300_000, tmp_path) == first and web.n_bytes == len(CONTENT), "it was there"
    whole = fetch_to_cache(url, NodeCache(tmp_path, fetched=True), 1 << 40)
    assert whole.read_bytes() == CONTENT and first.read_bytes() == CONTENT[:300_000], "they are files of their own"
    told = [cache_location.verify_copy(copy) for copy in cache_location.list_copies(NodeCache(tmp_path, fetched=True))]
    assert told == ["whole, and up to date"] * 3


def test_stale_or_out_of_range_piece_is_refused(web: Web, about: FileStatus, tmp_path: Path) -> None:
    url = web.put("db.fa", CONTENT)
    with pytest.raises(CorruptError, match="changed while it was read"):
        piece(url, about, 900_000, 200_000, tmp_path)
    web.put("db.fa", CONTENT[::-1])
    with pytest.raises(CorruptError, match="changed while it was read"):
        piece(url, about, 0, 300_000, tmp_path)


def test_cut_piece_resumes_where_it_stopped(web: Web, about: FileStatus, tmp_path: Path) -> None:
    url = web.put("db.fa", CONTENT)
    web.cut = 200_000
    assert piece(url, about, 100_000, 500_000, tmp_path).read_bytes() == CONTENT[100_000:600_000]
    assert web.n_bytes < 2 * 500_000


def test_a_file_with_holes_is_filled_in_from_hdfs(hdfs: Callable[[str, bytes], str], tmp_path: Path) -> None:
    url = hdfs("holes/db.fa", CONTENT)
    about = locations.query_file_status(url)
    file = FetchedFile(
        name="db.fa", place=url, key="k", size=about.size, version=about.version, mtime_ns=about.mtime_ns
    )  # what nodes are told of it
    holes = SparseFile(tmp_path / "holes", file, hdfs_blocks.HdfsLocality())
    assert holes.fill_ranges([(10, 30), (900_000, 1_000_003)], None) == StorageRead(0, 100_023, 100_023)
    there = (tmp_path / "holes").read_bytes()
    assert (there[10:30], there[900_000:]) == (CONTENT[10:30], CONTENT[900_000:]) and not any(there[30:900_000])
    hdfs("holes/db.fa", CONTENT[::-1] + b"x")
    with pytest.raises(CorruptError, match="changed while it was read"):
        holes.fill_ranges([(100, 110)], None)
