"""Which process is meant, among those that look the same. Used by tests of several processes and by ``bench.chaos_cluster``.

A process that was just made has the arguments, the environment and the name of the one that made it, until it executes
something else. Nor does the order of numbers tell: they begin again at 300 once the highest was given out. What tells
is whose child it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def read(pid: int, name: str) -> bytes:
    """A file that the kernel has of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def arguments(pid: int) -> str:
    """A process's arguments; empty if it has ended."""
    return read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def environment(pid: int) -> dict[bytes, bytes]:
    """What a process was executed with; empty if it has ended."""
    return {
        name: value
        for name, found, value in (each.partition(b"=") for each in read(pid, "environ").split(b"\0"))
        if found
    }


def parent(pid: int) -> int:
    """The process that started another; 0 if it has ended."""
    stat = read(pid, "stat").rpartition(b")")[2].split()
    return int(stat[1]) if stat else 0


def originals(pids: Iterable[int]) -> list[int]:
    """Those of processes that look the same that none of the others has started: no watchdog, no tool about to be."""
    same = {pid: parent(pid) for pid in pids}
    return [pid for pid, by in same.items() if by and by not in same]


def only(pids: Iterable[int]) -> int:
    """The one original among processes that look the same."""
    found = originals(pids)
    assert len(found) == 1, [f"{pid}, child of {parent(pid)}: {arguments(pid)}" for pid in found]
    return found[0]


def with_words(pids: Iterable[int], words: str) -> list[int]:
    """Those whose arguments have ``words``: the originals, and not the shells that were told to start them."""
    found = [pid for pid in pids if words in (line := arguments(pid)) and not line.startswith(("sh ", "/bin/sh "))]
    return originals(found)
