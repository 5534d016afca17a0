"""``python -m millrace.launch.sweep``: kills processes that a job left on this node; an exit shows the node is alive.

Standard input has the token of the job, which in the arguments would mark the sweep itself; on a second line the user's
folder for work directories; on a third a file that this node should see. Imports little: every restart waits for it.
"""

from __future__ import annotations

import os

from millrace.host.python_launch import move_user_modules_last

if __name__ == "__main__":
    move_user_modules_last(os.environ)  # before anything is imported that may be there, too

import re
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from millrace.core.wait_loop import PollBackoff, wait_until
from millrace.host import work_places
from millrace.host.process_handle import open_process_handle, signal_process

#: Name of the environment variable that all processes of a job carry.
NAME = "MILLRACE_LAUNCH"

#: A token in full.
TOKEN = r"[0-9a-f]{16}"

#: Separators of words, between arguments and within one that is a whole command.
SEPARATORS = rb"[\0\s=:'\"]+"

#: Process name of the watchdogs of ranks, which clean up and exit by themselves once their rank is gone; see
#: ``slot/watch.rs``.
WATCHDOG = b"millrace-watch"

#: Shared memory of MPICH, left behind by killed processes; and the age in seconds by which its owner has mapped it.
SEGMENTS, MIN_SEGMENT_AGE_SECONDS = "mpich_shm_*", 5.0

#: Exit code of a node that answers, but does not see the file that it should.
LACKS = 3

#: Longest wait for killed processes to be gone, in seconds; one that hangs in the kernel ends later.
MAX_KILL_SECONDS = 6.0


def find_marked_processes(token: str) -> tuple[list[int], list[int]]:
    """Find the processes of this user's job on this node: (ids to kill, ids of watchdogs)."""
    own = os.getpid()
    kill: list[int] = []
    watchdogs: list[int] = []
    for name in os.listdir("/proc"):
        # Processes of other users, and those that have just ended, cannot be read.
        with suppress(OSError):
            if name.isdigit() and int(name) != own and is_process_marked(int(name), token):
                with open(f"/proc/{name}/comm", "rb") as file:
                    (watchdogs if file.read().rstrip(b"\n") == WATCHDOG else kill).append(int(name))
    return kill, watchdogs


def is_process_marked(pid: int, token: str) -> bool:
    """Tell whether process ``pid`` lives, is this user's, and belongs to the job.

    The mark is an entry of its environment with the token, or a word of its arguments with the launcher's folder.

    Raises:
        OSError: It has ended, or is another user's.
    """
    if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
        return False  # root could read it, but must not kill it
    with open(f"/proc/{pid}/environ", "rb") as file:
        found = f"{NAME}={token}".encode() in file.read().split(b"\0")
    if not found:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            beginning = os.fsencode(work_places.make_path_prefix(token))
            found = any(word.startswith(beginning) for word in re.split(SEPARATORS, file.read()))
    if not found:
        return False
    with open(f"/proc/{pid}/status", "rb") as file:
        status = dict(line.partition(b":")[::2] for line in file.read().splitlines())
    return status[b"Uid"].split()[0] == b"%d" % os.getuid() and status[b"State"].split()[0] != b"Z"


def send_signal_to_marked(pid: int, token: str, number: signal.Signals) -> None:
    """Send a signal to a process of the job, through a pidfd: its id may have been reused meanwhile.

    Where the kernel, or a container's profile, has no pidfd, the mark is checked just before the signal.
    """
    with suppress(OSError), ExitStack() as stack:
        held = -1
        with suppress(OSError):
            held = open_process_handle(pid)
            stack.callback(os.close, held)
        if not is_process_marked(pid, token):
            return
        try:
            signal_process(held, number)
        except ProcessLookupError:
            return
        except OSError:
            os.kill(pid, number)


def sweep_this_node(token: str, work: str = "") -> bool:
    """Kill the processes that carry ``token`` on this node, and wait; return whether none is left.

    Raises:
        ValueError: It is no full token: a part of one could match other processes.
    """
    if not re.fullmatch(TOKEN, token):
        raise ValueError("not the token of a job")
    if not wait_until(lambda: not _kill_marked_processes(token), MAX_KILL_SECONDS, nap=PollBackoff(0.002, 0.1, 1.5)):
        return False
    remove_dead_work_dirs(work)
    work_places.sweep_job_folders(token)
    return True


def _kill_marked_processes(token: str) -> bool:
    """Kill the processes that carry ``token``, and continue watchdogs; return whether there was any."""
    kill, watchdogs = find_marked_processes(token)
    for pid in kill:
        send_signal_to_marked(pid, token, signal.SIGKILL)
    for pid in watchdogs:
        send_signal_to_marked(pid, token, signal.SIGCONT)
    return bool(kill or watchdogs)


def remove_dead_work_dirs(work: str) -> None:
    """Remove work directories and shared memory of dead runs, whose watchdogs may have been killed.

    Args:
        work: The user's folder for work directories; empty: only the usual places.
    """
    # Imported late: killing processes comes first, and must not wait for it.
    from millrace.host import work_places
    from millrace.node import work_dir

    for place in work_places.list_work_places(work):
        work_dir.sweep_dead_runs(place)
    work_places.sweep_dead_folders()
    for path in find_unused_segments(list(Path("/dev/shm").glob(SEGMENTS))):
        path.unlink(missing_ok=True)


def find_unused_segments(paths: list[Path]) -> list[Path]:
    """Find this user's files in memory that no process maps, and that are older than ``MIN_SEGMENT_AGE_SECONDS`` seconds."""
    own, now = os.geteuid(), time.time()
    found = {}
    for path in paths:
        with suppress(OSError):
            seen = path.lstat()
            if seen.st_uid == own and now - seen.st_mtime > MIN_SEGMENT_AGE_SECONDS:
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
    """Sweep as standard input says; return 0, 1 if processes are left, or ``LACKS`` if the file is missing."""
    token, work, path = (sys.stdin.readline().rstrip("\n") for _ in range(3))
    if not sweep_this_node(token.strip(), work):
        return 1
    return LACKS if path and not os.path.exists(path) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ValueError as wrong:
        sys.exit(f"millrace.launch.sweep: {wrong}")
