"""Staging, on the coordinator: copies of the databases on the nodes of a job.

The first process of each node holds the copies there. The coordinator asks all of them for their copies and their
room, decides (``millrace.storage.staging_choice``), and sends the missing files along a chain of the nodes that lack
any. Tools of every process then see the copies in place of the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from millrace.cluster.messages import FetchCopies, NodeCopiesFetched, NodeStorageReport, Plain, QueryNodeStorage
from millrace.cluster.node_staging import TRANSFER_NAP_SECONDS, NodeStaging
from millrace.core.errors import LostError, MillraceError
from millrace.core.text_format import format_duration, format_size
from millrace.core.wait_loop import WaitDeadline, wait_until
from millrace.planning import database_reads
from millrace.storage import database_sources, staging_choice
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.database_sources import IN_PLACE, ReadWay, describe_read_ways, rank_read_ways
from millrace.storage.staging_choice import DatabaseFile, StagingChoice, StagingNode

if TYPE_CHECKING:
    from millrace.cluster.membership import JobMember, JobMembership
    from millrace.core.tool_use import FragmentPlan
    from millrace.host.signals import StopSignals
    from millrace.planning.run_plan import RunPlan


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
        files = staging_choice.list_cached_copies(behind.values())
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
        choices = dict(zip(nodes, staging_choice.choose_staging_places(way, files, list(nodes.values())), strict=True))
        lacking = max(sum(file.size for file in files if file.key in choice.missing) for choice in choices.values())
        elsewhere = decision.choose_replicas(lacking) if decision else {}
        if elsewhere is None:
            return {rank: [] for rank in choices}
        for line in staging_choice.describe_staging(files, list(nodes.values()), list(choices.values())):
            self._message(line)
        if any(choice.missing for choice in choices.values()):
            for rank, why in self._send_missing_files(files, nodes, choices, elsewhere, way).items():
                self._message(f"databases: {nodes[rank].host} reads them in place after all: {why}")
                choices[rank] = StagingChoice(place="", why=why)
        return {rank: list_copy_pairs(files, nodes[rank], choice) for rank, choice in choices.items()}

    def _wait_for_reports(self, nodes: dict[int, StagingNode]) -> None:
        """Add the report of each other node to ``nodes``."""

        def have_all_reported() -> bool:
            for rank, said in self._hear():
                if isinstance(said, NodeStorageReport):
                    nodes[rank] = said.node
            return len(nodes) > len(self._ranks)

        if not wait_until(have_all_reported, MAX_STALL_SECONDS, nap=TRANSFER_NAP_SECONDS):
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
            return database_sources.fetch_replicas(wanted, way)
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

        def have_all_ended() -> bool:
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

        wait_until(have_all_ended)
        return ended


def stage_databases(
    plan: RunPlan, members: Sequence[JobMember], crew: JobMembership | None, scratch: Path, interrupt: StopSignals,
    message: Callable[[str], None], behind: Mapping[str, str],
) -> tuple[NodeStaging, Mapping[str, Pairs], Mapping[str, Mapping[str, str]]]:  # fmt: skip
    """Copy databases to the nodes of a run, where that is requested or pays.

    Args:
        members: The processes; none: this process is alone.
        behind: Copies on this node of files behind URLs, by name.

    Returns:
        The staging of this node, to be closed at the end; (copy, file) pairs for tools, by host; and copies of files
        behind URLs, by host and name. The host of a process that is alone is the empty text.

    Raises:
        MillraceError: A node is lost, or a signal asks to stop.
        OSError: A file cannot be read.
    """
    keeper = NodeStaging(crew.world.make_broadcast_link if crew else None, scratch)
    view = plan.command.view
    in_place = plan.use.fragmented and plan.use.fragmented.kept.in_place
    own = [path for path in plan.use.databases if not in_place and not (view and view.find_file(path))]
    way, files = plan.job.stage, staging_choice.list_database_files(own, plan.command.cwd)
    first = {member.hello.host: member.rank for member in reversed(members)} or {"": 0}
    known = None
    if files and way != "off":
        n_reads = database_reads.estimate_plan_reads(plan, _count_node_slots(plan, members), len(first))
        known = database_sources.find_sources(files, len(first), n_reads, plan.job, plan.command.environ)
    decision = MeasuredCopyPolicy(way, known, message if plan.job.verbosity > 0 else lambda _: None)
    talk = _StagingMessages(crew, interrupt, plan.run_dir)
    coordinator = CopyDistribution(
        keeper, sorted(set(first.values()) - {0}), talk.send_to_rank, talk.receive_messages, message
    )
    try:
        elsewhere = _list_node_fetched_files(plan.use.fragmented)
        behind = {name: path for name, path in behind.items() if name not in elsewhere}
        everywhere = coordinator.distribute_url_copies(way, behind) if behind and len(first) > 1 else {}
        found = coordinator.distribute_files(way, files, decision) if files and decision.may_copy else {}
    except BaseException:
        keeper.close()
        if crew:
            crew.world.broken |= keeper.has_abandoned_transfer
        raise
    return (
        keeper,
        {host: found[rank] for host, rank in first.items() if rank in found},
        {host: everywhere[rank] for host, rank in first.items() if rank in everywhere},
    )


def _list_node_fetched_files(fragmented: FragmentPlan | None) -> set[str]:
    """Return the names of the files that nodes fetch by themselves, or get with a message."""
    if not fragmented:
        return set()
    return {*(index.file.name for index in fragmented.indices), *(each.name for each in fragmented.carried)}


class _StagingMessages(NamedTuple):
    """The messages to and from the nodes during staging, until a signal asks to stop."""

    crew: JobMembership | None
    interrupt: StopSignals
    run_dir: Path

    def receive_messages(self) -> list[tuple[int, object]]:
        if self.interrupt.signal:
            raise self.interrupt.make_error(self.run_dir)
        return self.crew.receive_messages() if self.crew else []

    def send_to_rank(self, rank: int, message: Plain) -> None:
        assert self.crew
        self.crew.send_to_rank(rank, message)


def _count_node_slots(plan: RunPlan, members: Sequence[JobMember]) -> int:
    """Return the largest number of slots of one process."""
    return max((member.slots for member in members), default=plan.slots)


class MeasuredCopyPolicy:
    """A copy policy by measured cost: whether copies are made, and from which source.

    Args:
        way: ``--stage``.
        known: Measurements that need no report of the nodes; None: there is no file to copy.
        message: Shows the arithmetic to the user.
    """

    def __init__(self, way: str, known: database_sources.SourceFacts | None, message: Callable[[str], None]) -> None:
        self._way, self._known, self._message = way, known, message
        #: Whether a copy can pay at all; if not, no node has to be asked.
        self.may_copy = known is not None
        if known and way == "auto" and self._choose_read_way(0).name == IN_PLACE:
            self.may_copy = False
            for line in describe_read_ways(known.question):
                message(line)

    def _choose_read_way(self, lacking: int) -> ReadWay:
        assert self._known
        question = msgspec.structs.replace(self._known.question, lacking=lacking)
        return next(way for way in rank_read_ways(question) if self._way == "auto" or way.name != IN_PLACE)

    def choose_replicas(self, lacking: int) -> Mapping[str, str] | None:
        """Return the replicas to copy, by path; empty: copy the files themselves; None: read the files in place."""
        assert self._known
        best = self._choose_read_way(lacking)
        for line in describe_read_ways(msgspec.structs.replace(self._known.question, lacking=lacking)):
            self._message(line)
        if best.name == IN_PLACE:
            return None
        return self._known.elsewhere if best.source in self._known.question.elsewhere else {}
