"""A share of unknown speed is measured before the first task, so that a run copies from a slow one and reads a fast one in place."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell import Ended, Shell

from millrace.storage import cost_table
from millrace.storage.bind_mounts import find_mount_problem

#: Mounts ``share`` on ``mnt`` at a rate, where nobody else sees it, and runs the words that follow.
MOUNT = "unshare --mount --fork sh -c 'bindfs -o ro {options} share mnt && \"$@\"; code=$?; umount mnt; exit $code' sh "

#: Bytes of the database, and those that the slow share sends in a second.
DATABASE_BYTES, SLOW_BYTES = 6_000_000, 3_000_000

#: Of the database, in the folder of copies as well, which are to go at the end.
NAME = f"slow-share-{os.getpid()}.bin"

#: Reads all of its database for each task, and writes what it was beside each name.
READER = 'sum=$(cksum < "$2"); sed "/^>/s/$/ $sum/" "$1" > "$3"'

RUN = f"millrace {{what}} --batch 1 --slots 1 {{options}} --input in.fa --output out.fa --shared mnt/{NAME} -- reader in.fa mnt/{NAME} out.fa"


@pytest.fixture
def share(shell: Shell, environment: Path) -> Iterator[Shell]:
    if not shutil.which("bindfs"):
        pytest.skip("bindfs is not installed")
    if reason := find_mount_problem(str(shell.root)):
        pytest.skip(reason)
    (shell.work / "share").mkdir()
    (shell.work / "mnt").mkdir()
    (shell.work / "share" / NAME).write_bytes(os.urandom(DATABASE_BYTES))
    tried = subprocess.run(
        ["bash", "-c", MOUNT.format(options="") + "true"], cwd=shell.work, capture_output=True, text=True
    )
    if tried.returncode:
        pytest.skip(f"no filesystem in user space can be mounted: {tried.stderr.strip()}")
    shell.tool("reader", READER)
    yield shell
    for copy in Path("/dev/shm").glob(f"millrace-stage-{os.getuid()}/*-{NAME}"):
        copy.unlink()


def call(shell: Shell, what: str, rate: int = 0, options: str = "") -> str:
    mount = MOUNT.format(options=f"--read-rate={rate}" if rate else "")
    ended = shell.run(mount + RUN.format(what=what, options=options))
    assert ended.code == 0, ended.shown
    return ended.shown


def shell_words(ended: Ended) -> str:
    """Its only line, once it is known to have gone well."""
    assert ended.code == 0, ended.shown
    return ended.out.strip()


def is_exact(shell: Shell) -> bool:
    """Whether the output is what the tool writes in one piece."""
    serial = shell.run(f"reader in.fa share/{NAME} serial.fa && cmp serial.fa out.fa")
    return serial.code == 0


def test_a_slow_share_is_measured_and_copied_from(share: Shell) -> None:
    said = call(share, "run", SLOW_BYTES, "-v")
    assert "does not stay in memory" in said and "(measured)" in said, said
    assert "databases: each its copy, from" in said, said
    assert is_exact(share)
    measured = cost_table.read_cost_table(os.environ)[str(share.work / "mnt")]
    assert not measured.is_kept
    # Within a factor that tells it from the guess, which is 300 times as fast.
    assert 0.2 < measured.cost.predict_seconds(DATABASE_BYTES, 1) * SLOW_BYTES / DATABASE_BYTES < 20, measured
    assert re.search(r"databases: each its copy .*\(measured\)", call(share, "plan", SLOW_BYTES))


def test_path_on_a_slow_share_is_copied_for_many_reads(share: Shell) -> None:
    """The share is measured by the first question."""
    line = f"millrace data best-path --replicate mnt/{NAME} --reads "
    mount = MOUNT.format(options=f"--read-rate={SLOW_BYTES}")
    once, often = shell_words(share.run(f"{mount} {line} 1")), shell_words(share.run(f"{mount} {line} 20"))
    assert once == f"{share.work}/mnt/{NAME}" and often != once
    copy = Path(often)
    assert copy.read_bytes() == (share.work / "share" / NAME).read_bytes()
    assert str(copy) in share.run("millrace data list").out
    copy.unlink()


def test_a_copy_of_a_database_just_written_is_not_used_again(share: Shell) -> None:
    """Servers tell whole seconds, so that size and time of a new one may be those of the old one."""
    database = share.work / "share" / NAME
    now = int(time.time())
    for _ in range(2):
        database.write_bytes(os.urandom(DATABASE_BYTES))
        os.utime(database, (now, now))
        said = call(share, "run", SLOW_BYTES, "-v")
        assert "to be copied" in said and is_exact(share), said


def test_measured_share_is_not_measured_again(share: Shell) -> None:
    call(share, "plan", SLOW_BYTES)
    before = cost_table.read_cost_table(os.environ)
    call(share, "plan")
    assert cost_table.read_cost_table(os.environ) == before


def test_small_databases_are_not_measured(share: Shell) -> None:
    (share.work / "share" / NAME).write_bytes(b"small")
    assert "(guessed" in call(share, "plan", SLOW_BYTES)
    assert not cost_table.read_cost_table(os.environ)
