"""A user, a stranger who means him harm, and a folder where both may write."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from machine_users import STRANGER, VICTIM, Machine, User, install


@pytest.fixture(scope="session")
def installed() -> Iterator[tuple[Path, Path]]:
    """A Python and packages that every user can read."""
    if os.geteuid():
        pytest.skip("only root can start processes as two users")
    # The folder of the session is closed to others.
    with tempfile.TemporaryDirectory(prefix="millrace-test-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        python, packages = install(Path(name))
        done = subprocess.run(
            [python, "-c", "import millrace"], env={"PYTHONPATH": str(packages)}, user=STRANGER, group=STRANGER,
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"{python}: cannot be run by every user: {done.stderr.decode(errors='replace')[-200:]}")
        yield python, packages


@pytest.fixture
def machine(installed: tuple[Path, Path]) -> Iterator[Machine]:
    """Two users; afterwards nothing of theirs is left."""
    place = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    place.chmod(0o755)
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    users = []
    for name, uid in (("user", VICTIM), ("stranger", STRANGER)):
        home = place / name
        home.mkdir(mode=0o700)
        os.chown(home, uid, uid)
        users.append(User(uid, home, *installed))
    yield Machine(users[0], users[1], shared)
    clean(place)


def clean(place: Path) -> None:
    """End all processes of the two, and remove what they made."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry.stat().st_uid in (VICTIM, STRANGER):
                os.kill(int(entry.name), signal.SIGKILL)
    for memory in map(Path, ("/dev/shm", "/tmp")):
        for path in memory.glob("millrace-*"):
            with suppress(OSError):
                if path.lstat().st_uid in (VICTIM, STRANGER):
                    path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
    shutil.rmtree(place)
