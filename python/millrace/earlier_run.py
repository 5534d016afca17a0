"""Backup of a run that a fresh start is to replace, in its folder, until nothing can refuse the start any more."""

from __future__ import annotations

from pathlib import Path

from millrace.rundir import RunDir, delete


def set_aside(rundir: RunDir) -> None:
    """Make room for a fresh start: delete the content, but keep a run in ``earlier`` for ``put_back`` or ``forget``.

    The manifest is moved first: after a kill, the rest is moved back.
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
    """Restore the run that was set aside, in place of one that has not begun; return whether there was one.

    The manifest is deleted last and restored last.
    """
    if not _is_folder(rundir.earlier):
        return False
    manifest = rundir.earlier / rundir.manifest.name
    if not manifest.exists():  # all of it is restored, or it is being deleted
        delete(rundir.earlier)
        return False
    if rundir.manifest.exists():
        _clear(rundir)
    for entry in sorted(rundir.earlier.iterdir(), key=lambda entry: entry == manifest):
        entry.rename(rundir.path / entry.name)
    rundir.earlier.rmdir()
    return True


def forget(rundir: RunDir) -> None:
    """Delete the run that was set aside, its manifest first."""
    if _is_folder(rundir.earlier):
        delete(rundir.earlier / rundir.manifest.name)
    delete(rundir.earlier)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _entries(rundir: RunDir) -> list[Path]:
    """Return all entries but the lock and ``earlier``; the manifest last."""
    own = ("lock", "lock.taking", rundir.earlier.name)
    return sorted(
        (entry for entry in rundir.path.iterdir() if entry.name not in own), key=lambda entry: entry == rundir.manifest
    )


def _clear(rundir: RunDir) -> None:
    delete(rundir.complete)
    for entry in _entries(rundir):
        delete(entry)
