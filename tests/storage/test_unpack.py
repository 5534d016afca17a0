"""What is packed at its place: unpacked once, whole or not there, whoever asks at the same time and whoever dies."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from web_server import Web

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.storage import locations, unpacked_copies
from millrace.storage.cache import cache_location
from millrace.storage.cache.cache_files import ABOUT
from millrace.storage.cache.copy_cache import NodeCache

MUCH = 1 << 40

#: Compresses to about half, so that it takes its time.
TEXT = random.Random(5).randbytes(3_000_000).hex().encode()

#: Unpacks argv[1] into argv[2], says the digests of what it got.
UNPACKER = """
import hashlib, sys
from pathlib import Path
from millrace.storage import locations, unpacked_copies
from millrace.storage.cache.copy_cache import NodeCache
cache = NodeCache(Path(sys.argv[2]))
print("begun", flush=True)
for member in unpacked_copies.unpack_to_cache(sys.argv[1], locations.query_file_status(sys.argv[1]), cache, 1 << 40):
    print(member.name, hashlib.sha256(cache.make_copy_path(member).read_bytes()).hexdigest(), flush=True)
sys.stdin.read()
"""


def start(url: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", UNPACKER, url, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def archive(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"folder/{name}")
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def get(url: str, folder: Path) -> dict[str, bytes]:
    cache = NodeCache(folder)
    try:
        members = unpacked_copies.unpack_to_cache(url, locations.query_file_status(url), cache, MUCH)
        return {member.name: cache.make_copy_path(member).read_bytes() for member in members}
    finally:
        cache.close()


def left(folder: Path) -> list[str]:
    """What is there besides whole copies, what is known of them, and the lock."""
    cache = NodeCache(folder)
    cache.list_entries()  # sweeps
    names = [path.name for path in cache.folder.iterdir()]
    return [name for name in names if name.startswith(".") and name != ".lock" and not name.endswith(ABOUT)]


@pytest.mark.slow
def test_concurrent_processes_unpack_an_archive_once(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.tar.gz", archive(a=TEXT, b=TEXT[::-1]))
    digests = [f"{name} {hashlib.sha256(text).hexdigest()}" for name, text in (("a", TEXT), ("b", TEXT[::-1]))]
    processes = [start(url, tmp_path) for _ in range(8)]
    for process in processes:
        assert process.communicate()[0].splitlines() == ["begun", *digests]
    assert web.n_downloads == 1
    found = cache_location.list_copies(NodeCache(tmp_path))
    assert sorted(Path(copy.path).name.partition("u-")[2] for copy in found) == ["a", "b", "contents"]
    assert {cache_location.verify_copy(copy) for copy in found if copy.sha256} == {"whole, and up to date"}


@pytest.mark.slow
def test_killed_unpacking_leaves_no_partial_copy(web: Web, tmp_path: Path) -> None:
    packed = gzip.compress(TEXT, compresslevel=1)
    url, chance = web.put("nr.faa.gz", packed), random.Random(7)
    for _ in range(12):
        process = start(url, tmp_path)
        assert process.stdout and process.stdin
        assert process.stdout.readline() == "begun\n"
        time.sleep(chance.random() * 0.4)  # a random moment, whatever it hits
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()
        for copy in cache_location.list_copies(NodeCache(tmp_path)):
            if copy.is_whole and copy.sha256:
                assert cache_location.verify_copy(copy) == "whole, and up to date"
    assert get(url, tmp_path) == {"nr.faa": TEXT}
    assert left(tmp_path) == []


@pytest.mark.parametrize("name", ["nr.faa.gz", "nr.tar.gz", "nr.faa.zst"])
def test_invalid_archive_is_an_error_and_not_kept(name: str, web: Web, tmp_path: Path) -> None:
    whole = archive(a=TEXT) if "tar" in name else bytes(_core.pack(TEXT)) if "zst" in name else gzip.compress(TEXT)
    spoilt = whole[:1000] + bytes(1000) + whole[2000:]
    # Of zstd's files those of the program have a checksum, these have none.
    for damaged in (whole[: len(whole) // 2], b"no such thing", *([] if "zst" in name else [spoilt])):
        url = web.put(name, damaged)
        with pytest.raises(CorruptError, match="cannot be unpacked"):
            get(url, tmp_path)
        assert not [
            copy for copy in cache_location.list_copies(NodeCache(tmp_path)) if copy.is_whole and ".u-" in copy.path
        ]


def test_evicted_member_is_unpacked_again(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.tar.gz", archive(a=TEXT, b=b"b"))
    wanted = get(url, tmp_path)
    (victim,) = [copy.path for copy in cache_location.list_copies(NodeCache(tmp_path)) if copy.path.endswith("u-a")]
    os.unlink(victim)
    assert get(url, tmp_path) == wanted
    assert web.n_downloads == 2


@pytest.mark.parametrize("headers", ["new", "old"])
def test_pieces_of_a_packed_file_are_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: str) -> None:
    if headers == "old":  # of the C library where this Python was built
        monkeypatch.delattr(os, "memfd_create")
    text = b"".join(b"line %d\n" % k for k in range(1000))
    (packed := tmp_path / "lines.zst").write_bytes(_core.pack(text))
    pieces = list(unpacked_copies.read_plain_pieces(packed, 100))
    assert b"".join(pieces) == text and len(pieces) > 1
