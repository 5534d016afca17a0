"""Backup of a run that a fresh start is to replace, in its folder, until nothing can refuse the start any more."""

from __future__ import annotations

from pathlib import Path

from millrace.rundir import RunDir, delete_entry


def back_up_run(rundir: RunDir) -> None:
    """Make room for a fresh start: delete the content, but keep a run in ``backup`` for ``restore_run`` or ``delete_backup``.

    The manifest is moved first: after a kill, the rest is moved back.
    """
    if not _is_folder(rundir.backup):
        delete_entry(rundir.backup)
    if not rundir.manifest.is_file():
        _clear_directory(rundir)
        return
    rundir.backup.mkdir(0o700)
    for entry in reversed(_list_entries(rundir)):
        entry.rename(rundir.backup / entry.name)


def restore_run(rundir: RunDir) -> bool:
    """Restore the run that was set aside, in place of one that has not begun; return whether there was one.

    The manifest is deleted last and restored last.
    """
    if not _is_folder(rundir.backup):
        return False
    manifest = rundir.backup / rundir.manifest.name
    if not manifest.exists():  # all of it is restored, or it is being deleted
        delete_entry(rundir.backup)
        return False
    if rundir.manifest.exists():
        _clear_directory(rundir)
    for entry in sorted(rundir.backup.iterdir(), key=lambda entry: entry == manifest):
        entry.rename(rundir.path / entry.name)
    rundir.backup.rmdir()
    return True


def delete_backup(rundir: RunDir) -> None:
    """Delete the run that was set aside, its manifest first."""
    if _is_folder(rundir.backup):
        delete_entry(rundir.backup / rundir.manifest.name)
    delete_entry(rundir.backup)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _list_entries(rundir: RunDir) -> list[Path]:
    """Return all entries but the lock and ``backup``; the manifest last."""
    own = ("lock", "lock.taking", rundir.backup.name)
    return sorted(
        (entry for entry in rundir.path.iterdir() if entry.name not in own), key=lambda entry: entry == rundir.manifest
    )


def _clear_directory(rundir: RunDir) -> None:
    delete_entry(rundir.completion)
    for entry in _list_entries(rundir):
        delete_entry(entry)
