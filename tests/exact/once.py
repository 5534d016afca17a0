"""What several workers of a test session need, and one of them makes."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Let the first who comes ``make`` what is in the new ``folder``; the others wait for it.

    What is made must not depend on the folder's name, which it has only when it is whole.
    """
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            half_made = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(half_made, ignore_errors=True)
            half_made.mkdir()
            make(half_made)
            half_made.rename(folder)
    return folder
