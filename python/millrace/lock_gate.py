"""A gate file: one process at a time reads and writes the lock file; a killed process leaves no closed gate."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millrace.lock_owner import STALE_SECONDS, of_process, place, read, write
from millrace.waiting import until

#: Seconds between two tries to make the gate file.
GATE_SECONDS = 0.01


@contextmanager
def alone(path: Path) -> Iterator[float]:
    """Let one process at a time read and write the file; yields the time by the filesystem's clock."""
    gate = path.with_name(f"{path.name}.taking")
    descriptor = -1

    def look() -> bool:
        nonlocal descriptor
        try:
            descriptor = os.open(gate, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            _open_gate(gate)
        return descriptor >= 0

    until(look, nap=GATE_SECONDS)
    try:
        with suppress(OSError):
            write(descriptor, of_process(os.getpid()))
        yield os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        gate.unlink(missing_ok=True)


def _open_gate(gate: Path) -> None:
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
        owner, age = read(gate), time.time() - about.st_mtime
        dead = dead or (not owner.is_alive_here() if owner and owner.place == place() else age > STALE_SECONDS)
        if dead:
            gate.unlink()
