"""What several workers of a test session need, and one of them makes."""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Let the first who comes ``make`` what is in the new ``folder``; the others wait for it.

    What is made must not depend on the folder's name, which it has only when it is whole.
    """
    with _alone(folder):
        if not folder.exists():
            half_made = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(half_made, ignore_errors=True)
            half_made.mkdir()
            make(half_made)
            half_made.rename(folder)
    return folder


@contextmanager
def shared(folder: Path, start: Callable[[Path], AbstractContextManager[dict[str, str]]]) -> Iterator[dict[str, str]]:
    """Let the first who comes ``start`` a server; who started it ends it, when nobody uses it any more."""
    told = folder / "told.json"
    with ExitStack() as own, folder.with_name(f"{folder.name}.users").open("w") as users:
        with _alone(folder):
            is_owner = not told.exists()
            if is_owner:
                folder.mkdir()
                told.write_text(json.dumps(own.enter_context(start(folder))))
            fcntl.flock(users, fcntl.LOCK_SH)
        yield json.loads(told.read_text())
        fcntl.flock(users, fcntl.LOCK_UN)
        while is_owner:
            with _alone(folder), suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                own.close()
                shutil.rmtree(folder)
                is_owner = False
            time.sleep(0.1)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
