"""The folder through which supervisor and coordinator of a run communicate; its lock admits one supervisor."""

from __future__ import annotations

from pathlib import Path

from millrace import lock
from millrace.errors import RefusedError
from millrace.lock import FileLock
from millrace.own import find_ownership_problem
from millrace.waiting import wait_until

#: Name of the lock file, which exists from the beginning.
LOCK = "lock"

#: Seconds that another supervisor's guard gets to clean up, and seconds between attempts to lock.
MAX_TAKEOVER_SECONDS, POLL_INTERVAL_SECONDS = 10.0, 0.2


def locate_launch_folder(run_dir: Path) -> Path:
    """Return the path of the folder: beside the run directory, which may be removed before the run is at its end."""
    return run_dir.with_name(run_dir.name + ".launch")


def lock_launch_folder(folder: Path) -> FileLock:
    """Make and lock the folder, or take over that of a dead supervisor; wait up to ``MAX_TAKEOVER_SECONDS``.

    Raises:
        RefusedError: Another supervisor holds it, or it cannot be made.
    """
    # The guard of a supervisor that was just killed holds the lock until everything is cleaned up.
    held = lock.LockHeldError(None)

    def look() -> FileLock | None:
        nonlocal held
        try:
            return _make_and_lock_folder(folder)
        except lock.LockHeldError as error:
            held = error
            return None

    if found := wait_until(look, MAX_TAKEOVER_SECONDS, nap=POLL_INTERVAL_SECONDS):
        return found
    raise RefusedError(
        f"{folder}: another millrace ({held.words}) is running this now",
        "wait for it; millrace status tells how far it is",
    ) from held


def _make_and_lock_folder(folder: Path) -> FileLock:
    """Make the folder, and lock it.

    Raises:
        HeldError: Another process holds the lock.
        RefusedError: The folder cannot be made, or is another user's.
    """
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        # Another user's folder could forge the exit code of the run, and expose its output.
        if why := find_ownership_problem(folder):
            raise RefusedError(f"{folder}: {why}", "name another place with --run-dir")
        return lock.acquire_lock(folder / LOCK)
    except FileNotFoundError:
        return _make_and_lock_folder(folder)  # removed just now
    except OSError as error:
        raise RefusedError(f"{folder}: {error.strerror}", "name a place that can be written with --run-dir") from error
