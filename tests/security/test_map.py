"""``millrace.map`` loads functions and results: only those that this user has put there."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from machine_users import Machine, User

CODE = "import sys, millrace; print(list(millrace.map(len, ['a', 'bcd'], run_dir=sys.argv[1], slots=1)))"


class Planted:
    """What makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.path, "w")


def called(user: User, folder: Path) -> tuple[int, str]:
    done = user.run(user.python, "-P", "-c", CODE, folder)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("mode", ["755", "777"])
def test_map_refuses_the_folder_of_a_stranger(machine: Machine, mode: str) -> None:
    user, folder = machine.user, machine.shared / "map"
    machine.stranger.sh(f"mkdir -m {mode} {folder}")
    code, said = called(user, folder)
    assert code and "belongs to another user, and what is in it would be run" in said, said
    assert not any(folder.iterdir())


def test_map_refuses_a_folder_writable_by_everybody(machine: Machine) -> None:
    user = machine.user
    user.sh("mkdir -m 777 map")
    code, said = called(user, user.home / "map")
    assert code and "can be written by every user, and what is in it would be run" in said, said


def test_map_follows_no_link_of_a_stranger(machine: Machine) -> None:
    user, folder = machine.user, machine.shared / "map"
    user.sh("mkdir own; chmod 755 . own")
    machine.stranger.sh(f"ln -s {user.home}/own {folder}")
    code, said = called(user, folder)
    assert code and "is a link" in said, said
    assert not any((user.home / "own").iterdir())


def test_map_folder_is_private(machine: Machine) -> None:
    user, folder = machine.user, machine.shared / "map"
    code, said = called(user, folder)
    assert (code, said) == (0, "[1, 3]\n")
    assert folder.stat().st_mode & 0o777 == 0o700 and machine.stranger.run("ls", folder).returncode


def test_worker_loads_only_the_function_of_its_digest(machine: Machine) -> None:
    """Whoever exchanges the file between the call and the worker's start runs nothing."""
    user, loaded = machine.user, machine.user.home / "loaded"
    (user.home / "call").write_bytes(pickle.dumps(Planted(loaded)))
    words = (user.python, "-P", "-m", "millrace.api.worker", user.home / "call")
    done = user.run(*words, "0" * 64)
    assert done.returncode == 1 and "is not the function that millrace.map was called with" in done.stderr, done.stderr
    assert not loaded.exists()
