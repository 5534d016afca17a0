"""History of ended runs, as listed by ``millrace runs``; kept in the user's state folder, and never needed.

Each run has a folder there with its logs and a small description. The folder of all runs is made for this user alone,
and used only if it is. An error here is no fault of a run: then nothing is kept.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace import own, state
from millrace.errors import MillraceError, RefusedError
from millrace.model import FrozenValue
from millrace.plan import run_place
from millrace.rundir import SUFFIX
from millrace.sealed import encode_checksummed, read_checksummed

#: Most runs to keep, the latest ones, and most bytes of all of them together.
MAX_RUNS, MAX_RUN_BYTES = 50, 64 << 20

#: Fewest letters that may abbreviate a name.
MIN_NAME_LETTERS = 4

#: Prefix of an unfinished folder, and the age in seconds at which its writer is taken for dead.
_NEW, _MAX_WRITE_SECONDS = ".new-", 3600.0

#: The event log of a run in its folder.
EVENTS = "events.jsonl"


class EndedRun(FrozenValue, frozen=True):
    """A run that has ended."""

    run_id: str
    #: When, as ISO 8601.
    ended: str
    argv: tuple[str, ...]
    host: str
    cwd: str
    run_dir: str
    #: ``done``, ``quarantined``, ``interrupted`` or ``build_stop_error``, and the exit code.
    status: str
    exit_code: int
    #: The final error message; empty if all went well.
    message: str
    records_done: int
    quarantined: int
    #: Number of starts, and their running time in seconds.
    n_starts: int
    wall: float

    @property
    def name(self) -> str:
        """Its name in lists."""
        return self.run_id[:8]


class ArchivedRun(msgspec.Struct, frozen=True):
    """A ``EndedRun`` run, and the folder that keeps it."""

    past: EndedRun
    folder: Path


def archive_run(past: EndedRun, logs: Mapping[str, Path], environ: Mapping[str, str]) -> None:
    """Keep ``past`` with its logs; replaces an earlier start of the same run.

    Args:
        logs: Files, by their names in the folder of this run.
    """
    with suppress(OSError):
        home = _find_archive_folder(environ, make=True)
        new = home / f"{_NEW}{os.urandom(8).hex()}"
        new.mkdir(mode=0o700)
        try:
            (new / "run.json").write_bytes(encode_checksummed(past))
            for name, log in logs.items():
                (new / name).parent.mkdir(mode=0o700, exist_ok=True)
                shutil.copyfile(log, new / name)
            place = home / past.run_id
            shutil.rmtree(place, ignore_errors=True)
            new.rename(place)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
        _prune_oldest_runs(home)


def sweep_unfinished(environ: Mapping[str, str]) -> None:
    """Remove unfinished folders whose writers have died."""
    with suppress(OSError):
        _remove_unfinished(_find_archive_folder(environ))


def list_archived_runs(environ: Mapping[str, str]) -> list[ArchivedRun]:
    """List all kept runs, the one that ended last at the end."""
    try:
        return _read_archived_runs(_find_archive_folder(environ))
    except OSError:
        return []


def find_archived_run(run: str, environ: Mapping[str, str]) -> ArchivedRun:
    """Find a run by its name, or by the path of its run directory or of its output; the latest, if there are several.

    Raises:
        RefusedError: There is none, or an abbreviated name is ambiguous.
    """
    runs = list_archived_runs(environ)
    path = os.path.abspath(run)
    if there := [each for each in runs if each.past.run_dir in (path, path + SUFFIX)]:
        return there[-1]
    named = [each for each in runs if each.past.run_id.startswith(run)] if len(run) >= MIN_NAME_LETTERS else []
    if len(named) == 1:
        return named[0]
    if named:
        raise RefusedError(f"{run}: {len(named)} runs begin so", "give more letters: millrace runs lists them")
    raise RefusedError(f"{run}: no run here", "give the .millrace folder of a run, or a name that millrace runs lists")


def find_run_logs(run: str, environ: Mapping[str, str]) -> tuple[Path, EndedRun | None]:
    """Return the folder with the logs of a run, and the run if it is a kept one.

    The folder is the run directory, or if that is gone the kept one.

    Raises:
        RefusedError: As in ``find_archived_run``.
    """
    folder = run_place.resolve_run_dir(run)
    if folder.is_dir():
        return folder, None
    ended = find_archived_run(run, environ)
    return ended.folder, ended.past


def _find_archive_folder(environ: Mapping[str, str], *, make: bool = False) -> Path:
    """Return the folder of all kept runs.

    Raises:
        OSError: It does not exist, or is not this user's alone.
    """
    base = state.find_state_folder(environ)
    if not base:
        raise FileNotFoundError
    home = base / "runs"
    if make:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
    os.close(own.open_private_folder(home))
    return home


def _list_run_folders(home: Path) -> list[Path]:
    """List the folders of runs, the latest last."""
    found = []
    for entry in os.scandir(home):
        if not entry.name.startswith(_NEW):
            with suppress(FileNotFoundError):  # another run is removing it
                found.append((entry.stat().st_mtime_ns, Path(entry.path)))
    return [path for _, path in sorted(found)]


def _read_archived_runs(home: Path) -> list[ArchivedRun]:
    found = []
    for folder in _list_run_folders(home):
        with suppress(OSError, MillraceError):  # being removed, or written by another release
            found.append(ArchivedRun(read_checksummed(folder / "run.json", EndedRun, "a run that has ended"), folder))
    return found


def _prune_oldest_runs(home: Path) -> None:
    """Remove the oldest runs beyond the limits, and unfinished folders of dead writers."""
    _remove_unfinished(home)
    room = MAX_RUN_BYTES
    for number, folder in enumerate(reversed(_list_run_folders(home))):
        room -= sum(path.stat().st_size for path in folder.rglob("*"))
        if number >= MAX_RUNS or room < 0:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_unfinished(home: Path) -> None:
    for folder in home.glob(f"{_NEW}*"):
        if time.time() - folder.stat().st_mtime > _MAX_WRITE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
