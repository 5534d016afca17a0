"""Copies of files behind URLs: one download, whole or not there, whatever happens meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from shell import Shell
from web_server import Web

from millrace.core.errors import CorruptError, MillraceError
from millrace.storage import locations
from millrace.storage.cache.cache_download import fetch_to_cache
from millrace.storage.cache.cache_files import ABOUT, FETCH
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.clients.base import MAX_TRIES, PAUSE_SECONDS, ChangedError, LocationError, UnreachableError

MUCH = 1 << 40
CONTENT = os.urandom(3_000_017)

#: Fetches argv[1] into argv[2], says what it got and waits for the end of its input.
FETCHER = """
import hashlib, sys
from pathlib import Path
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.cache.cache_download import fetch_to_cache
path = fetch_to_cache(sys.argv[1], NodeCache(Path(sys.argv[2])), 1 << 40)
print(hashlib.sha256(path.read_bytes()).hexdigest(), flush=True)
sys.stdin.read()
"""


def start(url: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", FETCHER, url, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def get(url: str, folder: Path, budget: int = MUCH) -> bytes:
    cache = NodeCache(folder)
    try:
        return fetch_to_cache(url, cache, budget, lambda seconds: None).read_bytes()
    finally:
        cache.close()


def left(folder: Path) -> list[str]:
    """What is there besides whole copies and the lock."""
    names = [path.name for path in NodeCache(folder).folder.iterdir()]
    return [name for name in names if name.startswith(".") and name != ".lock" and not name.endswith(ABOUT)]


@pytest.mark.parametrize("kind", ["web", "bucket", "sftp", "hdfs"])
def test_copy_equals_the_file_and_is_fetched_once(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server = request.getfixturevalue(kind)
    if kind == "web":
        url = server.put("db/nr.faa", CONTENT)
    elif kind == "hdfs":
        url = server("fetched/nr.faa", CONTENT)
    elif kind == "bucket":
        import boto3

        boto3.client("s3").put_object(Bucket="blast", Key="nr.faa", Body=CONTENT)
        url = f"{server}/nr.faa"
    else:
        (tmp_path / "nr.faa").write_bytes(CONTENT)
        url = f"{server}{tmp_path}/nr.faa"
    folder = tmp_path / "copies"
    folder.mkdir()
    assert get(url, folder) == get(url, folder) == CONTENT
    assert left(folder) == []
    if kind == "web":
        assert server.n_downloads == 1


@pytest.mark.slow
def test_concurrent_processes_download_a_file_once(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.faa", CONTENT * 4)
    everybody = threading.Event()
    web.between = lambda: everybody.wait(60)
    processes = [start(url, tmp_path) for _ in range(8)]
    everybody.set()
    answers = {process.stdout.readline() for process in processes if process.stdout}
    for process in processes:
        process.communicate()
    import hashlib

    assert answers == {hashlib.sha256(CONTENT * 4).hexdigest().encode() + b"\n"}
    assert (web.n_downloads, web.n_bytes, left(tmp_path)) == (1, 4 * len(CONTENT), [])


class Gate:
    """Lets so many pieces through, and says when they are; then all, once it is open."""

    def __init__(self, n: int) -> None:
        self._n, self.reached, self.open = n, threading.Event(), threading.Event()

    def __call__(self) -> None:
        self._n -= 1
        if self._n < 0:
            self.reached.set()
            assert self.open.wait(300)


@pytest.mark.parametrize("pieces", [0, 1, 7, 20, 45])
def test_download_resumes_after_sigkill_in_another_process(web: Web, tmp_path: Path, pieces: int) -> None:
    url = web.put("nr.faa", CONTENT)
    gate = web.between = Gate(pieces)
    process = start(url, tmp_path)
    assert gate.reached.wait(300)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    gate.open.set()
    cache = NodeCache(tmp_path).folder
    before = sum(path.stat().st_size for path in cache.glob(f".*{FETCH}"))
    assert not [path for path in cache.iterdir() if not path.name.startswith(".")]
    web.between = None
    web.asked.clear()
    assert get(url, tmp_path) == CONTENT
    assert before <= pieces << 16 and left(tmp_path) == []
    assert web.asked == [before], "no byte that was kept is asked for again"


@pytest.mark.slow
def test_fifty_kills_cost_only_the_bytes_in_flight(web: Web, tmp_path: Path) -> None:
    """Each download begins where the one before was cut off; what a killed process had not written yet is sent again."""
    content = os.urandom(12_000_017)
    url = web.put("nr.faa", content)
    chance, sent, kept, lost = random.Random(50), 0, 0, 0
    for _ in range(50):
        gate = web.between = Gate(chance.randrange(2, 10))
        web.asked.clear()
        web.n_bytes = 0
        process = start(url, tmp_path)
        assert gate.reached.wait(300)
        n_sent = web.n_bytes  # the server goes on into the socket of a dead process, until it hears of that
        process.send_signal(signal.SIGKILL)
        process.communicate()
        gate.open.set()
        assert web.asked == [kept]
        now = sum(path.stat().st_size for path in NodeCache(tmp_path).folder.glob(f".*{FETCH}"))
        sent, lost, kept = sent + n_sent, lost + n_sent - (now - kept), now
    web.between = None
    web.asked.clear()
    assert get(url, tmp_path) == content
    assert web.asked == [kept]
    print(f"{sent + len(content) - kept:,} bytes sent for {len(content):,}: {lost:,} were under way at the kills")


def test_waiting_process_replaces_a_killed_downloader(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.faa", CONTENT)
    gate = web.between = Gate(20)
    first = start(url, tmp_path)
    assert gate.reached.wait(300)
    second = start(url, tmp_path)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    gate.open.set()
    out, _ = second.communicate()
    import hashlib

    assert out.decode().strip() == hashlib.sha256(CONTENT).hexdigest()


def test_partial_download_of_an_earlier_boot_is_dropped(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.faa", CONTENT)
    web.cut = 300_000
    with pytest.raises(UnreachableError):
        web.between = failing_after(web, 2)
        get(url, tmp_path)
    (partial,) = NodeCache(tmp_path).folder.glob(f".*{FETCH}")
    partial.write_bytes(b"\0" * partial.stat().st_size)
    partial.rename(partial.with_name(partial.name.replace(partial.name[-14:-6], "deadbeef")))
    web.status, web.cut, web.between = 0, None, None
    assert get(url, tmp_path) == CONTENT and left(tmp_path) == []


def failing_after(web: Web, n: int) -> Callable[[], None]:
    """From the n-th piece on the server refuses everything."""
    seen = iter(range(n))

    def between() -> None:
        if next(seen, None) is None:
            web.status = 503

    return between


def test_cut_connections_resume_at_the_last_byte(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.faa", CONTENT)
    web.cut = 500_000
    assert get(url, tmp_path) == CONTENT
    assert web.n_downloads == 7  # 3.0 MB in parts of 0.5 MB


def test_ranges_resume_at_the_last_byte(web: Web) -> None:
    url = web.put("nr.faa", CONTENT)
    ranges, pauses = [(10, 700_000), (800_000, 800_000), (800_001, 2_000_000), (2_500_000, 2_500_001)], list[float]()
    with closing(locations.open_location(url)) as location:
        about = location.query_status()
        web.cut = 300_000
        found = bytearray(len(CONTENT))
        for at, piece in location.stream_with_retries(ranges, about, pauses.append):
            found[at : at + len(piece)] = piece
        for first, last in ranges:
            assert found[first:last] == CONTENT[first:last]
        assert len(pauses) == 2 + 3 and set(pauses) == {2 * PAUSE_SECONDS}
        web.status = 503
        with pytest.raises(UnreachableError, match="cannot answer now"):
            list(location.stream_with_retries(ranges, about, pauses.append))
        assert len(pauses) == 5 + MAX_TRIES - 1


def test_failing_server_is_named_and_download_kept(web: Web, tmp_path: Path) -> None:
    """The next start goes on where it ended."""
    url = web.put("nr.faa", CONTENT)
    web.cut, web.between = 300_000, failing_after(web, 2)
    with pytest.raises(UnreachableError, match="cannot answer now"):
        get(url, tmp_path)
    assert len(left(tmp_path)) == 1
    web.status, web.cut, web.between, web.n_bytes = 0, None, None, 0
    assert get(url, tmp_path) == CONTENT
    assert web.n_bytes < len(CONTENT)


def test_server_without_ranges_restarts_the_download(web: Web, tmp_path: Path) -> None:
    """The copy has the right bytes."""
    url = web.put("nr.faa", CONTENT)
    web.ranges, web.cut, web.between = False, 300_000, failing_after(web, 2)
    with pytest.raises(UnreachableError):
        get(url, tmp_path)
    web.status, web.cut, web.between = 0, None, None
    assert get(url, tmp_path) == CONTENT


def test_file_changed_during_download_is_never_mixed(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.faa", CONTENT)
    web.cut = 300_000
    pieces = iter(range(3))

    def between() -> None:
        if next(pieces, None) is None:
            web.put("nr.faa", CONTENT[::-1])

    web.between = between
    with pytest.raises(ChangedError, match="changed while it was read"):
        get(url, tmp_path)
    assert left(tmp_path) == []
    web.cut = web.between = None
    assert get(url, tmp_path) == CONTENT[::-1]


def test_other_version_is_another_copy(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.faa", CONTENT)
    assert get(url, tmp_path) == CONTENT
    web.put("nr.faa", CONTENT[::-1])
    assert get(url, tmp_path) == CONTENT[::-1]


def test_download_with_wrong_checksum_is_dropped(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.faa", CONTENT)
    web.tells_digest, web.spoil = True, True
    with pytest.raises(CorruptError, match="another checksum"):
        get(url, tmp_path)
    assert list(NodeCache(tmp_path).folder.iterdir()) == [NodeCache(tmp_path).folder / ".lock"]
    web.spoil = False
    assert get(url, tmp_path) == CONTENT


def test_server_without_versions_is_refused(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.faa", CONTENT)
    web.tells_version = False
    with pytest.raises(LocationError, match="neither ETag nor date"):
        get(url, tmp_path)


def test_oversized_file_is_refused_and_idle_copies_evicted(web: Web, tmp_path: Path) -> None:
    one, two = web.put("one", CONTENT), web.put("two", CONTENT[::-1])
    with pytest.raises(MillraceError, match="no room for its 3,000,017 bytes"):
        get(one, tmp_path, budget=2_000_000)
    assert left(tmp_path) == []
    user = NodeCache(tmp_path)
    assert fetch_to_cache(one, user, MUCH).read_bytes() == CONTENT
    with pytest.raises(MillraceError, match="no room"):
        get(two, tmp_path, budget=4_000_000)
    user.close()
    assert get(two, tmp_path, budget=4_000_000) == CONTENT[::-1]
    names = [path.name for path in NodeCache(tmp_path).folder.iterdir()]
    assert sum("-one" in name for name in names) == 0 and sum("-two" in name for name in names) == 2


def test_full_disk_is_reported_and_leaves_nothing(web: Web, tmp_path: Path) -> None:
    url = web.put("nr.faa", CONTENT)
    code = "import sys; from pathlib import Path; from millrace.storage.cache.copy_cache import NodeCache\n" + (
        "from millrace.storage.cache.cache_download import fetch_to_cache\ntry: fetch_to_cache(sys.argv[1], NodeCache(Path(sys.argv[2])), 1 << 40)\n"
        "except Exception as error: print(error)\nprint([p.name for p in NodeCache(Path(sys.argv[2])).folder.iterdir()])"
    )
    inner = ["sh", "-c", f'mount -t tmpfs -o size=2m none {tmp_path} && exec "$@"', "sh", sys.executable, "-c", code, url, tmp_path]  # fmt: skip
    ended = subprocess.run(["unshare", "--mount", *inner], capture_output=True, text=True)
    if ended.returncode:
        pytest.skip(f"needs a mount namespace: {ended.stderr.strip()}")
    assert "no room for its 3,000,017 bytes" in ended.stdout and ended.stdout.endswith("['.lock']\n"), ended.stdout


def test_stage_list_verify_and_evict(shell: Shell, web: Web) -> None:
    url = web.put("db/nr.faa", CONTENT)
    folder = shell.root / "copies"
    folder.mkdir()
    ended = shell.run(f"millrace data stage {url} --to {folder}")
    path = Path(ended.out.strip())
    assert ended.code == 0 and path.read_bytes() == CONTENT and path.name.endswith("-nr.faa"), ended.shown
    assert shell.run(f"millrace data stage {url} --to {folder}").out == ended.out and web.n_downloads == 1
    assert f"{path}  3.0 MB  whole  {url}, 20" in shell.run(f"millrace data list --to {folder}").out
    assert shell.run(f"millrace data verify --to {folder}").out == f"{path}  whole, and up to date\n"
    web.put("db/nr.faa", CONTENT[::-1])
    assert "whole; its place has another version now" in shell.run(f"millrace data verify --to {folder}").out
    web.status = 503
    assert "cannot be asked" in shell.run(f"millrace data verify --to {folder}").out
    web.status = 0
    web.put("db/nr.faa", CONTENT)
    user = NodeCache(folder)
    fetch_to_cache(url, user, MUCH)
    ended = shell.run(f"millrace data evict {url} --to {folder}")
    assert ended.code == 1 and "is in use, and stays" in ended.err and path.exists()
    user.close()
    ended = shell.run(f"millrace data evict --all --to {folder}")
    assert (ended.code, ended.out, ended.err) == (0, f"{path}  3.0 MB  removed\n", "")
    assert [each.name for each in path.parent.iterdir()] == [".lock"]


def test_damaged_copy_is_detected_and_removed(shell: Shell, web: Web) -> None:
    url = web.put("nr.faa", CONTENT)
    folder = shell.root / "copies"
    folder.mkdir()
    path = Path(shell.run(f"millrace data stage {url} --to {folder}").out.strip())
    with path.open("r+b") if os.geteuid() == 0 else pytest.skip("needs root") as file:
        file.seek(1_000_000)
        file.write(b"damage")
    ended = shell.run(f"millrace data verify --to {folder}")
    assert ended.code == 5 and "damaged" in ended.out and not path.exists(), ended.shown


def test_evict_needs_exactly_one_target(shell: Shell) -> None:
    assert shell.run("millrace data evict").code == shell.run("millrace data evict --all x").code == 2
    ended = shell.run("millrace data evict https://host/nr")
    assert (ended.code, ended.err) == (1, "millrace: https://host/nr: no copy of it is here\n")
