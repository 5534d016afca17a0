"""``python -m millrace.launch.sweep``: ends what a job left on this node; what runs it from afar learns that the node lives.

The token of the job comes by standard input, as on a command line it would mark the sweeper itself; a second line names the
folder that the user wants work directories in, a third one a file that this node should see. Imports little: it is in the way of every restart.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from millrace.own_python import put_user_modules_last

if __name__ == "__main__":
    put_user_modules_last(os.environ)  # before anything is imported that may be there, too

from millrace.process_handle import open_process_handle, signal_process
from millrace.storage import launcher_folder
from millrace.waiting import Naps, until

#: Name of the environment variable that all processes of a job carry.
NAME = "MILLRACE_LAUNCH"

#: A token in full.
TOKEN = r"[0-9a-f]{16}"

#: What stands between words, in arguments and within one that is a whole command.
SEPARATORS = rb"[\0\s=:'\"]+"

#: Watchdogs of ranks end by themselves once their rank is gone, and clean up; see ``slot/watch.rs``.
WATCHDOG = b"millrace-watch"

#: Shared memory of MPICH, which its processes leave behind if they are killed; and seconds within which it is mapped.
SEGMENTS, YOUNG = "mpich_shm_*", 5.0

#: Exit code of a node that answers, but does not see what it should.
LACKS = 3

#: Longest that we wait for killed processes to be gone; one that hangs in the kernel ends when the kernel lets it.
KILL_SECONDS = 6.0


def marked(token: str) -> tuple[list[int], list[int]]:
    """Processes of this user's job on this node: (those to kill, watchdogs)."""
    own = os.getpid()
    kill: list[int] = []
    watchdogs: list[int] = []
    for name in os.listdir("/proc"):
        # Processes of others, and those that have just ended, cannot be read.
        with suppress(OSError):
            if name.isdigit() and int(name) != own and is_marked(int(name), token):
                with open(f"/proc/{name}/comm", "rb") as file:
                    (watchdogs if file.read().rstrip(b"\n") == WATCHDOG else kill).append(int(name))
    return kill, watchdogs


def is_marked(pid: int, token: str) -> bool:
    """Whether process ``pid`` lives, is this user's, and belongs to the job.

    It does if an entry of its environment says so, or if a word of its arguments is a folder of the launcher's.

    Raises:
        OSError: It has ended, or is another's.
    """
    if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
        return False  # and is not even read, which root could
    with open(f"/proc/{pid}/environ", "rb") as file:
        found = f"{NAME}={token}".encode() in file.read().split(b"\0")
    if not found:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            beginning = os.fsencode(launcher_folder.beginning(token))
            found = any(word.startswith(beginning) for word in re.split(SEPARATORS, file.read()))
    if not found:
        return False
    with open(f"/proc/{pid}/status", "rb") as file:
        status = dict(line.partition(b":")[::2] for line in file.read().splitlines())
    return status[b"Uid"].split()[0] == b"%d" % os.getuid() and status[b"State"].split()[0] != b"Z"


def send(pid: int, token: str, number: signal.Signals) -> None:
    """Send a signal to a process of the job. By now the number may be another's: only the one that is held gets it.

    Where the kernel, or a container's profile, has no descriptors of processes, it was the one a moment ago.
    """
    with suppress(OSError), ExitStack() as stack:
        held = -1
        with suppress(OSError):
            held = open_process_handle(pid)
            stack.callback(os.close, held)
        if not is_marked(pid, token):
            return
        try:
            signal_process(held, number)
        except ProcessLookupError:
            return
        except OSError:
            os.kill(pid, number)


def sweep(token: str, work: str = "") -> bool:
    """Kill what carries ``token`` on this node, and wait until it is gone; whether nothing is left.

    Raises:
        ValueError: It is no token: part of one would be part of everything.
    """
    if not re.fullmatch(TOKEN, token):
        raise ValueError("not the token of a job")
    if not until(lambda: not _kill(token), KILL_SECONDS, nap=Naps(0.002, 0.1, 1.5)):
        return False
    clean(work)
    launcher_folder.sweep_job(token)
    return True


def _kill(token: str) -> bool:
    """Kill what carries ``token``, and let watchdogs end; whether there was any of it."""
    kill, watchdogs = marked(token)
    for pid in kill:
        send(pid, token, signal.SIGKILL)
    for pid in watchdogs:
        send(pid, token, signal.SIGCONT)
    return bool(kill or watchdogs)


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
    launcher_folder.sweep_dead()
    for path in unused(list(Path("/dev/shm").glob(SEGMENTS))):
        path.unlink(missing_ok=True)


def unused(paths: list[Path]) -> list[Path]:
    """Those of our own files in memory that no process has, and that are not just being made."""
    own, now = os.geteuid(), time.time()
    found = {}
    for path in paths:
        with suppress(OSError):
            seen = path.lstat()
            if seen.st_uid == own and now - seen.st_mtime > YOUNG:
                found[os.fsencode(path)] = path
    for name in os.listdir("/proc") if found else ():
        if name.isdigit():
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid != own:
                    continue
                with open(f"/proc/{name}/maps", "rb") as file:
                    held = file.read()
                found = {key: path for key, path in found.items() if key not in held}
    return list(found.values())


def main() -> int:
    """Sweep as standard input says; the exit code, which is `LACKS` if all is swept and a file that is asked for is not here."""
    token, work, path = (sys.stdin.readline().rstrip("\n") for _ in range(3))
    if not sweep(token.strip(), work):
        return 1
    return LACKS if path and not os.path.exists(path) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ValueError as wrong:
        sys.exit(f"millrace.launch.sweep: {wrong}")
