"""The coordinator's side of staging: send copies of databases to the nodes of a job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from millrace.cluster.keeper import TRANSFER_NAP_SECONDS, NodeStaging
from millrace.cluster.messages import FetchCopies, NodeCopiesFetched, NodeStorageReport, Plain, QueryNodeStorage
from millrace.errors import LostError, MillraceError
from millrace.plan import staging
from millrace.plan.staging import DatabaseFile, StagingChoice, StagingNode
from millrace.report.words import format_duration, format_size
from millrace.storage import sources
from millrace.storage.cache import NodeCache
from millrace.waiting import WaitDeadline, wait_until

#: Seconds without any piece moved after which a node counts as lost.
MAX_STALL_SECONDS = 60.0

#: The paths (copy, file) of each file.
Pairs = list[tuple[str, str]]


class CopyPolicy(Protocol):
    """A policy that decides whether copies pay, and which source they are made from."""

    def choose_replicas(self, lacking: int) -> Mapping[str, str] | None:
        """Return the replicas to copy, by path; empty: copy the files themselves; None: read the files in place.

        Args:
            lacking: Most bytes that any node lacks.
        """
        ...


def list_copy_pairs(files: Sequence[DatabaseFile], node: StagingNode, choice: StagingChoice) -> Pairs:
    """Return the (copy, file) pairs of a node; none if it reads the files in place."""
    place = {"ram": node.ram, "disk": node.disk}.get(choice.place)
    return [(os.path.join(place.folder, file.key), file.path) for file in files] if place else []


class CopyDistribution:
    """The coordinator's side of staging.

    Args:
        keeper: The staging of the coordinator's own node.
        ranks: The first process of each other node.
        tell: Sends a message to a rank.
        hear: Returns the received messages as (rank, message); raises if the job cannot continue.
        message: Shows a text to the user.
    """

    def __init__(
        self, keeper: NodeStaging, ranks: Sequence[int], tell: Callable[[int, Plain], None],
        hear: Callable[[], list[tuple[int, object]]], message: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._keeper, self._ranks, self._tell, self._hear, self._message = keeper, ranks, tell, hear, message
        self._hosts: dict[int, str] = {}

    def distribute_files(
        self, way: str, files: Sequence[DatabaseFile], decision: CopyPolicy | None = None
    ) -> dict[int, Pairs]:
        """Copy files to the nodes.

        Args:
            way: ``--stage``.
            decision: The policy; None: copy the files themselves.

        Returns:
            (copy, file) pairs for each node's tools, by the rank of its first process.

        Raises:
            MillraceError: A node is lost.
            OSError: A file cannot be read.
        """
        return self._query_and_send(QueryNodeStorage(tuple(files), way), decision)

    def distribute_url_copies(self, way: str, behind: Mapping[str, str]) -> dict[int, dict[str, str]]:
        """Copy files behind URLs, already fetched to this node, to the other nodes.

        Args:
            way: ``--stage``.
            behind: Paths of the copies on this node, by name.

        Returns:
            Paths of the copies on the other nodes, by the rank of the first process there, and by name.

        Raises:
            MillraceError: A node is lost, or has no room for the copies.
        """
        files = staging.list_cached_copies(behind.values())
        found = self._query_and_send(QueryNodeStorage(tuple(files), "auto" if way == "off" else way, are_copies=True))
        del found[0]
        names = {path: name for name, path in behind.items()}
        if lacking := [rank for rank, pairs in found.items() if len(pairs) < len(files)]:
            raise MillraceError(
                f"{self._hosts[lacking[0]]}: no room for the files behind URLs, which it cannot read anywhere else",
                "name a folder with room on each node, as in: --stage /scratch",
            )
        return {rank: {names[file]: copy for copy, file in pairs} for rank, pairs in found.items()}

    def _query_and_send(self, look: QueryNodeStorage, decision: CopyPolicy | None = None) -> dict[int, Pairs]:
        way, files = look.way, look.files
        for rank in self._ranks:
            self._tell(rank, look)
        nodes = {0: self._keeper.report_storage(look, look.are_copies)}
        self._wait_for_reports(nodes)
        nodes = dict(sorted(nodes.items()))
        self._hosts = {rank: node.host for rank, node in nodes.items()}
        choices = dict(zip(nodes, staging.choose_staging_places(way, files, list(nodes.values())), strict=True))
        lacking = max(sum(file.size for file in files if file.key in choice.missing) for choice in choices.values())
        elsewhere = decision.choose_replicas(lacking) if decision else {}
        if elsewhere is None:
            return {rank: [] for rank in choices}
        for line in staging.describe_staging(files, list(nodes.values()), list(choices.values())):
            self._message(line)
        if any(choice.missing for choice in choices.values()):
            for rank, why in self._send_missing_files(files, nodes, choices, elsewhere, way).items():
                self._message(f"databases: {nodes[rank].host} reads them in place after all: {why}")
                choices[rank] = StagingChoice(place="", why=why)
        return {rank: list_copy_pairs(files, nodes[rank], choice) for rank, choice in choices.items()}

    def _wait_for_reports(self, nodes: dict[int, StagingNode]) -> None:
        """Add the report of each other node to ``nodes``."""

        def look() -> bool:
            for rank, said in self._hear():
                if isinstance(said, NodeStorageReport):
                    nodes[rank] = said.node
            return len(nodes) > len(self._ranks)

        if not wait_until(look, MAX_STALL_SECONDS, nap=TRANSFER_NAP_SECONDS):
            raise LostError("databases: not all nodes say what room they have", "look at the nodes")

    def _send_missing_files(
        self,
        files: Sequence[DatabaseFile],
        nodes: dict[int, StagingNode],
        choices: dict[int, StagingChoice],
        elsewhere: Mapping[str, str],
        way: str,
    ) -> dict[int, str]:
        """Send each file that any node lacks; return the reason for each node that got no copies, by rank."""
        began = time.monotonic()
        missing = frozenset[str]().union(*(choice.missing for choice in choices.values()))
        sent = tuple(file for file in files if file.key in missing)
        chain = [0, *(rank for rank, choice in choices.items() if rank and choice.missing)]
        for before, rank, after in zip(chain, chain[1:], [*chain[2:], None], strict=False):
            self._tell(rank, FetchCopies(sent, choices[rank], before, after))
        # Copies that an earlier job left on this node are faster to read than the storage.
        near = {file: copy for copy, file in list_copy_pairs(files, nodes[0], choices[0])}
        wanted = {file.path: elsewhere[file.path] for file in sent if file.key in choices[0].missing and elsewhere}
        instead, cache = self._fetch_replicas(wanted, way)
        places = [
            near.get(file.path, file.path) if file.key not in choices[0].missing else instead.get(file.path, file.path)
            for file in sent
        ]
        self._keeper.begin_transfer(FetchCopies(sent, choices[0], None, chain[1] if chain[1:] else None), places)
        ended = self._wait_for_transfers(len(chain))
        if cache:
            cache.close()
        seconds, n_bytes = time.monotonic() - began, sum(file.size for file in sent)
        self._message(
            f"databases: {format_size(n_bytes)} copied to each in {format_duration(seconds)}, {format_size(n_bytes / seconds)}/s"
        )
        return {rank: why for rank, why in ended.items() if why}

    def _fetch_replicas(self, wanted: Mapping[str, str], way: str) -> tuple[dict[str, str], NodeCache | None]:
        """Fetch replicas; return their paths by file, none if a replica fails, and the cache that holds them."""
        try:
            return sources.fetch_replicas(wanted, way)
        except MillraceError as error:
            self._message(f"databases: read from where they are after all: {error.message}")
            return {}, None

    def _wait_for_transfers(self, n: int) -> dict[int, str]:
        """Relay pieces until ``n`` nodes are done; return why each has no copies, by rank; empty: it has.

        Raises:
            LostError: No piece has moved for ``MAX_STALL_SECONDS``.
        """
        ended: dict[int, str] = {}
        seen, still = -1, WaitDeadline(MAX_STALL_SECONDS)

        def look() -> bool:
            nonlocal seen
            if not self._keeper.has_transfer:
                time.sleep(TRANSFER_NAP_SECONDS)
            elif over := self._keeper.advance_transfer():
                ended[0] = over.why_not
            ended.update((rank, said.why_not) for rank, said in self._hear() if isinstance(said, NodeCopiesFetched))
            if (moved := self._keeper.n_steps_done + len(ended)) != seen:
                seen = moved
                still.restart()
            elif still.is_over:
                raise LostError(
                    f"databases: no node has got anything for {format_duration(MAX_STALL_SECONDS)}", "look at the nodes"
                )
            return len(ended) == n

        wait_until(look)
        return ended
