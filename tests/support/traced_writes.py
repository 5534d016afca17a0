"""What processes wrote of a file, seen by strace: where each call begins and ends."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MIB = 1 << 20


def traced(log: Path) -> tuple[str, ...]:
    """What is put in front of a command whose writes are to be seen; skips where that cannot be."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")
    return (
        "strace", "-f", "-qq", "-y", "-s", "0", "--seccomp-bpf", "-e", "trace=write,pwrite64", "-e", "signal=none",
        "-o", str(log),
    )  # fmt: skip


def extents(log: Path, path: Path) -> list[tuple[int, int]]:
    """The calls that wrote the file ``path``, in their order."""
    call = re.compile(rf'(write|pwrite64)\(\d+<{re.escape(str(path))}>, ""(?:\.\.\.)?, (\d+)(?:, (\d+))?')
    found, end = [], 0
    for line in log.read_text().splitlines():
        if match := call.search(line):
            at = end if match[1] == "write" else int(match[3])
            end = at + int(match[2])
            found.append((at, end))
    return found


def check(found: list[tuple[int, int]], size: int, most: int) -> None:
    """Each byte once, none across a multiple of 1 MiB, and no more calls than that takes and ``most``."""
    assert sum(to - at for at, to in found) == size == max(to for _, to in found), found
    assert all(at // MIB == (to - 1) // MIB for at, to in found), found
    assert len(found) <= -(-size // MIB) + most, found
