"""Bind mounts of copies over their files, for the tools of this process alone.

A tool may print the path of its database, so its arguments must stay unchanged. Instead each copy is mounted over its
file in a mount namespace in which the tools are started (``millrace._core.Pool``): same path, same bytes, for any tool.
A user other than root makes the namespace inside a user namespace, which a system may forbid; user and group ids stay
the same in it. No other process sees the mounts, and they end with the last process in the namespace.

Run as a program, this module makes the namespaces: a process with threads cannot.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Sequence

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_SLAVE = 1 << 12, 1 << 14, 1 << 19


class CopyMounts:
    """The namespaces in which each copy is mounted over its file.

    Args:
        pairs: (copy, file), absolute paths.

    Raises:
        OSError: This machine does not allow it.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        import subprocess  # not in the program, which has to start fast

        #: Descriptors of the namespaces, in the order in which a process enters them.
        self.namespaces: list[int] = []
        with subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as maker:
            assert maker.stdin and maker.stdout and maker.stderr
            maker.stdin.write(json.dumps(list(pairs)).encode() + b"\n")
            maker.stdin.flush()
            answer = maker.stdout.readline()
            if not answer:
                raise OSError(0, maker.stderr.read().decode(errors="replace").strip().rpartition("\n")[2])
            said = json.loads(answer)
            if isinstance(said, str):
                raise OSError(0, said)
            for name in said:
                self.namespaces.append(os.open(f"/proc/{maker.pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC))

    def close(self) -> None:
        """Close the namespaces; they end once no tool is in them."""
        while self.namespaces:
            os.close(self.namespaces.pop())


def find_mount_problem(folder: str) -> str:
    """Return why files cannot be mounted over others here; empty: they can. ``folder``: for a trial."""
    names = [os.path.join(folder, name) for name in ("copy", "file")]
    try:
        for name in names:
            with open(name, "wb"):
                pass
        CopyMounts([(names[0], names[1])]).close()
    except OSError as error:
        return f"a copy cannot take their place there ({error.strerror or error})"
    finally:
        for name in names:
            if os.path.exists(name):
                os.unlink(name)
    return ""


def make_namespaces(pairs: list[list[str]]) -> list[str]:
    """Enter new namespaces and mount the copies; return the names of the namespaces.

    Raises:
        OSError: This machine does not allow it.
    """
    user, group = os.getuid(), os.getgid()
    with open("/proc/self/mountinfo") as table:
        if not any(line.split()[4] == "/" for line in table):
            raise OSError(0, "this is a changed root")  # which entering a namespace would undo
    names = ["mnt"]
    try:
        _call_libc("unshare", CLONE_NEWNS)
    except PermissionError:
        _call_libc("unshare", CLONE_NEWUSER | CLONE_NEWNS)
        names = ["user", "mnt"]
        for name, text in (("uid_map", f"{user} {user} 1"), ("setgroups", "deny"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as table:
                table.write(text)
    # Later mounts of the system (automounts) are seen here too; ours are not seen outside.
    _call_libc("mount", b"none", b"/", None, MS_REC | MS_SLAVE, None)
    for copy, file in pairs:
        _call_libc("mount", os.fsencode(copy), os.fsencode(file), None, MS_BIND, None)
        if not os.path.samefile(copy, file):
            raise OSError(0, f"{file}: was not replaced")
    return names


def _call_libc(name: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    if getattr(library, name)(*words):
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def main() -> None:
    """Make namespaces for the pairs on standard input, and keep them until it is closed."""
    try:
        said: object = make_namespaces(json.loads(sys.stdin.readline()))
    except OSError as error:
        said = error.strerror or str(error)
    print(json.dumps(said), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
