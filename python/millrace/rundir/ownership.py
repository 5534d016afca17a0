"""Ownership of a run directory: its lock, its allowed content, and its removal."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import os
import stat
from pathlib import Path

from millrace.core.errors import CorruptError, RefusedError
from millrace.core.wait_loop import wait_until
from millrace.host import file_lock, lock_owner
from millrace.host.file_lock import FileLock, LockHeldError
from millrace.host.lock_owner import LockOwner, identify_process_table
from millrace.host.permissions import find_ownership_problem
from millrace.rundir.checksummed_json import HINT
from millrace.rundir.paths import JOURNAL, RunDir, delete_entry

#: Prefixes of names that files get when they are removed while open: on NFS, and on filesystems in user space.
STILL_OPEN = (".nfs", ".fuse_hidden")

#: Seconds within which a filesystem in user space learns that a file was closed.
RELEASE_SECONDS = 2.0

#: Maximum number of runs that end, and remove the folder, just as this one claims it: more in a row do not happen.
MAX_ENDINGS_IN_A_ROW = 100


def claim_run_directory(rundir: RunDir, mode: int = 0o700, job: str = "", *, fresh: bool = False) -> FileLock:
    """Make the directory if needed, and lock it for this process.

    Args:
        mode: Permissions with which it is made, if it is missing.
        job: See ``millrace.host.file_lock.acquire_lock``.
        fresh: Everything in it may be deleted, also a folder in the place of the lock.

    Raises:
        RefusedError: Another process has it, or it belongs to something else.
        CorruptError: A journal is no file.
    """
    if rundir.path.exists() and not rundir.path.is_dir():
        raise RefusedError(f"{rundir.path}: is not a folder", "name another with --run-dir")
    if name := find_foreign_entry(rundir.path):
        raise RefusedError(f"{rundir.path}: holds {name}, which is not of a run", "name another folder with --run-dir")
    for _ in range(MAX_ENDINGS_IN_A_ROW):
        try:
            if (rundir.path / "lock").is_symlink():
                (rundir.path / "lock").unlink()  # it may point to a place that cannot be written
            rundir.path.mkdir(mode, parents=True, exist_ok=True)
            # Another user's directory could hold false results, and links to files of this user.
            if why := find_ownership_problem(rundir.path):
                raise RefusedError(f"{rundir.path}: {why}", "name another folder with --run-dir")
            if not fresh:
                _check_journals(rundir)
            held = file_lock.acquire_lock(rundir.path / "lock", job)
            with contextlib.suppress(OSError):
                delete_entry(_get_old_lock_path(rundir.path))
            return held
        except FileNotFoundError:
            continue  # an ending run has just removed the folder
        except LockHeldError as error:
            if _end_lost_run(rundir, error.owner):
                continue
            raise RefusedError(
                f"{rundir.path}: another millrace ({error.words}) is running this now",
                f"wait for it, or look at it with: millrace status {rundir.path}",
            ) from error
        except IsADirectoryError as error:
            if fresh:
                delete_entry(Path(error.filename))
                continue
            raise RefusedError(f"{error.filename}: is a folder, not the lock of a run", HINT) from error
        except OSError as error:
            raise RefusedError(
                f"{rundir.path}: {error.strerror}", "name a place that can be written with --run-dir"
            ) from error
    raise RefusedError(f"{rundir.path}: cannot be made there", "name a place that can be written with --run-dir")


def _end_lost_run(rundir: RunDir, owner: LockOwner | None) -> bool:
    """End the run that has the directory if its caller has died; return whether it has ended."""
    if owner is None or owner.place != identify_process_table() or not lock_owner.has_lost_caller(owner):
        return False
    return lock_owner.stop_lost_run(owner, lambda: not file_lock.is_held(rundir.path / "lock"))


def _check_journals(rundir: RunDir) -> None:
    for path in rundir.list_journals():
        with contextlib.suppress(FileNotFoundError):  # an ending run has just removed it
            if not stat.S_ISREG(path.lstat().st_mode):  # opening a pipe would wait for ever
                raise CorruptError(f"{path}: is not a file, so no journal of a run", HINT)


def is_run_active(rundir: RunDir, job: str = "") -> bool:
    """Tell whether a process that is not of ``job`` has the directory now."""
    return file_lock.is_held(rundir.path / "lock", job)


def find_foreign_entry(path: Path) -> str:
    """Return the name of an entry that is not of a run, or "": a folder with one is not used, and never cleared."""
    ours = {"lock", "lock.taking", "job.json", "job.json.new", "events.jsonl", "quarantine", "complete.json",
            "complete.json.new", "programs.json", "programs.json.new", "outputs.json", "outputs.json.new", "unfit.json", "unfit.json.new", "report.html",
            "report.html.new", "earlier", "names", "written", "cut", "distinct"}  # fmt: skip
    try:
        names = os.listdir(path)
        return next(
            (
                name
                for name in names
                if name not in ours
                and not JOURNAL.fullmatch(name.removesuffix(".new"))
                and not name.startswith(STILL_OPEN)
            ),
            "",
        )
    except OSError:
        return ""  # not there yet; or not readable, which is reported when the lock is taken


def remove_run_directory(rundir: RunDir) -> None:
    """Remove the directory of a run that is done.

    The files that mark it as complete are removed last: after a kill, the next start finds a complete run and removes
    the rest.
    """
    for entry in rundir.path.iterdir():
        if entry.name not in ("lock", rundir.manifest.name, rundir.completion.name):
            delete_entry(entry)
    for path in (rundir.manifest, rundir.completion):
        path.unlink(missing_ok=True)
    # A network filesystem keeps an open file, as the lock is in this process, under another name in its folder.
    last = _get_old_lock_path(rundir.path)
    try:
        (rundir.path / "lock").rename(last)
    except OSError:
        last = rundir.path / "lock"  # the parent folder is not writable
    delete_entry(last)  # it may be a folder, made by somebody
    remove_folder(rundir.path)


def _get_old_lock_path(path: Path) -> Path:
    """Return the name of the lock in the last moments of a run; if killed in them, it is left to the next start."""
    return path.with_name(f".{path.name}.done")


def remove_folder(path: Path) -> None:
    """Remove an empty folder, or, while this process has removed files in it still open, once it closes them."""
    try:
        path.rmdir()
    except OSError:
        if not all(name.startswith(STILL_OPEN) for name in os.listdir(path)):
            raise
        atexit.register(_remove_at_exit, path)


def _remove_at_exit(path: Path) -> None:
    gc.collect()  # closes files that are no longer referenced
    wait_until(lambda: try_remove_folder(path), RELEASE_SECONDS, nap=0.02)


def try_remove_folder(path: Path) -> bool:
    """Remove an emptied folder; return True once it is gone, or others have put something there."""
    try:
        path.rmdir()
    except OSError as error:
        return error.errno != errno.ENOTEMPTY or not all(name.startswith(STILL_OPEN) for name in os.listdir(path))
    return True
