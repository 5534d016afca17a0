"""Which processes of a job run where the volumes of a database in HDFS are: asked at the start, and again while it runs.

Replicas move, and DataNodes die; what is known is ten seconds old at most. A NameNode that does not answer changes
nothing: searches then go where they are fetched from elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from millrace.errors import MillraceError
from millrace.model import Fetched
from millrace.storage import blocks

#: Seconds between questions.
AGAIN_SECONDS = 10.0

#: Share of the bytes of a volume from which on a node holds it.
LEAST_SHARE = 0.5

#: Digits of a share that count: the files of a volume have sizes that differ a little.
DIGITS = 1

#: Nodes with the share that each has, by fragment.
Replicas = Mapping[int, Mapping[int, float]]


def replicas(held: Mapping[str, int], n_bytes: int, nodes: Mapping[int, frozenset[str]]) -> dict[int, float]:
    """The nodes that hold a volume, and which share of it. Pure.

    Args:
        held: Bytes of it, by the names of DataNodes.
        nodes: All names of each node.

    >>> replicas({"n1.site": 10, "10.0.0.2": 8, "n3": 1}, 10, {1: frozenset({"n1"}), 2: frozenset({"10.0.0.2"}), 3: frozenset({"n3"})})
    {1: 1.0, 2: 0.8}
    """

    def most(names: frozenset[str]) -> int:
        return max((n for host, n in held.items() if {host, blocks.short(host)} & names), default=0)

    there = {node: most(names) for node, names in nodes.items()}
    return {node: round(n / n_bytes, DIGITS) for node, n in there.items() if n >= max(LEAST_SHARE * n_bytes, 1)}


class BlockWatch:
    """Asks where volumes are, in a thread of its own until `close`.

    Args:
        volumes: Files of each fragment.
        hosts: Host of each node.
        message: Tells the user, once, that it is not known.
        has_all: Nodes that have the whole database.
    """

    def __init__(
        self, volumes: Sequence[Sequence[Fetched]], hosts: Mapping[int, str], environ: Mapping[str, str],
        message: Callable[[str], None], has_all: Iterable[int] = (),
    ) -> None:  # fmt: skip
        self._has_all = dict.fromkeys(has_all, 1.0)
        self._volumes, self._environ, self._message = volumes, environ, message
        self._nodes = {node: blocks.names_of(host) for node, host in hosts.items()}
        self._news: Replicas | None = None
        self._over = threading.Event()
        #: Where they are at the start; where that cannot be told, nowhere.
        self.first: Replicas = self._look() or dict.fromkeys(range(1, len(volumes) + 1), self._has_all)
        self._thread = threading.Thread(target=self._watch, name="blocks", daemon=True)
        self._thread.start()

    def _look(self) -> Replicas | None:
        try:
            found = blocks.of_files([file.place for files in self._volumes for file in files], self._environ)
        except MillraceError as error:
            message, self._message = self._message, lambda _: None
            message(f"{error.message}; fragments are searched anywhere")
            return None
        return {
            number: self._has_all
            | replicas(
                blocks.holders(blocks.within(found[file.place], *file.extent) for file in files),
                sum(file.size for file in files),
                self._nodes,
            )
            for number, files in enumerate(self._volumes, 1)
        }

    def _watch(self) -> None:
        last = self.first
        while not self._over.wait(AGAIN_SECONDS):
            now = self._look()
            if now and now != last:
                self._news = last = now

    def news(self) -> Replicas | None:
        """Where the volumes are now, if that is not where they were."""
        news, self._news = self._news, None
        return news

    def close(self) -> None:
        """Ask no more."""
        self._over.set()
