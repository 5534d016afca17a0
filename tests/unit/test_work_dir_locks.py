"""Work directories: made under a lock, swept when their run is dead, left alone while it lives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.core.errors import MillraceError
from millrace.host import work_places
from millrace.node import work_dir

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two places of our own instead of the machine's."""
    found = [tmp_path / "memory", tmp_path / "disk"]
    for place in found:
        place.mkdir()
    monkeypatch.setattr(work_places, "list_work_places", lambda: found)
    return found


def dead(place: Path) -> Path:
    """A work directory whose run is dead."""
    path = place / f"{work_dir.build_name_prefix()}{os.urandom(8).hex()}"
    path.mkdir(mode=0o700)
    (path / "spool").mkdir()
    return path


def test_work_directory_is_private_and_watched(places: list[Path]) -> None:
    work = work_dir.choose_work_dir(places[0])
    assert work.path.parent == places[0] and work.secret in work.path.name
    assert not work.path.exists(), "made only when the watchdog runs"
    work.make_folder()
    assert work.spool.is_dir()
    assert work.path.stat().st_mode & 0o77 == 0


def test_dead_work_directories_are_swept_and_live_ones_kept(places: list[Path]) -> None:
    live = work_dir.choose_work_dir(places[0])
    live.make_folder()
    left = [dead(place) for place in places]
    other = places[0] / "somebody-elses"
    other.mkdir()
    work_dir.choose_work_dir(places[0])
    assert not any(path.exists() for path in left)
    assert live.spool.is_dir() and other.is_dir()


def test_work_directory_that_cannot_be_made_is_an_error(places: list[Path]) -> None:
    """Another run may sweep it while it is made."""
    work = work_dir.choose_work_dir(places[0])
    work.path.mkdir()
    with pytest.raises(MillraceError, match="cannot be made"):
        work.make_folder()


def test_processes_with_the_token_end_with_the_run(places: list[Path]) -> None:
    left = dead(places[0])
    environ = {**os.environ, work_dir.TOKEN_NAME: left.name.removeprefix(work_dir.build_name_prefix())}
    program = "import sys; print(flush=True); sys.stdin.read()"
    program = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(program, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()  # before, it may have no environment yet
        work_dir.choose_work_dir(places[0])
        assert process.wait(300) == -9
    assert not left.exists()
