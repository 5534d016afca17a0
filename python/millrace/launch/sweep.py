"""``python -m millrace.launch.sweep``: ends what a job left on this node; what runs it from afar learns that the node lives.

The token of the job comes by standard input, as on a command line it would mark the sweeper itself; a second line names the
folder that the user wants work directories in. Imports little: it is in the way of every restart.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

#: Name of the environment variable that all processes of a job carry.
NAME = "MILLRACE_LAUNCH"

#: Watchdogs of ranks end by themselves once their rank is gone, and clean up; see ``slot/watch.rs``.
WATCHDOG = b"millrace-watch"

#: Shared memory of MPICH, which its processes leave behind if they are killed; and seconds within which it is mapped.
SEGMENTS, YOUNG = "mpich_shm_*", 5.0

#: Longest that we wait for killed processes to be gone; one that hangs in the kernel ends when the kernel lets it.
PATIENCE = 6.0


def temporary(token: str) -> Path:
    """Folder for what an MPI launcher keeps on each node; its name marks the launcher's daemons by their arguments."""
    return Path(f"/tmp/millrace-mpi-{token}")


def marked(token: str) -> tuple[list[int], list[int]]:
    """Processes of a job on this node: (those to kill, watchdogs)."""
    needle, own = token.encode(), os.getpid()
    kill: list[int] = []
    watchdogs: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == own:
            continue
        # Processes of others, and those that have just ended, cannot be read.
        with suppress(OSError):
            found = False
            for part in ("environ", "cmdline"):
                with open(f"/proc/{name}/{part}", "rb") as file:
                    found = found or needle in file.read()
            if found:
                with open(f"/proc/{name}/stat", "rb") as file:
                    comm, _, rest = file.read().partition(b" (")[2].rpartition(b") ")
                if not rest.startswith(b"Z"):
                    (watchdogs if comm == WATCHDOG else kill).append(int(name))
    return kill, watchdogs


def sweep(token: str, work: str = "") -> bool:
    """Kill what carries ``token`` on this node, and wait until it is gone; whether nothing is left."""
    deadline, pause = time.monotonic() + PATIENCE, 0.002
    while True:
        kill, watchdogs = marked(token)
        for pid in kill:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in watchdogs:
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        if not kill and not watchdogs:
            clean(work)
            shutil.rmtree(temporary(token), ignore_errors=True)
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def clean(work: str) -> None:
    """Remove the work directories of dead runs: somebody may have killed their watchdogs.

    Args:
        work: Where the user wants them; empty: nowhere else.
    """
    # The rest must do without, while processes are to be killed.
    from millrace.node import workdir
    from millrace.plan import workplace

    for place in workplace.candidates(work):
        workdir.sweep_dead(place)
    for path in unused(list(Path("/dev/shm").glob(SEGMENTS))):
        path.unlink(missing_ok=True)


def unused(paths: list[Path]) -> list[Path]:
    """Those of our own files in memory that no process has, and that are not just being made."""
    own, now = os.getuid(), time.time()
    found = {}
    for path in paths:
        with suppress(OSError):
            seen = path.stat()
            if seen.st_uid == own and now - seen.st_mtime > YOUNG:
                found[os.fsencode(path)] = path
    for name in os.listdir("/proc") if found else ():
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/maps", "rb") as file:
                held = file.read()
                found = {key: path for key, path in found.items() if key not in held}
    return list(found.values())


if __name__ == "__main__":
    sys.exit(0 if sweep(sys.stdin.readline().strip(), sys.stdin.readline().rstrip("\n")) else 1)
