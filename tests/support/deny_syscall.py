"""``python deny_syscall.py NAMES ERRNO COMMAND...``: runs a command for which system calls do not exist, or are forbidden.

A real filter of the kernel (seccomp), as the profile of a container is one; all that the command starts has it, too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

#: Numbers on x86-64 and arm64 alike, from linux/asm-generic; the older ones differ.
NUMBERS = {
    "pidfd_send_signal": (424, 424), "clone3": (435, 435), "close_range": (436, 436), "pidfd_open": (434, 434),
    "openat2": (437, 437), "faccessat2": (439, 439), "process_madvise": (440, 440), "renameat2": (316, 276),
    "copy_file_range": (326, 285), "memfd_create": (319, 279), "statx": (332, 291), "execveat": (322, 281),
    "getrandom": (318, 278), "fallocate": (285, 47), "inotify_init1": (294, 26), "syncfs": (306, 267),
    "unshare": (272, 97), "setns": (308, 268), "sendfile": (40, 71), "splice": (275, 76), "preadv2": (327, 286),
}  # fmt: skip
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000


class Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def deny(name: str, error: int) -> None:
    """Let the system call fail with ``error`` in this process and all that it starts."""
    number = NUMBERS[name][os.uname().machine == "aarch64"]
    steps = ((LOAD, 0, 0, 0), (EQUAL, 0, 1, number), (RETURN, 0, 0, ERROR | error), (RETURN, 0, 0, ALLOW))
    program = Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


if __name__ == "__main__":
    for each in sys.argv[1].split(","):
        deny(each, getattr(errno, sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
