"""The folder of a pack that is received, and the file that grows while it is read."""

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
from millrace.lock import FileLock
from millrace.pack import places
from millrace.waiting import wait_until


class ReceivingFolder:
    """The files beside a result that is being received; the names are the same at each start."""

    def __init__(self, dest: Path) -> None:
        self._dest = dest
        self.folder = dest.with_name(f".{dest.name}.receiving")
        #: The received bytes of the pack.
        self.pack = self.folder / "pack"
        #: Held by the receiving process.
        self.lock = self.folder / "lock"
        #: Folder of the regeneration.
        self.work = self.folder / "work"

    def acquire_lock(self, seconds: float, say: Callable[[str], None]) -> FileLock:
        """Take the lock of the receiver. If another process holds it, call ``say`` once and wait.

        Args:
            seconds: Longest wait.

        Raises:
            RefusedError: Another process holds the lock for longer.
        """
        held: list[lock.LockHeldError] = []

        def look() -> FileLock | None:
            try:
                places.claim_folder(self.folder)
                return lock.acquire_lock(self.lock)
            except FileNotFoundError:
                return None  # its last holder has just removed the folder
            except lock.LockHeldError as error:
                if not held:
                    say(f"{self._describe_holder(error)}; waiting for it")
                held.append(error)
                return None

        if found := wait_until(look, seconds, nap=0.1):
            return found
        raise RefusedError(
            self._describe_holder(held[-1]) if held else f"{self.folder}: cannot be taken",
            "wait for it, or stop it, and send again",
        )

    def _describe_holder(self, error: lock.LockHeldError) -> str:
        return f"{self._dest}: another millrace ({error.words}) is receiving this"

    def remove(self) -> None:
        """Remove the folder, with the lock held. A process that waits for the lock may make it again at once."""
        self.discard_received()
        self.lock.unlink(missing_ok=True)
        with suppress(OSError):
            run_folder.remove_folder(self.folder)

    def digest_received(self) -> tuple[int, str]:
        """Return the number of bytes received, and their SHA-256."""
        if not self.pack.exists():
            return 0, hashlib.sha256().hexdigest()
        with self.pack.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), digest

    def discard_received(self) -> None:
        """Remove the received bytes and the regeneration, as another pack follows."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.pack.unlink(missing_ok=True)


class GrowingPack:
    """A pack that grows: one thread appends, another reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab")
        self._more = threading.Condition()
        self._size = self._file.tell()
        #: Whether all bytes are there.
        self.whole = False
        self.error: BaseException | None = None

    def append(self, data: bytes) -> None:
        """Append bytes; empty bytes end the pack and fsync it."""
        self._file.write(data)
        self._file.flush()
        if not data:
            os.fsync(self._file.fileno())
            self._file.close()  # a file that is open would stay in a folder on NFS
        with self._more:
            self._size += len(data)
            self.whole = not data
            self._more.notify_all()

    def report_failure(self, error: BaseException) -> None:
        """Record that the pack ends early, and wake the reader."""
        self._file.close()
        with self._more:
            self.error = error
            self._more.notify_all()

    def wait_for_bytes(self, enough: int, seconds: float) -> int:
        """Wait for ``enough`` bytes, the end of the pack or ``seconds``; return the number of bytes there.

        Raises:
            BaseException: The error given to ``report_failure``.
        """
        with self._more:
            self._more.wait_for(lambda: self.whole or self.error is not None or self._size >= enough, seconds)
            if self.error:
                raise self.error
            return self._size
