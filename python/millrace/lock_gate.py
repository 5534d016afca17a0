"""A gate file: one process at a time reads and writes the lock file; a killed process leaves no closed gate."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millrace.lock_owner import STALE_SECONDS, identify_process_table, make_process_owner, read_owner, write_open_owner
from millrace.waiting import wait_until

#: Seconds between two tries to make the gate file.
POLL_INTERVAL_SECONDS = 0.01


@contextmanager
def hold_gate(path: Path) -> Iterator[float]:
    """Let one process at a time read and write the file; yields the time by the filesystem's clock."""
    gate = path.with_name(f"{path.name}.taking")
    descriptor = -1

    def try_create() -> bool:
        nonlocal descriptor
        try:
            descriptor = os.open(gate, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            _remove_dead_gate(gate)
        return descriptor >= 0

    wait_until(try_create, nap=POLL_INTERVAL_SECONDS)
    try:
        with suppress(OSError):
            write_open_owner(descriptor, make_process_owner(os.getpid()))
        yield os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        gate.unlink(missing_ok=True)


def _remove_dead_gate(gate: Path) -> None:
    """Remove the gate file of a process that was killed while it held the gate.

    Raises:
        IsADirectoryError: It is a folder, which Millrace never removes.
    """
    try:
        about = gate.lstat()
    except OSError:
        return  # it was removed meanwhile
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(gate))
    dead = not stat.S_ISREG(about.st_mode)  # a link or a pipe: no process of ours has made it
    with suppress(OSError):
        owner, age = read_owner(gate), time.time() - about.st_mtime
        dead = dead or (
            not owner.is_alive_here() if owner and owner.place == identify_process_table() else age > STALE_SECONDS
        )
        if dead:
            gate.unlink()
