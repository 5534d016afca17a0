"""The folder of a run: who has it, what may be in it, and its end."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import os
import stat
from pathlib import Path

from millrace import caller, lock
from millrace.errors import CorruptError, RefusedError
from millrace.lock import HeldError, Lock
from millrace.lock_owner import Owner, place
from millrace.own import why_not_own
from millrace.rundir import JOURNAL, RunDir, delete
from millrace.sealed import HINT
from millrace.waiting import until

#: How names of files begin that are removed while they are open: on NFS, and on filesystems in user space.
STILL_OPEN = (".nfs", ".fuse_hidden")

#: Seconds within which a filesystem in user space hears that a file was closed.
RELEASE_SECONDS = 2.0

#: Runs that end just as this one takes the folder, each of which removes it again: more in a row do not happen.
MOST_ENDINGS = 100


def take(rundir: RunDir, mode: int = 0o700, job: str = "", *, fresh: bool = False) -> Lock:
    """Make the directory if needed and take it for this process.

    Args:
        mode: With which it is made, if it is not there.
        job: See `millrace.lock.take`.
        fresh: Whatever is in it is to go, also a folder in the place of the lock.

    Raises:
        RefusedError: Another process has it, or it is something else's.
        CorruptError: A journal is no file.
    """
    if rundir.path.exists() and not rundir.path.is_dir():
        raise RefusedError(f"{rundir.path}: is not a folder", "name another with --run-dir")
    if name := foreign(rundir.path):
        raise RefusedError(f"{rundir.path}: holds {name}, which is not of a run", "name another folder with --run-dir")
    for _ in range(MOST_ENDINGS):
        try:
            if (rundir.path / "lock").is_symlink():
                (rundir.path / "lock").unlink()  # as it may lead to where nothing can be made
            rundir.path.mkdir(mode, parents=True, exist_ok=True)
            # Another's could hold results that nobody computed, and links to files of this user.
            if why := why_not_own(rundir.path):
                raise RefusedError(f"{rundir.path}: {why}", "name another folder with --run-dir")
            if not fresh:
                _check_journals(rundir)
            held = lock.take(rundir.path / "lock", job)
            with contextlib.suppress(OSError):
                delete(_old_lock(rundir.path))
            return held
        except FileNotFoundError:
            continue  # an ending run removed the folder just now
        except HeldError as error:
            if _ends_lost(rundir, error.owner):
                continue
            raise RefusedError(
                f"{rundir.path}: another millrace ({error.words}) is running this now",
                f"wait for it, or look at it with: millrace status {rundir.path}",
            ) from error
        except IsADirectoryError as error:
            if fresh:
                delete(Path(error.filename))
                continue
            raise RefusedError(f"{error.filename}: is a folder, not the lock of a run", HINT) from error
        except OSError as error:
            raise RefusedError(
                f"{rundir.path}: {error.strerror}", "name a place that can be written with --run-dir"
            ) from error
    raise RefusedError(f"{rundir.path}: cannot be made there", "name a place that can be written with --run-dir")


def _ends_lost(rundir: RunDir, owner: Owner | None) -> bool:
    """Whether the run that has the directory was called by a program that has died, and has come to its end now."""
    if owner is None or owner.place != place() or not caller.is_lost_by(owner):
        return False
    return caller.end_lost(owner, lambda: not lock.is_held(rundir.path / "lock"))


def _check_journals(rundir: RunDir) -> None:
    for path in rundir.journals():
        with contextlib.suppress(FileNotFoundError):  # an ending run removed it just now
            if not stat.S_ISREG(path.lstat().st_mode):  # to open a pipe would wait for ever
                raise CorruptError(f"{path}: is not a file, so no journal of a run", HINT)


def is_running(rundir: RunDir, job: str = "") -> bool:
    """Whether a process that is not of ``job`` has the directory now."""
    return lock.is_held(rundir.path / "lock", job)


def foreign(path: Path) -> str:
    """Name of an entry that is none of ours, or empty: such a folder is not used, and never cleared."""
    ours = {"lock", "lock.taking", "job.json", "job.json.new", "events.jsonl", "quarantine", "complete.json",
            "complete.json.new", "programs.json", "programs.json.new", "outputs.json", "outputs.json.new", "unfit.json", "unfit.json.new", "report.html",
            "report.html.new", "earlier", "names", "written"}  # fmt: skip
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
        return ""  # not there yet; or not to be read, which taking the lock tells


def remove(rundir: RunDir) -> None:
    """Remove the directory of a run that is done.

    What says so goes last: killed halfway, the next start finds a complete run and removes the rest.
    """
    for entry in rundir.path.iterdir():
        if entry.name not in ("lock", rundir.manifest.name, rundir.complete.name):
            delete(entry)
    for path in (rundir.manifest, rundir.complete):
        path.unlink(missing_ok=True)
    # A network filesystem keeps a file that is open, as this process has the lock, under another name where it was.
    last = _old_lock(rundir.path)
    try:
        (rundir.path / "lock").rename(last)
    except OSError:
        last = rundir.path / "lock"  # not a folder to write in
    delete(last)  # of which somebody may have made a folder
    remove_folder(rundir.path)


def _old_lock(path: Path) -> Path:
    """The name of the lock in the last moments of a run; killed in them, it leaves it to the next start."""
    return path.with_name(f".{path.name}.done")


def remove_folder(path: Path) -> None:
    """Remove an empty folder; where files that this process still has open stay under other names, once it closes them."""
    try:
        path.rmdir()
    except OSError:
        if not all(name.startswith(STILL_OPEN) for name in os.listdir(path)):
            raise
        atexit.register(_remove_at_last, path)


def _remove_at_last(path: Path) -> None:
    gc.collect()  # closes what nobody has any more
    until(lambda: try_remove_folder(path), RELEASE_SECONDS, nap=0.02)


def try_remove_folder(path: Path) -> bool:
    """Remove an emptied folder; true once it is gone, or others have put something there."""
    try:
        path.rmdir()
    except OSError as error:
        return error.errno != errno.ENOTEMPTY or not all(name.startswith(STILL_OPEN) for name in os.listdir(path))
    return True
