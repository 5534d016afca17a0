"""What packs write beside their outputs, in a folder where others may write, goes through nothing that they have made before."""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path

import pytest
from machine_users import Machine, User

SEARCH = "blastp -query q.faa -db prot -evalue 1e-3 -outfmt 0 -out out"

#: Twenty proteins, alike enough to find each other: a result that is packed by its meaning.
RANDOM = random.Random(7)
PROTEIN = RANDOM.choices("ACDEFGHIKLMNPQRSTVWY", k=120)
PROTEINS = "".join(
    f">p{number}\n{''.join(each if RANDOM.random() < 0.8 else 'A' for each in PROTEIN)}\n" for number in range(20)
)


def with_result(user: User) -> None:
    """Let a user have a database, queries, the result of a search and its pack."""
    if not shutil.which("blastp"):
        pytest.skip("blastp is not installed")
    (user.home / "q.faa").write_text(PROTEINS)
    user.sh(f"makeblastdb -in q.faa -dbtype prot -out prot > /dev/null; {SEARCH}; mkdir -p own; chmod 755 . own")
    done = user.millrace("pack", "-o", "result.mrp", "--", *SEARCH.split())
    assert done.returncode == 0 and "regenerated in" in done.stderr, done.stderr


def unpack(user: User, out: Path) -> tuple[str, tuple[object, ...]]:
    digest = hashlib.sha256((user.home / "result.mrp").read_bytes()).hexdigest()
    verb = ("unpack", "result.mrp", "--yes", "--queries", "q.faa", "--db", user.home / "prot", "-o", out)
    return f"{out}.{digest[:12]}.unpack", verb


def receive(user: User, out: Path) -> tuple[str, tuple[object, ...]]:
    return f"{out.parent}/.{out.name}.receiving", ("receive", "-o", out)


def pack(user: User, out: Path) -> tuple[str, tuple[object, ...]]:
    return f"{out.parent}/.{out.name}.pack", ("pack", "-o", out, "--", *SEARCH.split())


def pack_to(user: User, out: Path) -> tuple[str, tuple[object, ...]]:
    return f"{out.parent}/.{out.name}.packing", (
        "run", "--run-dir", user.home / "run", "--pack-to", out, "--", *SEARCH.replace("-out out", "-out other").split()
    )  # fmt: skip


@pytest.mark.parametrize("verb", [unpack, receive, pack, pack_to])
@pytest.mark.parametrize("planted", ["ln -s {home}/own {}", "mkdir -m 777 {}"])
def test_preexisting_folder_beside_an_output_is_refused(machine: Machine, verb: object, planted: str) -> None:
    user, out = machine.user, machine.shared / "out"
    with_result(user)
    folder, words = verb(user, out)  # type: ignore[operator]
    machine.stranger.sh(planted.format(folder, home=user.home))
    done = user.millrace(*words)
    assert done.returncode == (1 if verb is pack else 2) and f"{folder}: " in done.stderr, done.stderr
    assert "belongs to another user" in done.stderr or "is a link" in done.stderr, done.stderr
    assert not any((user.home / "own").iterdir()) and not out.exists()
    if verb is unpack and "ln" in planted:  # the rig can tell
        machine.stranger.sh(f"rm {folder}")
        done = user.millrace(*words)
        assert done.returncode == 0, done.stderr
        assert [path.name for path in machine.shared.iterdir()] == ["out"]


def test_packing_does_not_run_the_command_of_a_stranger(machine: Machine) -> None:
    stranger, run_dir = machine.stranger, machine.shared / "run"
    stranger.sh("printf '>a\\nM\\n' > in.fa")
    done = stranger.millrace("run", "--keep-run-dir", "--run-dir", run_dir, "--input", "in.fa", "--", "cat", "in.fa")
    assert done.returncode == 0, done.stderr
    stranger.sh(f"chmod -R a+rX {run_dir}")
    done = machine.user.millrace("pack", run_dir, "-o", "out.mrp")
    assert done.returncode == 2 and "belongs to another user" in done.stderr, done.stderr
    assert not (machine.user.home / "out.mrp").exists()


def test_temporary_folder_beside_an_output_is_private(machine: Machine) -> None:
    """Parts of a result are as private as a run directory, also where the folder was left open by an earlier release."""
    user, folder = machine.user, machine.shared / ".out.receiving"
    user.sh(f"mkdir -m 755 {folder}")
    done = user.millrace("receive", "-o", machine.shared / "out")
    assert done.returncode == 1, done.stderr  # nothing was sent
    assert not folder.exists() or folder.stat().st_mode & 0o777 == 0o700
