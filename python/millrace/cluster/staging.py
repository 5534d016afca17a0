"""Staging: copies of the databases on the nodes of a job.

The first process of each node holds the copies there. The coordinator asks all of them for their copies and their room,
decides (``millrace.plan.staging``), and sends the missing files along a chain of the nodes that lack any. Tools of every
process then see the copies in place of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from millrace.cluster.distribution import CopyDistribution, Pairs
from millrace.cluster.keeper import NodeStaging
from millrace.plan import reads, staging
from millrace.plan.sources import IN_PLACE, ReadWay, describe_read_ways, rank_read_ways
from millrace.storage import sources

if TYPE_CHECKING:
    from millrace.cluster.membership import JobMember, JobMembership
    from millrace.cluster.messages import Plain
    from millrace.interrupt import StopSignals
    from millrace.model import FragmentPlan
    from millrace.plan.plan import RunPlan


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
    own = [path for path in plan.use.databases if not (view and view.find_file(path))]
    way, files = plan.job.stage, staging.list_database_files(own, plan.command.cwd)
    first = {member.hello.host: member.rank for member in reversed(members)} or {"": 0}
    known = None
    if files and way != "off":
        n_reads = reads.estimate_plan_reads(plan, _count_node_slots(plan, members), len(first))
        known = sources.find_sources(files, len(first), n_reads, plan.job.replica, plan.command.environ)
    decision = MeasuredCopyPolicy(way, known, message if plan.job.verbosity > 0 else _ignore_text)
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


def _ignore_text(_: str) -> None:
    pass


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

    def __init__(self, way: str, known: sources.SourceFacts | None, message: Callable[[str], None]) -> None:
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
