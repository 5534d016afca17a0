"""A run that a fresh start is to replace: set aside in its folder until nothing can refuse that any more."""

from __future__ import annotations

from pathlib import Path

from millrace.rundir import RunDir, delete


def set_aside(rundir: RunDir) -> None:
    """Make room for a fresh start: what is there goes, but a run waits in `earlier` for `put_back` or `forget`.

    What says that there is a run is moved first: killed halfway, the rest is moved back.
    """
    if not _is_folder(rundir.earlier):
        delete(rundir.earlier)
    if not rundir.manifest.is_file():
        _clear(rundir)
        return
    rundir.earlier.mkdir(0o700)
    for entry in reversed(_entries(rundir)):
        entry.rename(rundir.earlier / entry.name)


def put_back(rundir: RunDir) -> bool:
    """Let the run that was set aside be there again, in the place of one that has not begun; whether there was one.

    What says that there is a run goes last and comes last.
    """
    if not _is_folder(rundir.earlier):
        return False
    manifest = rundir.earlier / rundir.manifest.name
    if not manifest.exists():  # all of it is back, or it is forgotten
        delete(rundir.earlier)
        return False
    if rundir.manifest.exists():
        _clear(rundir)
    for entry in sorted(rundir.earlier.iterdir(), key=lambda entry: entry == manifest):
        entry.rename(rundir.path / entry.name)
    rundir.earlier.rmdir()
    return True


def forget(rundir: RunDir) -> None:
    """The run that was set aside is not wanted any more. What says that it is there goes first."""
    if _is_folder(rundir.earlier):
        delete(rundir.earlier / rundir.manifest.name)
    delete(rundir.earlier)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _entries(rundir: RunDir) -> list[Path]:
    """All but the lock and `earlier`; what says that there is a run last."""
    own = ("lock", "lock.taking", rundir.earlier.name)
    return sorted(
        (entry for entry in rundir.path.iterdir() if entry.name not in own), key=lambda entry: entry == rundir.manifest
    )


def _clear(rundir: RunDir) -> None:
    delete(rundir.complete)
    for entry in _entries(rundir):
        delete(entry)
