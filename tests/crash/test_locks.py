"""One run directory, two starts, on filesystems that have ``flock``, have none, or tell it to one machine alone."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import harness
import pytest
from crash_site import Site
from flock_filesystem import told_flock

from millrace.host import file_lock

#: Another machine: a table of processes of its own.
ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "sh", "-c", 'hostname node07; exec "$@"', "sh")  # fmt: skip


@pytest.fixture
def no_flock(site: Site, session_folder: Path) -> Site:
    """A site on a filesystem whose ``flock`` gives what ``FLOCK_ANSWER`` says: each process may have everything."""

    site.environ |= told_flock(session_folder, site.folder)
    return site


def begin(site: Site, wrap: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A run that has done some of its work, and goes on until the site is released."""
    process = site.start(HOLD="3", wrap=wrap)
    site.wait_for_work(process, 4)
    return process


def end(site: Site, process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert harness.wait_until(lambda: not harness.marked(str(site.folder)))


def need_root() -> None:
    if os.geteuid():
        pytest.skip("another table of processes: only root may make one")


@pytest.mark.parametrize("answer", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_without_flock_runs_work_and_exclude_each_other(no_flock: Site, answer: int) -> None:
    no_flock.environ["FLOCK_ANSWER"] = str(answer)
    process = begin(no_flock)
    code, said = no_flock.run()
    assert code == 2, said
    assert re.search(
        rf"another millrace \(process \d+ on {re.escape(socket.gethostname())}\) is running this now", said
    )
    end(no_flock, process)
    code, said = no_flock.run()  # at once: the kernel knows that it is dead
    assert code == 0, said
    assert no_flock.output.read_bytes() == no_flock.expected


def test_work_directory_without_flock_is_kept_until_death(no_flock: Site) -> None:
    """Only the directory of a dead run is swept."""
    area = no_flock.folder.with_name(f"{no_flock.folder.name}.area")
    area.mkdir()
    no_flock.environ |= {"FLOCK_ANSWER": str(errno.ENOSYS), "MILLRACE_WORK": str(area)}
    look = (
        f"from pathlib import Path; from millrace.node import work_dir; work_dir.sweep_dead_runs(Path({str(area)!r}))"
    )

    def sweep() -> None:
        subprocess.run([sys.executable, "-c", look], env={**os.environ, **no_flock.environ}, check=True)

    process = begin(no_flock)
    sweep()
    (work,) = area.iterdir()
    for pid, name in harness.children(process.pid):
        if name == "millrace-watch":
            os.kill(pid, signal.SIGKILL)
    end(no_flock, process)
    assert work.is_dir()
    sweep()
    assert not work.exists()


def test_run_on_another_machine_is_refused_until_silent(no_flock: Site) -> None:
    """After a long silence it counts as dead, and its run is resumed."""
    need_root()
    process = begin(no_flock, ELSEWHERE)
    code, said = no_flock.run()
    assert code == 2, said
    assert re.search(r"another millrace \(process \d+ on node07\) is running this now", said)
    end(no_flock, process)
    lock = no_flock.run_dir / "lock"
    os.utime(lock, (time.time() - 100, time.time() - 100))
    code, said = no_flock.run("--keep-run-dir")
    assert code == 0, said
    assert no_flock.output.read_bytes() == no_flock.expected
    # It might have been frozen, and not dead.
    assert [path.name for path in sorted(no_flock.run_dir.glob("*.mrj"))] == ["journal-1-0.mrj", "journal.mrj"]


def test_frozen_run_that_wakes_leaves_its_successor_alone(no_flock: Site) -> None:
    need_root()
    frozen = begin(no_flock, ELSEWHERE)
    pids = harness.marked(str(no_flock.folder))
    for pid in pids:
        with suppress(ProcessLookupError):  # a nap of the waiting tool
            os.kill(pid, signal.SIGSTOP)
    lock = no_flock.run_dir / "lock"
    os.utime(lock, (time.time() - 100, time.time() - 100))
    before = no_flock.executions
    go = no_flock.log.with_name(f"{no_flock.log.name}.second")
    second = no_flock.start(HOLD=str(before + 1), GO=str(go), mark="second")
    no_flock.wait_for_work(second, before + 1)
    for pid in pids:
        with suppress(ProcessLookupError):  # a nap of the waiting tool
            os.kill(pid, signal.SIGCONT)
    no_flock.release()
    _, said = frozen.communicate()
    assert "has taken this run over" in said
    assert second.poll() is None, "it was to last longer"
    go.touch()
    _, said = second.communicate()
    assert second.returncode == 0, said
    assert no_flock.output.read_bytes() == no_flock.expected
    assert not no_flock.run_dir.exists()


def test_start_ignores_a_half_acquired_lock_of_a_dead_one(site: Site) -> None:
    process = begin(site)
    end(site, process)
    dead = (site.run_dir / "lock").read_bytes()
    (site.run_dir / "lock.taking").write_bytes(dead)
    code, said = site.run()
    assert code == 0, said
    assert not site.run_dir.exists()


@pytest.mark.parametrize(("answer", "words"), [("", "flock works"), (str(errno.ENOSYS), "no flock")])
def test_doctor_reports_locking_of_the_folder(no_flock: Site, answer: str, words: str) -> None:
    environ = {**os.environ, **no_flock.environ, "FLOCK_ANSWER": answer}
    if not answer:
        del environ["FLOCK_ANSWER"]
    said = subprocess.run(
        [sys.executable, "-m", "millrace", "doctor"], cwd=no_flock.folder, env=environ, capture_output=True, text=True
    ).stdout
    assert re.search(rf"^folder: +{re.escape(str(no_flock.folder))} \(\w+\): {words}", said, re.MULTILINE), said
    assert not list(no_flock.folder.glob(".millrace*"))


@pytest.mark.slow
def test_lock_query_does_not_block_a_starting_run(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    file_lock.acquire_lock(path).close()
    code = "import sys; from pathlib import Path; from millrace.host import file_lock\nwhile True: file_lock.is_held(Path(sys.argv[1]))"
    looking = subprocess.Popen([sys.executable, "-c", code, path])
    try:
        while not has_locked(path):  # it is there
            assert looking.poll() is None
        for _ in range(500):
            file_lock.acquire_lock(path).close()
    finally:
        looking.kill()
        looking.wait()


def has_locked(path: Path) -> bool:
    with path.open() as file:
        return file_lock.try_flock(file.fileno(), fcntl.LOCK_EX) is False
