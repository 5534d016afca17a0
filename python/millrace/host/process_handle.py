"""Handles of processes: a descriptor (pidfd), which never refers to a later process with the same number.

A Python that was built with old kernel headers, such as conda's, has no functions for these system calls; the kernel has
them all the same.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

#: Numbers of the system calls, the same on all architectures since Linux 5.1.
PIDFD_SEND_SIGNAL, PIDFD_OPEN = 424, 434


def open_process_handle(pid: int) -> int:
    """Open a descriptor of process ``pid``, closed on exec; it becomes readable once the process has ended.

    Raises:
        OSError: The process does not exist, or the kernel has no such descriptors.
    """
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    return _call_kernel(PIDFD_OPEN, pid, 0)


def open_process_end(pid: int) -> int:
    """Open a descriptor that becomes readable once a child has ended; the child is not reaped.

    A thread does this on kernels before 5.3 and in containers whose profile refuses ``pidfd_open``.
    """
    with suppress(OSError):
        return open_process_handle(pid)
    reading, writing = os.pipe()

    def wait_for_end() -> None:
        with suppress(ChildProcessError):  # it was reaped, so it has ended
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(writing)

    threading.Thread(target=wait_for_end, daemon=True).start()
    return reading


def signal_process(handle: int, number: int) -> None:
    """Send a signal to the process of a handle.

    Raises:
        OSError: The process has ended, or is another user's.
    """
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(handle, number)
    else:
        _call_kernel(PIDFD_SEND_SIGNAL, handle, number, None, 0)


def _call_kernel(number: int, *words: int | None) -> int:
    import ctypes  # seldom needed

    library = ctypes.CDLL(None, use_errno=True)
    found: int = library.syscall(ctypes.c_long(number), *words)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found
