"""Views that are mounted for a test, and gone after it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import wait_until


@contextmanager
def mounted(url: str, point: Path, cache: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process that serves a view."""
    pytest.importorskip("mfusepy", exc_type=Exception)  # type: ignore[arg-type]
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/fuse")
    point.mkdir(exist_ok=True)
    cache.mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "millrace", "data", "mount", "--foreground", url, str(point), "--to", str(cache)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
        try:
            assert wait_until(lambda: os.path.ismount(point) or process.poll() is not None)
            if process.poll() is not None:
                said = process.stderr.read().decode() if process.stderr else ""
                if "cannot be mounted" in said:
                    pytest.skip(f"no filesystem in user space can be mounted: {said}")
                raise AssertionError(said)
            yield process
        finally:
            unmount(point)
            process.kill()


def unmount(point: Path) -> None:
    """Also one whose process is dead."""
    subprocess.run(["umount", "-l", point], capture_output=True)
