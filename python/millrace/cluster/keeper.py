"""The copies of databases on one node of a job: what its first process says, and does."""

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

#: Seconds that may pass in `Keeper.turn`, and of the naps in it.
TURN, NAP = 0.02, 0.0003

#: Turns in which nothing could be done before there is a nap: what carries the pieces may need its calls to get on.
PATIENCE = 1


class Keeper:
    """Looks after the copies on one node.

    Args:
        link: Gives the neighbours in the chain, of which at least one is there.
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
        #: A transfer that was given up: what is under way writes into its memory until the process ends.
        self._given_up: Relay | None = None

    def look(self, message: Look, fetched: bool = False) -> Node:
        """What there is on this node. From here on to `close` nobody removes what it has of the files.

        Args:
            fetched: Whether this node has fetched them, maybe into the folder of a group.
        """
        self._is_fetched = fetched
        # What can be read nowhere else may go to any disk.
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
        """Begin with this node's part; `turn` goes on with it.

        Args:
            sources: Where the first one reads the files.
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
            # Copies that an earlier job has left do not change.
            changed=partial(
                staging.changed, [file for file, path in zip(message.files, sources, strict=False) if file.path == path]
            ),
            last=message.after is None,
            in_memory=message.choice.place != "disk",
        )

    @property
    def busy(self) -> bool:
        """Whether `turn` has something to do."""
        return self._relay is not None

    @property
    def moved(self) -> int:
        """Grows as long as anything goes on."""
        return self._relay.moved if self._relay else 0

    def turn(self) -> Fetched | None:
        """Go on for a moment; the end of this node's part, if that has come.

        Raises:
            MillraceError: The files cannot be read, or a neighbour is lost.
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
        """Go on for a moment; whether this part is over."""

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
        """Whether a transfer was given up, so that MPI cannot end in good order."""
        return self._given_up is not None

    def close(self) -> None:
        """Give up what is not whole, and let others remove the rest."""
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
    """The folder for copies on disk: the named one, else $TMPDIR; without a word from anybody nothing fills /tmp."""
    if way.startswith("/"):
        return Path(way)
    return None if way == "ram" or (way == "auto" and "TMPDIR" not in os.environ) else keep.on_disk()
