"""Delayed task reports: none is sent until the journal is synced and other machines can read it."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from millrace import _core
from millrace.host.file_lock import find_filesystem_kind

Item = TypeVar("Item")

#: Filesystems, by the kernel's name, on which one machine may not see the writes of another until that has synced them
#: to the server. Others are coherent between machines (Lustre, GPFS, BeeGFS, CephFS), or local to this one.
LAZY = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs")


def is_lazy_filesystem(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Tell whether other machines may see writes at ``path`` late (close-to-open consistency)."""
    return find_filesystem_kind(path, mounts) in LAZY


class JournalVisibility(Generic[Item]):
    """A queue that releases items, in order, once all that ``journal`` held at the time of ``queue_items`` is on the server.

    Args:
        wake: Called from a thread when there are items to ``pop_visible_items``.
    """

    def __init__(self, journal: _core.Journal, wake: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._journal, self._wake = journal, wake
        self._waiting: queue.SimpleQueue[Sequence[Item] | None] = queue.SimpleQueue()
        self._ready: deque[Item] = deque()
        self._thread = threading.Thread(target=self._sync_queued_items, name="durable", daemon=True)
        self._thread.start()

    def queue_items(self, items: Sequence[Item]) -> None:
        self._waiting.put(items)

    def pop_visible_items(self) -> list[Item]:
        """Remove and return the items that may be sent now, in order."""
        found = []
        while self._ready:
            found.append(self._ready.popleft())
        return found

    def close(self) -> None:
        """End the thread; drop the items that still wait."""
        self._waiting.put(None)
        self._thread.join()

    def _sync_queued_items(self) -> None:
        while (first := self._waiting.get()) is not None:
            items = list(first)
            while not self._waiting.empty():  # one sync for all items that came during the last one
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
