"""Copies that a node keeps: whole or not there, in use or removable, never more than fit."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.storage.cache.cache_files import PART, NoRoomError
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.staging_choice import DatabaseFile

pytestmark = pytest.mark.process

MUCH = 1 << 40


def file(name: str, size: int = 1000) -> DatabaseFile:
    return DatabaseFile(path=f"/data/{name}", size=size, mtime_ns=123_000_000_000, inode=1, mode=0o640, ctime_ns=9)


def fill(cache: NodeCache, *files: DatabaseFile, budget: int = MUCH) -> None:
    for part in cache.start_copies(files, budget):
        os.pwrite(part.descriptor, b"x" * part.file.size, 0)
        cache.publish_part(part)


def names(cache: NodeCache) -> list[str]:
    return sorted(path.name.partition("-")[2] for path in cache.folder.iterdir() if not path.name.startswith("."))


def test_copy_is_reused_with_the_times_of_its_file(tmp_path: Path) -> None:
    first = NodeCache(tmp_path)
    assert first.hold_and_survey([file("a")]).held == frozenset()
    fill(first, file("a"))
    first.close()
    second = NodeCache(tmp_path)
    found = second.hold_and_survey([file("a"), file("b")])
    assert found.held == {file("a").key}
    about = second.make_copy_path(file("a")).stat()
    assert (about.st_mtime_ns, about.st_mode & 0o777, about.st_size) == (123_000_000_000, 0o640, 1000)


def test_copies_without_flock_are_used_and_never_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    first, second = NodeCache(tmp_path), NodeCache(tmp_path)
    fill(first, file("a"))
    assert second.hold_and_survey([file("a")]).held == {file("a").key}
    first.close()
    second.close()
    with pytest.raises(NoRoomError):
        NodeCache(tmp_path).start_copies([file("b")], 1500)
    assert names(first) == [file("a").key.partition("-")[2]]


def test_incomplete_copy_is_not_used(tmp_path: Path) -> None:
    cache, other = NodeCache(tmp_path), NodeCache(tmp_path)
    (part,) = cache.start_copies([file("a")], MUCH)
    there = other.hold_and_survey([file("a")])
    assert there.held == frozenset()
    assert there.busy == 1000, "it counts as if it were whole"
    cache.discard_part(part)
    assert other.hold_and_survey([file("a")]).busy == 0


def test_incomplete_copy_of_a_killed_process_is_swept(tmp_path: Path) -> None:
    code = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_copy_cache import *
cache = NodeCache(Path({str(tmp_path)!r}))
fill(cache, file("whole"))
cache.start_copies([file("half")], MUCH)
print("begun", flush=True)
time.sleep(600)
"""
    maker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert maker.stdout
    assert maker.stdout.readline() == b"begun\n"
    cache = NodeCache(tmp_path)
    there = cache.hold_and_survey([])
    assert (there.busy, there.idle) == (2000, 0), "both are the other's as long as it lives"
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    maker.stdout.close()
    there = cache.hold_and_survey([])
    assert (there.busy, there.idle) == (0, 1000)
    assert not list(cache.folder.glob(f".*{PART}"))


def test_least_recently_used_idle_copies_are_evicted_first(tmp_path: Path) -> None:
    old = NodeCache(tmp_path)
    for name in ("a", "b", "c"):
        fill(old, file(name))
    old.close()
    user = NodeCache(tmp_path)
    user.hold_and_survey([file("a")])
    cache = NodeCache(tmp_path)
    cache.hold_and_survey([])
    fill(cache, file("new", 1500), budget=3000)
    assert names(cache) == ["a", "new"], "b and c had to go, a is in use"
    with pytest.raises(NoRoomError):
        cache.start_copies([file("more", 2000)], 3000)
    assert names(cache) == ["a", "new"]


def test_concurrent_copies_of_a_file_end_as_one(tmp_path: Path) -> None:
    one, two = NodeCache(tmp_path), NodeCache(tmp_path)
    (first,), (second,) = one.start_copies([file("a")], MUCH), two.start_copies([file("a")], MUCH)
    one.publish_part(first)
    two.publish_part(second)
    assert names(one) == ["a"]
    one.close()
    with pytest.raises(NoRoomError):
        NodeCache(tmp_path).start_copies([file("b")], 1500)  # in use by the second
    two.close()
    fill(NodeCache(tmp_path), file("b"), budget=1500)
    assert names(one) == ["b"]


def test_a_database_may_have_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 1000:
        pytest.skip("the hard limit is low")
    limit = len(os.listdir("/proc/self/fd")) + 150  # other tests leave some open
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        files = [file(f"db.{k:03}", 10) for k in range(300)]
        cache = NodeCache(tmp_path)
        fill(cache, *files)
        assert len(NodeCache(tmp_path).hold_and_survey(files).held) == 300
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == limit
        cache.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    "spoil", [lambda folder: folder.chmod(0o777), lambda folder: (folder.rmdir(), folder.symlink_to("/tmp"))],
    ids=["open to others", "a link"],
)  # fmt: skip
def test_folder_writable_by_others_is_not_used(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    usual = NodeCache(tmp_path).folder
    spoil(usual)
    found = NodeCache(tmp_path).folder
    assert found != usual and found.stat().st_mode & 0o777 == 0o700
    assert NodeCache(tmp_path).folder == found, "the next job finds what this one has copied"
