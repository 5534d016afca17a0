"""Holding back what is told of a journal until other machines can read it."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from millrace import _core
from millrace.plan.filesystems import kind

Item = TypeVar("Item")

#: Filesystems, by the kernel's name, on which one machine may not see what another has written until that has waited
#: for the server. Others keep all machines in step (Lustre, GPFS, BeeGFS, CephFS), or are of this machine alone.
LAZY = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs")


def is_lazy(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether what is written at ``path`` may be seen late by other machines."""
    return kind(path, mounts) in LAZY


class JournalVisibility(Generic[Item]):
    """Passes items on, in order, once everything in ``journal`` at the time of `put` is on the server.

    Args:
        wake: Called when there is something to `take`; from a thread.
    """

    def __init__(self, journal: _core.Journal, wake: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._journal, self._wake = journal, wake
        self._waiting: queue.SimpleQueue[Sequence[Item] | None] = queue.SimpleQueue()
        self._ready: deque[Item] = deque()
        self._thread = threading.Thread(target=self._serve, name="durable", daemon=True)
        self._thread.start()

    def put(self, items: Sequence[Item]) -> None:
        self._waiting.put(items)

    def take(self) -> list[Item]:
        """What may be told now."""
        found = []
        while self._ready:
            found.append(self._ready.popleft())
        return found

    def close(self) -> None:
        """End the thread; what still waits is dropped."""
        self._waiting.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (first := self._waiting.get()) is not None:
            items = list(first)
            while not self._waiting.empty():  # one wait for the server for all that came during the last one
                more = self._waiting.get()
                if more is None:
                    return
                items += more
            try:
                self._journal.sync()
            except (OSError, _core.CorruptJournal) as error:
                self.error = error
                self._wake()
                return
            self._ready.extend(items)
            self._wake()
