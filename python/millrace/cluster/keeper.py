"""The node's side of staging: the copies of databases on one node, held by its first process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from millrace.cluster.messages import Fetch, Fetched, Look
from millrace.plan import memory, staging
from millrace.plan.staging import Node
from millrace.storage import keep
from millrace.storage.broadcast import Link, Relay
from millrace.storage.cache import Cache
from millrace.storage.cache_files import NoRoom, Part
from millrace.storage.mounts import why_not
from millrace.waiting import until

#: Longest time in ``Keeper.turn``, and length of the naps in it, in seconds.
TURN, NAP = 0.02, 0.0003

#: Idle steps before a nap: MPI may need further calls to make progress.
PATIENCE = 1


class Keeper:
    """The copies of databases on one node, and its part in a broadcast.

    Args:
        link: Connects this process with the ranks before and after it in the chain; at least one exists.
        scratch: A folder of this process in memory.
    """

    def __init__(self, link: Callable[[int | None, int | None], Link] | None, scratch: Path) -> None:
        self._link, self._scratch = link, scratch
        self._caches: dict[tuple[str, bool], Cache] = {}
        self._is_fetched = False
        self._relay: Relay | None = None
        self._parts: list[Part | None] = []
        self._cache: Cache | None = None
        self._idle = 0
        self._why = ""
        #: A transfer that was abandoned: requests in flight write into its memory until the process ends.
        self._given_up: Relay | None = None

    def look(self, message: Look, fetched: bool = False) -> Node:
        """Report the copies and the room on this node, and lock its copies of the files until ``close``.

        Args:
            fetched: Whether this node has fetched the files, perhaps into the folder of a group.
        """
        self._is_fetched = fetched
        # Files without a place of their own may go to any disk.
        to_disk = "disk" if message.are_copies and message.way == "auto" else message.way
        for name, place in (("ram", _memory(message.way)), ("disk", _disk(to_disk))):
            if place and (name, fetched) not in self._caches:
                try:
                    self._caches[name, fetched] = Cache(place, fetched)
                except OSError:
                    continue  # full, or another's
        places = {name: cache.look(message.files) for (name, own), cache in self._caches.items() if own == fetched}
        return Node(
            host=os.uname().nodename, memory=memory.usable()[0], available=memory.available(), ram=places.get("ram"),
            disk=places.get("disk"), why_not="" if message.are_copies else why_not(str(self._scratch)),
        )  # fmt: skip

    def begin(self, message: Fetch, sources: Sequence[str] = ()) -> None:
        """Begin this node's part of a broadcast; ``turn`` continues it.

        Args:
            sources: Paths of the files to send, on the first node of the chain.
        """
        why = ""
        self._parts = [None] * len(message.files)
        self._cache = self._caches.get((message.choice.place, self._is_fetched))
        if self._cache:
            lacking = [k for k, file in enumerate(message.files) if file.key in message.choice.missing]
            try:
                parts = self._cache.begin([message.files[k] for k in lacking], message.choice.budget)
                for k, part in zip(lacking, parts, strict=True):
                    self._parts[k] = part
            except (NoRoom, OSError) as error:
                why = error.strerror or str(error)
        self._why = why
        neighbours = message.before is not None or message.after is not None
        self._relay = Relay(
            [file.size for file in message.files],
            self._link(message.before, message.after) if self._link and neighbours else None,
            [part.descriptor if part else None for part in self._parts],
            sources=sources,
            # Copies left by an earlier job do not change.
            changed=partial(
                staging.changed, [file for file, path in zip(message.files, sources, strict=False) if file.path == path]
            ),
            last=message.after is None,
            in_memory=message.choice.place != "disk",
        )

    @property
    def busy(self) -> bool:
        """Whether a transfer is in progress, which ``turn`` continues."""
        return self._relay is not None

    @property
    def moved(self) -> int:
        """Number of steps of the transfer done so far."""
        return self._relay.moved if self._relay else 0

    def turn(self) -> Fetched | None:
        """Continue the transfer for at most ``TURN`` seconds; return the message of its end once it is done.

        Raises:
            MillraceError: A file cannot be read, or a neighbour is lost.
            OSError: The same.
        """
        assert self._relay
        try:
            if not self._go_on(self._relay):
                return None
        except BaseException:
            self.close()
            raise
        self._relay.close()
        why = self._why or self._relay.why_not
        self._relay = None
        for part in self._parts:
            if part and self._cache:
                if why:
                    self._cache.drop(part)
                else:
                    self._cache.finish(part)
        self._parts = []
        return Fetched(why)

    def _go_on(self, relay: Relay) -> bool:
        """Relay pieces for at most ``TURN`` seconds; return whether all are done."""

        def look() -> bool:
            if relay.done:
                return True
            self._idle = 0 if relay.turn() else self._idle + 1
            if self._idle > PATIENCE:
                relay.wait(NAP)
            return False

        return until(look, TURN)

    @property
    def broken(self) -> bool:
        """Whether a transfer was abandoned, so that MPI cannot be finalized."""
        return self._given_up is not None

    def close(self) -> None:
        """Abandon a transfer, drop incomplete copies, and unlock the others for removal."""
        if self._relay:
            self._given_up = self._relay
            self._relay.close()
        for part in self._parts:
            if part and self._cache:
                self._cache.drop(part)
        for cache in self._caches.values():
            cache.close()
        self._relay, self._parts, self._caches = None, [], {}


def _memory(way: str) -> Path | None:
    return keep.in_memory() if way in ("auto", "ram") else None


def _disk(way: str) -> Path | None:
    """Return the folder for copies on disk: the named one, else $TMPDIR; ``auto`` without $TMPDIR never fills /tmp."""
    if way.startswith("/"):
        return Path(way)
    return None if way == "ram" or (way == "auto" and "TMPDIR" not in os.environ) else keep.on_disk()
