"""Where a pack arrives: what is there of it, and who waits for more."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millrace import lock, run_folder
from millrace.errors import RefusedError
from millrace.lock import Lock
from millrace.pack import places
from millrace.waiting import until


class Place:
    """What there is beside a result that is being received; the same names at each start."""

    def __init__(self, dest: Path) -> None:
        self._dest = dest
        self.folder = dest.with_name(f".{dest.name}.receiving")
        #: The pack as far as it has come.
        self.pack = self.folder / "pack"
        #: Who receives has this.
        self.lock = self.folder / "lock"
        #: Where the result is regenerated.
        self.work = self.folder / "work"

    def take(self, seconds: float, say: Callable[[str], None]) -> Lock:
        """Be the one who receives; another one who comes to its end is waited for, which ``say`` is told.

        Args:
            seconds: How long at most.

        Raises:
            RefusedError: Another process receives it for longer.
        """
        held: list[lock.HeldError] = []

        def look() -> Lock | None:
            try:
                places.take_folder(self.folder)
                return lock.take(self.lock)
            except FileNotFoundError:
                return None  # whoever had it has just removed the folder
            except lock.HeldError as error:
                if not held:
                    say(f"{self._words(error)}; waiting for it")
                held.append(error)
                return None

        if found := until(look, seconds, nap=0.1):
            return found
        raise RefusedError(
            self._words(held[-1]) if held else f"{self.folder}: cannot be taken",
            "wait for it, or stop it, and send again",
        )

    def _words(self, error: lock.HeldError) -> str:
        return f"{self._dest}: another millrace ({error.words}) is receiving this"

    def remove(self) -> None:
        """Leave nothing here; for who has taken it. Another one who waits for it may go on here at any time."""
        self.start_over()
        self.lock.unlink(missing_ok=True)
        with suppress(OSError):
            run_folder.remove_folder(self.folder)

    def have(self) -> tuple[int, str]:
        """How many bytes of the pack are there, and their SHA-256."""
        if not self.pack.exists():
            return 0, hashlib.sha256().hexdigest()
        with self.pack.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), digest

    def start_over(self) -> None:
        """Another pack comes: nothing of this one is of use."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.pack.unlink(missing_ok=True)


class Arriving:
    """A pack that grows; one thread appends, another reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab")
        self._more = threading.Condition()
        self._size = self._file.tell()
        #: Whether it is all there.
        self.whole = False
        self.error: BaseException | None = None

    def append(self, data: bytes) -> None:
        """Take what comes next; empty: that was all."""
        self._file.write(data)
        self._file.flush()
        if not data:
            os.fsync(self._file.fileno())
            self._file.close()  # a file that is open would stay in a folder on NFS
        with self._more:
            self._size += len(data)
            self.whole = not data
            self._more.notify_all()

    def fail(self, error: BaseException) -> None:
        """Nothing comes any more, and it is not all there."""
        self._file.close()
        with self._more:
            self.error = error
            self._more.notify_all()

    def wait(self, enough: int, seconds: float) -> int:
        """Wait until there are so many bytes, or it is whole, or for so long; how many there are.

        Raises:
            BaseException: Why nothing comes any more.
        """
        with self._more:
            self._more.wait_for(lambda: self.whole or self.error is not None or self._size >= enough, seconds)
            if self.error:
                raise self.error
            return self._size
