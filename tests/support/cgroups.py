"""Real memory control groups, of version 1 or 2, made for a test. Root only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")

#: Source of a function for tools in Python that take more than half of the memory: the first two in a control group have
#: it at the same time, whatever the machine is busy with, so one of them is killed.
HOLD = """
import hashlib, os, time

def hold(megabytes, folder):
    with open('/proc/self/cgroup', 'rb') as file:
        mark = os.path.join(folder, 'met-' + hashlib.md5(file.read()).hexdigest())
    def link(name):
        try:
            os.symlink(str(os.getpid()), mark + name)
            return True
        except FileExistsError:
            return False
    def is_gone(name):
        return os.path.islink(mark + name) and not os.path.exists('/proc/' + os.readlink(mark + name))
    def wait_until(is_so):
        deadline = time.monotonic() + 300
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.01)
    first = link('-first')
    if not first and link('-second'):
        wait_until(lambda: os.path.islink(mark + '-held') or is_gone('-first'))
    held = bytearray(megabytes << 20)
    if first:
        link('-held')
        wait_until(lambda: is_gone('-second'))
    return held
"""


@dataclass(frozen=True)
class Group:
    """A control group; words of a command that starts in it: `enter`."""

    folder: Path
    unified: bool

    @property
    def enter(self) -> list[str]:
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs; exec "$@"', "sh"]

    @property
    def kills(self) -> int:
        """Processes in it that were killed for lack of memory."""
        text = (self.folder / ("memory.events" if self.unified else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])


@contextmanager
def memory_group(name: str, limit_bytes: int) -> Iterator[Group]:
    """A new group with so much memory and no swap; skips the test where none can be made."""
    group = _make(f"millrace-{name}-{os.getpid()}")
    try:
        if group.unified:
            (group.folder / "memory.max").write_text(str(limit_bytes))
            if (swap := group.folder / "memory.swap.max").exists():
                swap.write_text("0")
        else:
            (group.folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
            if (swap := group.folder / "memory.memsw.limit_in_bytes").exists():
                swap.write_text(str(limit_bytes))
        yield group
    finally:
        _remove(group)


def _make(name: str) -> Group:
    if os.geteuid() != 0:
        pytest.skip("memory control groups need root")
    try:
        if (ROOT / "memory" / "memory.limit_in_bytes").exists():
            group = Group(ROOT / "memory" / name, unified=False)
        else:
            (ROOT / "cgroup.subtree_control").write_text("+memory")
            group = Group(ROOT / name, unified=True)
        group.folder.mkdir()
        group.kills  # noqa: B018 - whether it counts
    except (OSError, KeyError) as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    return group


def _remove(group: Group) -> None:
    deadline = time.monotonic() + 300
    while group.folder.exists():  # what was killed in it takes a moment to be gone
        try:
            group.folder.rmdir()
        except OSError as error:
            if time.monotonic() > deadline:
                raise AssertionError((group.folder / "cgroup.procs").read_text()) from error
            time.sleep(0.02)
