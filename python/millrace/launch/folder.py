"""The folder in which supervisor and coordinator of a run meet: who has it, runs it."""

from __future__ import annotations

from pathlib import Path

from millrace import lock
from millrace.errors import RefusedError
from millrace.lock import Lock
from millrace.own import why_not_own
from millrace.waiting import until

#: A file that is in it from the beginning.
LOCK = "lock"

#: Seconds that another supervisor's guard gets to clean up, and between looks whether it has.
TAKEOVER_SECONDS, LOOK_SECONDS = 10.0, 0.2


def launch_folder(run_dir: Path) -> Path:
    """Where supervisor and coordinator meet: beside the run directory, which may go before the run is at its end."""
    return run_dir.with_name(run_dir.name + ".launch")


def take(folder: Path) -> Lock:
    """Make the folder, or take over that of a dead supervisor.

    Raises:
        RefusedError: Another supervisor has it, or it cannot be made.
    """
    # The guard of one that was killed just now holds it until everything is cleaned up.
    held = lock.HeldError(None)

    def look() -> Lock | None:
        nonlocal held
        try:
            return _taken(folder)
        except lock.HeldError as error:
            held = error
            return None

    if found := until(look, TAKEOVER_SECONDS, nap=LOOK_SECONDS):
        return found
    raise RefusedError(
        f"{folder}: another millrace ({held.words}) is running this now",
        "wait for it; millrace status tells how far it is",
    ) from held


def _taken(folder: Path) -> Lock:
    """Make the folder, and take it."""
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        # Another's would say for the coordinator how the run has ended, and show its output.
        if why := why_not_own(folder):
            raise RefusedError(f"{folder}: {why}", "name another place with --run-dir")
        return lock.take(folder / LOCK)
    except FileNotFoundError:
        return _taken(folder)  # removed just now
    except OSError as error:
        raise RefusedError(f"{folder}: {error.strerror}", "name a place that can be written with --run-dir") from error
