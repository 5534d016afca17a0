"""A store that two users of one group write and read, each as who they are."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from machine_users import STRANGER, Machine, User, link_or_copy

#: A group that no account has.
GROUP = STRANGER + 20_000_000

#: What ``millrace[owners]`` imports.
SIGNING = ("cryptography", "cffi", "_cffi_backend", "pycparser")


@pytest.fixture
def members(machine: Machine) -> tuple[User, User]:
    """Two members of the group, who can sign."""
    packages = machine.shared.parent / "signing"
    packages.mkdir(mode=0o755)
    for name in SIGNING:
        source = Path(import_module(name).__file__ or "")
        if source.name == "__init__.py":
            shutil.copytree(source.parent, packages / name, copy_function=link_or_copy)
        else:
            link_or_copy(str(source), str(packages / source.name))
    users = machine.user, machine.stranger
    path = machine.user.packages, packages
    return tuple(replace(user, groups=(GROUP,), packages=":".join(map(str, path))) for user in users)  # type: ignore[return-value,arg-type]


@pytest.fixture
def store(machine: Machine) -> Path:
    """A store as the docs tell a group to make it, and beside it a database and queries that all can read."""
    drawn = random.Random(5)
    sequences = ["".join(drawn.choices("ARNDCQEGHILKMFPSTWYV", k=200)) for _ in range(60)]
    (machine.shared / "db.faa").write_text("".join(f">e{k}\n{each}\n" for k, each in enumerate(sequences)))
    (machine.shared / "q.faa").write_text("".join(f">q{k}\n{each[20:150]}\n" for k, each in enumerate(sequences[:10])))
    command = ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"]
    subprocess.run(command, cwd=machine.shared, check=True, stdout=subprocess.DEVNULL)
    made = machine.shared / "store"
    made.mkdir()
    os.chown(made, 0, GROUP)
    made.chmod(0o2770)
    return made


def make_key(user: User, name: str) -> str:
    """Make the key of a member; return the line by which others list him."""
    folder = user.home / ".config" / "millrace"
    folder.mkdir(parents=True)
    key = folder / "store-key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True
    )  # which needs an account
    for path in (folder.parent, folder, key):
        os.chown(path, user.uid, user.uid)
    return f"{name} {key.with_suffix('.pub').read_text()}"


def list_owners(user: User, *lines: str) -> None:
    """Write the list of the owners whose rows a member reads."""
    path = user.home / ".config" / "millrace" / "store-owners"
    path.write_text("".join(lines))
    os.chown(path, user.uid, user.uid)


def search(user: User, store: Path, outfmt: str) -> str:
    """Search as a member, compare with the serial command's bytes, and return what the run says."""
    command = f"blastp -query {store.parent}/q.faa -db {store.parent}/db -evalue 1e-3 -outfmt {outfmt}"
    user.sh(f"{command} -out serial")
    done = user.millrace("run", "--store", store, "--", *command.split(), "-out", "ours")
    assert done.returncode == 0, done.stderr
    user.sh("cmp serial ours")
    return done.stderr


@pytest.mark.slow
def test_members_use_what_listed_members_have_found(members: tuple[User, User], store: Path) -> None:
    first, second = members
    lines = make_key(first, "anna"), make_key(second, "bert")
    list_owners(first, lines[0])
    list_owners(second, lines[1])
    assert "known" not in search(first, store, "6")
    assert {path.stat().st_uid for path in store.rglob("*") if path.is_file()} == {first.uid}
    assert "known" not in search(second, store, "7"), "who is not listed counts for nothing"
    assert "known" not in search(first, store, "0"), "nor does what has taken the place of one's own"
    list_owners(second, *lines)
    assert "9 of 10 queries known" in search(second, store, "5"), "one is searched again, as a sample"


@pytest.mark.slow
def test_run_of_who_is_not_in_the_group_goes_on_without_the_store(
    machine: Machine, members: tuple[User, User], store: Path
) -> None:
    list_owners(members[0], make_key(members[0], "anna"))
    search(members[0], store, "6")
    told = search(replace(members[1], groups=()), store, "6")
    assert "store: not used: " in told and "Permission denied" in told and "only read" not in told, told
