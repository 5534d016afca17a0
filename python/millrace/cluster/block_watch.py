"""The nodes of a job that hold volumes of a database in HDFS: queried at the start, and every 10 s while it runs.

Replicas move and DataNodes die. If the NameNode does not answer, the last known locations stay in use; searches on
other nodes fetch the volumes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from millrace.core.errors import MillraceError
from millrace.core.tool_use import FetchedFile
from millrace.storage.hdfs import hdfs_blocks

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
    """

    def __init__(
        self, volumes: Sequence[Sequence[FetchedFile]], hosts: Mapping[int, str], environ: Mapping[str, str],
        message: Callable[[str], None], has_all: Iterable[int] = (),
    ) -> None:  # fmt: skip
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
            message(f"{error.message}; fragments are searched anywhere")
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
