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

from millrace.plan.staging import File
from millrace.storage.cache import Cache
from millrace.storage.cache_files import PART, NoRoom

MUCH = 1 << 40


def file(name: str, size: int = 1000) -> File:
    return File(path=f"/data/{name}", size=size, mtime_ns=123_000_000_000, inode=1, mode=0o640, ctime_ns=9)


def fill(cache: Cache, *files: File, budget: int = MUCH) -> None:
    for part in cache.begin(files, budget):
        os.pwrite(part.descriptor, b"x" * part.file.size, 0)
        cache.finish(part)


def names(cache: Cache) -> list[str]:
    return sorted(path.name.partition("-")[2] for path in cache.folder.iterdir() if not path.name.startswith("."))


def test_a_copy_is_there_for_the_next_job_with_the_times_of_its_file(tmp_path: Path) -> None:
    first = Cache(tmp_path)
    assert first.look([file("a")]).held == frozenset()
    fill(first, file("a"))
    first.close()
    second = Cache(tmp_path)
    found = second.look([file("a"), file("b")])
    assert found.held == {file("a").key}
    about = second.path_of(file("a")).stat()
    assert (about.st_mtime_ns, about.st_mode & 0o777, about.st_size) == (123_000_000_000, 0o640, 1000)


def test_without_flock_copies_are_used_and_never_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    first, second = Cache(tmp_path), Cache(tmp_path)
    fill(first, file("a"))
    assert second.look([file("a")]).held == {file("a").key}
    first.close()
    second.close()
    with pytest.raises(NoRoom):
        Cache(tmp_path).begin([file("b")], 1500)
    assert names(first) == [file("a").key.partition("-")[2]]


def test_a_copy_that_is_not_whole_is_nobodys(tmp_path: Path) -> None:
    cache, other = Cache(tmp_path), Cache(tmp_path)
    (part,) = cache.begin([file("a")], MUCH)
    there = other.look([file("a")])
    assert there.held == frozenset()
    assert there.busy == 1000, "it counts as if it were whole"
    cache.drop(part)
    assert other.look([file("a")]).busy == 0


def test_what_a_killed_process_left_half_done_is_swept_away(tmp_path: Path) -> None:
    code = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_stage_cache import *
cache = Cache(Path({str(tmp_path)!r}))
fill(cache, file("whole"))
cache.begin([file("half")], MUCH)
print("begun", flush=True)
time.sleep(600)
"""
    maker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert maker.stdout
    assert maker.stdout.readline() == b"begun\n"
    cache = Cache(tmp_path)
    there = cache.look([])
    assert (there.busy, there.idle) == (2000, 0), "both are the other's as long as it lives"
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    maker.stdout.close()
    there = cache.look([])
    assert (there.busy, there.idle) == (0, 1000)
    assert not list(cache.folder.glob(f".*{PART}"))


def test_the_longest_unused_go_first_and_those_in_use_stay(tmp_path: Path) -> None:
    old = Cache(tmp_path)
    for name in ("a", "b", "c"):
        fill(old, file(name))
    old.close()
    user = Cache(tmp_path)
    user.look([file("a")])
    cache = Cache(tmp_path)
    cache.look([])
    fill(cache, file("new", 1500), budget=3000)
    assert names(cache) == ["a", "new"], "b and c had to go, a is in use"
    with pytest.raises(NoRoom):
        cache.begin([file("more", 2000)], 3000)
    assert names(cache) == ["a", "new"]


def test_two_jobs_that_copy_the_same_file_end_with_one(tmp_path: Path) -> None:
    one, two = Cache(tmp_path), Cache(tmp_path)
    (first,), (second,) = one.begin([file("a")], MUCH), two.begin([file("a")], MUCH)
    one.finish(first)
    two.finish(second)
    assert names(one) == ["a"]
    one.close()
    with pytest.raises(NoRoom):
        Cache(tmp_path).begin([file("b")], 1500)  # in use by the second
    two.close()
    fill(Cache(tmp_path), file("b"), budget=1500)
    assert names(one) == ["b"]


def test_a_database_may_have_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 1000:
        pytest.skip("the hard limit is low")
    limit = len(os.listdir("/proc/self/fd")) + 150  # other tests leave some open
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        files = [file(f"db.{k:03}", 10) for k in range(300)]
        cache = Cache(tmp_path)
        fill(cache, *files)
        assert len(Cache(tmp_path).look(files).held) == 300
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == limit
        cache.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    "spoil", [lambda folder: folder.chmod(0o777), lambda folder: (folder.rmdir(), folder.symlink_to("/tmp"))],
    ids=["open to others", "a link"],
)  # fmt: skip
def test_a_folder_that_others_could_write_is_not_used(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    usual = Cache(tmp_path).folder
    spoil(usual)
    found = Cache(tmp_path).folder
    assert found != usual and found.stat().st_mode & 0o777 == 0o700
    assert Cache(tmp_path).folder == found, "the next job finds what this one has copied"
