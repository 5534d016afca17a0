"""Copies that members of a group share, in a folder that root has made for them."""

from __future__ import annotations

import hashlib
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from machine_users import STRANGER, Machine, User

#: A group that no account has.
GROUP = STRANGER + 10_000_000
CONTENT = random.Random(4).randbytes(1_000_003)


@pytest.fixture
def both(machine: Machine) -> tuple[User, User]:
    """Two members of the group."""
    return replace(machine.user, groups=(GROUP,)), replace(machine.stranger, groups=(GROUP,))


@pytest.fixture
def folder(machine: Machine) -> Path:
    """As the docs tell the site to make it."""
    made = machine.shared / "millrace-stage-group"
    made.mkdir()
    os.chown(made, 0, GROUP)
    made.chmod(0o2770)
    (machine.shared / "db").write_bytes(CONTENT)
    return made


def stage(user: User, machine: Machine) -> Path:
    done = user.millrace("data", "stage", "--all", machine.shared / "db", "--to", machine.shared)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.read_bytes() == CONTENT
    return path


def test_copy_of_one_member_is_used_by_another(machine: Machine, both: tuple[User, User], folder: Path) -> None:
    first, second = (stage(user, machine) for user in both)
    assert first == second and first.parent == folder
    about = first.stat()
    assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (both[0].uid, GROUP, 0o444)
    assert both[1].millrace("data", "evict", "--all", "--to", machine.shared).returncode == 0
    assert not first.exists(), "who is a member may make room"


def test_copy_altered_by_a_member_is_fetched_again(machine: Machine, both: tuple[User, User], folder: Path) -> None:
    path = stage(both[0], machine)
    both[0].sh(f"chmod u+w {path}; printf x | dd of={path} bs=1 seek=9 conv=notrunc 2> /dev/null; chmod u-w {path}")
    assert hashlib.sha256(path.read_bytes()).digest() != hashlib.sha256(CONTENT).digest()
    assert stage(both[1], machine).stat().st_uid == both[1].uid


def test_partial_copy_of_a_killed_member_is_not_continued(
    machine: Machine, both: tuple[User, User], folder: Path
) -> None:
    """Another member fetches the file from its beginning."""
    code = (
        "import os; from pathlib import Path; from millrace.storage.cache import cache_download; from millrace.storage import locations; from millrace.storage.cache.copy_cache import NodeCache\n"
        f"place = '{machine.shared}/db'; cache = NodeCache(Path('{machine.shared}'), fetched=True)\n"
        "part = cache.claim_copy(cache_download.make_remote_file(place, locations.query_file_status(place)), 1 << 30)\n"
        "os.pwrite(part.descriptor, b'not it' * 9, 0); os.kill(os.getpid(), 9)"
    )
    assert both[0].run(both[0].python, "-c", code).returncode == -9
    assert [path.stat().st_uid for path in folder.glob(".*.fetch")] == [both[0].uid]
    assert stage(both[1], machine).stat().st_uid == both[1].uid
    assert not [*folder.glob(".*.fetch")]


@pytest.mark.parametrize("fault", ["a member's", "open to all", "sticky", "a link", "no member"])
def test_group_folder_not_made_by_root_is_not_used(
    machine: Machine, both: tuple[User, User], folder: Path, fault: str
) -> None:
    user = both[0]
    if fault == "a member's":
        os.chown(folder, both[1].uid, GROUP)
        folder.chmod(0o2770)
    elif fault == "open to all":
        folder.chmod(0o2777)
    elif fault == "sticky":
        folder.chmod(0o3770)
    elif fault == "a link":
        folder.rename(folder.with_name("elsewhere"))
        folder.symlink_to("elsewhere")
    else:
        user = machine.user
    assert stage_path(user, machine) == machine.shared / f"millrace-stage-{user.uid}"


def stage_path(user: User, machine: Machine) -> Path:
    done = user.millrace("data", "stage", "--all", machine.shared / "db", "--to", machine.shared)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip()).parent
