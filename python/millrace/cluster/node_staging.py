"""The node's side of staging: copies of databases on one node, held by its first process, and HDFS volumes near it.

The nodes that hold volumes of a database in HDFS are queried at the start, and every 10 s while the job runs, as
replicas move and DataNodes die. If the NameNode does not answer, the last known locations stay in use; searches on
other nodes fetch the volumes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.cluster.messages import FetchCopies, NodeCopiesFetched, QueryNodeStorage
from millrace.core.errors import MillraceError
from millrace.core.tool_use import FetchedFile
from millrace.core.wait_loop import wait_until
from millrace.host import memory_limits
from millrace.storage import hdfs_blocks, staging_choice
from millrace.storage.bind_mounts import find_mount_problem
from millrace.storage.broadcast import BroadcastLink, BroadcastRelay
from millrace.storage.cache import cache_location
from millrace.storage.cache.cache_files import NoRoomError, PartialCopy
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.staging_choice import StagingNode

if TYPE_CHECKING:
    from millrace.cluster.membership import JobMember
    from millrace.planning.run_plan import RunPlan

#: Longest time in ``NodeStaging.advance_transfer``, and length of the naps in it, in seconds.
TRANSFER_TICK_SECONDS, TRANSFER_NAP_SECONDS = 0.02, 0.0003

#: Idle steps before a nap: MPI may need further calls to make progress.
MAX_IDLE_STEPS = 1


class NodeStaging:
    """The copies of databases on one node, and its part in a broadcast.

    Args:
        link: Connects this process with the ranks before and after it in the chain; at least one exists.
        scratch: A folder of this process in memory.
    """

    def __init__(self, link: Callable[[int | None, int | None], BroadcastLink] | None, scratch: Path) -> None:
        self._link, self._scratch = link, scratch
        self._caches: dict[tuple[str, bool], NodeCache] = {}
        self._is_fetched = False
        self._relay: BroadcastRelay | None = None
        self._parts: list[PartialCopy | None] = []
        self._cache: NodeCache | None = None
        self._idle = 0
        self._why = ""
        #: A transfer that was abandoned: requests in flight write into its memory until the process ends.
        self._given_up: BroadcastRelay | None = None

    def report_storage(self, message: QueryNodeStorage, fetched: bool = False) -> StagingNode:
        """Report the copies and the room on this node, and lock its copies of the files until ``close``.

        Args:
            fetched: Whether this node has fetched the files, perhaps into the folder of a group.
        """
        self._is_fetched = fetched
        # Files without a place of their own may go to any disk.
        to_disk = "disk" if message.are_copies and message.way == "auto" else message.way
        for name, place in (("ram", _find_memory_folder(message.way)), ("disk", _find_disk_folder(to_disk))):
            if place and (name, fetched) not in self._caches:
                try:
                    self._caches[name, fetched] = NodeCache(place, fetched)
                except OSError:
                    continue  # full, or another's
        places = {
            name: cache.hold_and_survey(message.files) for (name, own), cache in self._caches.items() if own == fetched
        }
        return StagingNode(
            host=os.uname().nodename, memory=memory_limits.read_usable_memory()[0], available=memory_limits.read_available_memory(), ram=places.get("ram"),
            disk=places.get("disk"), why_not="" if message.are_copies else find_mount_problem(str(self._scratch)),
        )  # fmt: skip

    def begin_transfer(self, message: FetchCopies, sources: Sequence[str] = ()) -> None:
        """Begin this node's part of a broadcast; ``advance_transfer`` continues it.

        Args:
            sources: Paths of the files to send, on the first node of the chain.
        """
        why = ""
        self._parts = [None] * len(message.files)
        self._cache = self._caches.get((message.choice.place, self._is_fetched))
        if self._cache:
            lacking = [k for k, file in enumerate(message.files) if file.key in message.choice.missing]
            try:
                parts = self._cache.start_copies([message.files[k] for k in lacking], message.choice.budget)
                for k, part in zip(lacking, parts, strict=True):
                    self._parts[k] = part
            except (NoRoomError, OSError) as error:
                why = error.strerror or str(error)
        self._why = why
        neighbours = message.before is not None or message.after is not None
        self._relay = BroadcastRelay(
            [file.size for file in message.files],
            self._link(message.before, message.after) if self._link and neighbours else None,
            [part.descriptor if part else None for part in self._parts],
            sources=sources,
            # Copies left by an earlier job do not change.
            changed=partial(
                staging_choice.find_changed_file,
                [file for file, path in zip(message.files, sources, strict=False) if file.path == path],
            ),
            last=message.after is None,
            in_memory=message.choice.place != "disk",
        )

    @property
    def has_transfer(self) -> bool:
        """Whether a transfer is in progress, which ``advance_transfer`` continues."""
        return self._relay is not None

    @property
    def n_steps_done(self) -> int:
        """Number of steps of the transfer done so far."""
        return self._relay.n_steps if self._relay else 0

    def advance_transfer(self) -> NodeCopiesFetched | None:
        """Continue the transfer for at most ``TRANSFER_TICK_SECONDS`` seconds; return the message of its end once it is done.

        Raises:
            MillraceError: A file cannot be read, or a neighbour is lost.
            OSError: The same.
        """
        assert self._relay
        try:
            if not self._advance_relay(self._relay):
                return None
        except BaseException:
            self.close()
            raise
        self._relay.close()
        why = self._why or self._relay.copy_error
        self._relay = None
        for part in self._parts:
            if part and self._cache:
                if why:
                    self._cache.discard_part(part)
                else:
                    self._cache.publish_part(part)
        self._parts = []
        return NodeCopiesFetched(why)

    def _advance_relay(self, relay: BroadcastRelay) -> bool:
        """Relay pieces for at most ``TRANSFER_TICK_SECONDS`` seconds; return whether all are done."""

        def is_relay_done() -> bool:
            if relay.is_done:
                return True
            self._idle = 0 if relay.make_progress() else self._idle + 1
            if self._idle > MAX_IDLE_STEPS:
                relay.wait_for_progress(TRANSFER_NAP_SECONDS)
            return False

        return wait_until(is_relay_done, TRANSFER_TICK_SECONDS)

    @property
    def has_abandoned_transfer(self) -> bool:
        """Whether a transfer was abandoned, so that MPI cannot be finalized."""
        return self._given_up is not None

    def close(self) -> None:
        """Abandon a transfer, drop incomplete copies, and unlock the others for removal."""
        if self._relay:
            self._given_up = self._relay
            self._relay.close()
        for part in self._parts:
            if part and self._cache:
                self._cache.discard_part(part)
        for cache in self._caches.values():
            cache.close()
        self._relay, self._parts, self._caches = None, [], {}


def _find_memory_folder(way: str) -> Path | None:
    return cache_location.find_memory_folder() if way in ("auto", "ram") else None


def _find_disk_folder(way: str) -> Path | None:
    """Return the folder for copies on disk: the named one, else $TMPDIR; ``auto`` without $TMPDIR never fills /tmp."""
    if way.startswith("/"):
        return Path(way)
    return None if way == "ram" or (way == "auto" and "TMPDIR" not in os.environ) else cache_location.find_disk_folder()


#: Seconds between queries of the NameNode.
QUERY_INTERVAL_SECONDS = 10.0

#: Least share of the bytes of a volume with which a node counts as its holder.
MIN_HELD_SHARE = 0.5

#: Decimal digits to which shares are rounded: the files of a volume differ a little in size.
SHARE_DIGITS = 1

#: Share held by each node, by fragment.
Replicas = Mapping[int, Mapping[int, float]]


def find_volume_holders(held: Mapping[str, int], n_bytes: int, nodes: Mapping[int, frozenset[str]]) -> dict[int, float]:
    """Compute which nodes hold a volume, and the share of its bytes that each holds.

    Args:
        held: Bytes of the volume by name of DataNode.
        n_bytes: Bytes of the whole volume.
        nodes: All names of each node.

    >>> find_volume_holders({"n1.site": 10, "10.0.0.2": 8, "n3": 1}, 10, {1: frozenset({"n1"}), 2: frozenset({"10.0.0.2"}), 3: frozenset({"n3"})})
    {1: 1.0, 2: 0.8}
    """

    def most(names: frozenset[str]) -> int:
        return max((n for host, n in held.items() if {host, hdfs_blocks.strip_domain(host)} & names), default=0)

    there = {node: most(names) for node, names in nodes.items()}
    return {
        node: round(n / n_bytes, SHARE_DIGITS) for node, n in there.items() if n >= max(MIN_HELD_SHARE * n_bytes, 1)
    }


class VolumeLocationWatch:
    """A thread that queries the locations of volumes until ``close``.

    Args:
        volumes: Files of each fragment.
        hosts: Host of each node.
        message: Called once, with a text for the user, if the NameNode does not answer.
        has_all: Nodes that have the whole database.
        anywhere: What that text ends with.
    """

    def __init__(
        self, volumes: Sequence[Sequence[FetchedFile]], hosts: Mapping[int, str], environ: Mapping[str, str],
        message: Callable[[str], None], has_all: Iterable[int] = (), anywhere: str = "fragments are searched anywhere",
    ) -> None:  # fmt: skip
        self._anywhere = anywhere
        self._has_all = dict.fromkeys(has_all, 1.0)
        self._volumes, self._environ, self._message = volumes, environ, message
        self._nodes = {node: hdfs_blocks.list_host_names(host) for node, host in hosts.items()}
        self._news: Replicas | None = None
        self._over = threading.Event()
        #: The locations at the start; only ``has_all`` if the NameNode does not answer.
        self.first: Replicas = self._query_locations() or dict.fromkeys(range(1, len(volumes) + 1), self._has_all)
        self._thread = threading.Thread(target=self._poll_locations, name="blocks", daemon=True)
        self._thread.start()

    def _query_locations(self) -> Replicas | None:
        try:
            found = hdfs_blocks.locate_blocks([file.place for files in self._volumes for file in files], self._environ)
        except MillraceError as error:
            message, self._message = self._message, lambda _: None
            message(f"{error.message}; {self._anywhere}")
            return None
        return {
            number: self._has_all
            | find_volume_holders(
                hdfs_blocks.sum_bytes_by_host(
                    hdfs_blocks.cut_to_range(found[file.place], *file.extent) for file in files
                ),
                sum(file.size for file in files),
                self._nodes,
            )
            for number, files in enumerate(self._volumes, 1)
        }

    def _poll_locations(self) -> None:
        last = self.first
        while not self._over.wait(QUERY_INTERVAL_SECONDS):
            now = self._query_locations()
            if now and now != last:
                self._news = last = now

    def pop_changed_locations(self) -> Replicas | None:
        """Return the locations and clear them if they have changed since the last call; else None."""
        news, self._news = self._news, None
        return news

    def close(self) -> None:
        """Stop the queries."""
        self._over.set()


def start_location_watch(
    plan: RunPlan, members: Sequence[JobMember], say: Callable[[str], None]
) -> VolumeLocationWatch | None:
    """Start watching which nodes hold the volumes of the database, or the pieces of the input; None: none are in HDFS."""
    use, view, environ = plan.use, plan.command.view, plan.command.environ
    hosts = {member.rank: member.hello.host for member in members}
    if view and view.cut_by_nodes:
        from millrace.cluster.piece_input import list_pieces  # few runs need it

        pieces = [[piece] for piece in list_pieces(view)]
        return VolumeLocationWatch(pieces, hosts, environ, say, anywhere="tasks go anywhere")
    volumes = use.fragmented.volumes if use.fragmented else ()
    if not any(file.place.startswith("hdfs://") for files in volumes for file in files):
        return None
    # The coordinator's host has all of a file in pieces.
    in_pieces = any(file.is_piece for files in volumes for file in files)
    whole = [rank for rank, host in hosts.items() if in_pieces and host == hosts[0]]
    return VolumeLocationWatch(volumes, hosts, environ, say, has_all=whole)
