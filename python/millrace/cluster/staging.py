"""Copies of the databases on the nodes of a job: what coordinator and nodes say to each other, and do.

The first process of each node looks after the copies there. The coordinator asks all of them what they have and what
there is room for, decides (`millrace.plan.staging`), and sends what is missing along a chain of those that lack
something. Every process then starts its tools where the copies stand in the place of the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from millrace.errors import LostError, MillraceError
from millrace.plan import memory, staging
from millrace.plan.sources import IN_PLACE, Way, in_words, ways
from millrace.plan.staging import Choice, File, Node
from millrace.report.words import duration, size
from millrace.storage import keep, sources
from millrace.storage.broadcast import Link, Relay
from millrace.storage.cache import Cache
from millrace.storage.cache_files import NoRoom, Part
from millrace.storage.mounts import why_not
from millrace.waiting import Deadline, until

if TYPE_CHECKING:
    from millrace.cluster.membership import Member, Membership
    from millrace.interrupt import Interrupt
    from millrace.plan.plan import Plan

#: Seconds in which not one piece moves, after which some node is taken for lost.
STILL_SECONDS = 60.0

#: Seconds that may pass in `Keeper.turn`, and of the naps in it.
TURN, NAP = 0.02, 0.0003

#: Turns in which nothing could be done before there is a nap: what carries the pieces may need its calls to get on.
PATIENCE = 1


#: (copy, file) of each file.
Pairs = list[tuple[str, str]]


class Look(NamedTuple):
    """What do you have of these files, and what room?"""

    files: tuple[File, ...]
    way: str
    #: Whether they have no place of their own that copies would take.
    are_copies: bool = False


class Room(NamedTuple):
    """The answer."""

    node: Node


class Fetch(NamedTuple):
    """Take your place in the chain."""

    #: What is sent, in order.
    files: tuple[File, ...]
    choice: Choice
    #: Ranks; None: this is the first, or the last.
    before: int | None
    after: int | None


class Fetched(NamedTuple):
    """My part is over; ``why_not``: why there are no copies here, or empty."""

    why_not: str


class Keeper:
    """Looks after the copies on one node.

    Args:
        link: Gives the neighbours in the chain, of which at least one is there.
        scratch: A folder of this process in memory.
    """

    def __init__(self, link: Callable[[int | None, int | None], Link] | None, scratch: Path) -> None:
        self._link, self._scratch = link, scratch
        self._caches: dict[str, Cache] = {}
        self._relay: Relay | None = None
        self._parts: list[Part | None] = []
        self._cache: Cache | None = None
        self._idle = 0
        self._why = ""
        #: A transfer that was given up: what is under way writes into its memory until the process ends.
        self._given_up: Relay | None = None

    def look(self, message: Look) -> Node:
        """What there is on this node. From here on to `close` nobody removes what it has of the files."""
        # What can be read nowhere else may go to any disk.
        to_disk = "disk" if message.are_copies and message.way == "auto" else message.way
        for name, place in (("ram", _memory(message.way)), ("disk", _disk(to_disk))):
            if place and name not in self._caches:
                try:
                    self._caches[name] = Cache(place)
                except OSError:
                    continue  # full, or another's
        places = {name: cache.look(message.files) for name, cache in self._caches.items()}
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
        self._cache = self._caches.get(message.choice.place)
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


def stage(
    plan: Plan, members: Sequence[Member], crew: Membership | None, scratch: Path, interrupt: Interrupt,
    message: Callable[[str], None], behind: Mapping[str, str],
) -> tuple[Keeper, Mapping[str, Pairs], Mapping[str, Mapping[str, str]]]:  # fmt: skip
    """Bring copies of the databases to the nodes of a run, where that is asked for or pays.

    Args:
        members: The processes; none: this one is alone.
        behind: Copies on this node of files behind URLs, by name.

    Returns:
        Who looks after the copies on this node, to be closed at the end; what tools are to read in the place of what:
        (copy, file), by host; and where files behind URLs are, by host and name. The host of a process that is alone is
        empty.

    Raises:
        MillraceError: A node is lost, or somebody asks to stop.
        OSError: A file cannot be read.
    """
    keeper = Keeper(crew.world.link if crew else None, scratch)
    view = plan.command.view
    own = [path for path in plan.use.databases if not (view and view.file(path))]
    way, files = plan.job.stage, staging.look(own, plan.command.cwd)
    first = {member.hello.host: member.rank for member in reversed(members)} or {"": 0}
    known = (
        sources.look(files, len(first), _slots(plan, members), plan.job.replica, plan.command.environ)
        if files
        else None
    )
    decision = Decision(way, known, message if plan.job.verbosity > 0 else _nothing)

    def hear() -> list[tuple[int, object]]:
        if interrupt.signal:
            raise interrupt.error(plan.run_dir)
        return crew.hear() if crew else []

    def tell(rank: int, message: object) -> None:
        assert crew
        crew.tell(rank, message)

    coordinator = Staging(keeper, sorted(set(first.values()) - {0}), tell, hear, message)
    try:
        everywhere = coordinator.pass_on(way, behind) if behind and len(first) > 1 else {}
        found = coordinator.run(way, files, decision) if files and decision.may_copy else {}
    except BaseException:
        keeper.close()
        if crew:
            crew.world.broken |= keeper.broken
        raise
    return (
        keeper,
        {host: found[rank] for host, rank in first.items() if rank in found},
        {host: everywhere[rank] for host, rank in first.items() if rank in everywhere},
    )


def _nothing(_: str) -> None:
    pass


def _slots(plan: Plan, members: Sequence[Member]) -> int:
    """Of one node."""
    return max((member.slots for member in members), default=plan.slots)


class Decision:
    """Whether copies are made, and from where.

    Args:
        way: ``--stage``.
        known: What there is to know before the nodes have told what they have; None: there are no files.
        message: Tells the user of the arithmetic.
    """

    def __init__(self, way: str, known: sources.Known | None, message: Callable[[str], None]) -> None:
        self._way, self._known, self._message = way, known, message
        #: Whether there is anything for which it may pay; if not, no node has to be asked.
        self.may_copy = way != "off" and known is not None
        if known and way == "auto" and self._best(0).name == IN_PLACE:
            self.may_copy = False
            for line in in_words(known.question):
                message(line)

    def _best(self, lacking: int) -> Way:
        assert self._known
        question = msgspec.structs.replace(self._known.question, lacking=lacking)
        return next(way for way in ways(question) if self._way == "auto" or way.name != IN_PLACE)

    def elsewhere(self, lacking: int) -> Mapping[str, str] | None:
        """The replicas that are to be copied, by path; empty: the files themselves; None: they are read in place."""
        assert self._known
        best = self._best(lacking)
        for line in in_words(msgspec.structs.replace(self._known.question, lacking=lacking)):
            self._message(line)
        if best.name == IN_PLACE:
            return None
        return self._known.elsewhere if best.source in self._known.question.elsewhere else {}


def pairs_of(files: Sequence[File], node: Node, choice: Choice) -> Pairs:
    """Which copy takes the place of which file on a node; none if it reads in place."""
    place = {"ram": node.ram, "disk": node.disk}.get(choice.place)
    return [(os.path.join(place.folder, file.key), file.path) for file in files] if place else []


class Staging:
    """The coordinator's side.

    Args:
        keeper: Of its own node.
        ranks: The first processes of the other nodes.
        tell: Sends a message to a rank.
        hear: Returns what has come, as (rank, message); raises if it is of no use to go on.
        message: Tells the user.
    """

    def __init__(
        self, keeper: Keeper, ranks: Sequence[int], tell: Callable[[int, object], None],
        hear: Callable[[], list[tuple[int, object]]], message: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._keeper, self._ranks, self._tell, self._hear, self._message = keeper, ranks, tell, hear, message
        self._hosts: dict[int, str] = {}

    def run(self, way: str, files: Sequence[File], decision: Decision | None = None) -> dict[int, Pairs]:
        """Bring the files to the nodes.

        Args:
            decision: Says whether it pays, and from where; None: it does, from where they are.

        Returns:
            What each node's tools are to read, by the rank of its first process.

        Raises:
            MillraceError: A node is lost.
            OSError: A file cannot be read.
        """
        return self._run(Look(tuple(files), way), decision)

    def pass_on(self, way: str, behind: Mapping[str, str]) -> dict[int, dict[str, str]]:
        """Bring copies of files behind URLs, which are on this node, to the others.

        Args:
            behind: Copies by name.

        Returns:
            Where they are on the other nodes, by the rank of its first process, and name.

        Raises:
            MillraceError: A node is lost, or has no room for them.
        """
        files = staging.copies(behind.values())
        found = self._run(Look(tuple(files), "auto" if way == "off" else way, are_copies=True))
        del found[0]
        names = {path: name for name, path in behind.items()}
        if lacking := [rank for rank, pairs in found.items() if len(pairs) < len(files)]:
            raise MillraceError(
                f"{self._hosts[lacking[0]]}: no room for the files behind URLs, which it cannot read anywhere else",
                "name a folder with room on each node, as in: --stage /scratch",
            )
        return {rank: {names[file]: copy for copy, file in pairs} for rank, pairs in found.items()}

    def _run(self, look: Look, decision: Decision | None = None) -> dict[int, Pairs]:
        way, files = look.way, look.files
        for rank in self._ranks:
            self._tell(rank, look)
        nodes = {0: self._keeper.look(look)}
        self._wait(nodes)
        nodes = dict(sorted(nodes.items()))
        self._hosts = {rank: node.host for rank, node in nodes.items()}
        choices = dict(zip(nodes, staging.decide(way, files, list(nodes.values())), strict=True))
        lacking = max(sum(file.size for file in files if file.key in choice.missing) for choice in choices.values())
        elsewhere = decision.elsewhere(lacking) if decision else {}
        if elsewhere is None:
            return {rank: [] for rank in choices}
        for line in staging.in_words(files, list(nodes.values()), list(choices.values())):
            self._message(line)
        if any(choice.missing for choice in choices.values()):
            for rank, why in self._send(files, nodes, choices, elsewhere, way).items():
                self._message(f"databases: {nodes[rank].host} reads them in place after all: {why}")
                choices[rank] = Choice(place="", why=why)
        return {rank: pairs_of(files, nodes[rank], choice) for rank, choice in choices.items()}

    def _wait(self, nodes: dict[int, Node]) -> None:
        """Hear what all nodes have."""

        def look() -> bool:
            for rank, said in self._hear():
                if isinstance(said, Room):
                    nodes[rank] = said.node
            return len(nodes) > len(self._ranks)

        if not until(look, STILL_SECONDS, nap=NAP):
            raise LostError("databases: not all nodes say what room they have", "look at the nodes")

    def _send(
        self,
        files: Sequence[File],
        nodes: dict[int, Node],
        choices: dict[int, Choice],
        elsewhere: Mapping[str, str],
        way: str,
    ) -> dict[int, str]:
        """Send what is missing anywhere; which nodes have got no copies, and why."""
        began = time.monotonic()
        missing = frozenset[str]().union(*(choice.missing for choice in choices.values()))
        sent = tuple(file for file in files if file.key in missing)
        chain = [0, *(rank for rank, choice in choices.items() if rank and choice.missing)]
        for before, rank, after in zip(chain, chain[1:], [*chain[2:], None], strict=False):
            self._tell(rank, Fetch(sent, choices[rank], before, after))
        # What an earlier job has left here is nearer than the storage.
        near = {file: copy for copy, file in pairs_of(files, nodes[0], choices[0])}
        wanted = {file.path: elsewhere[file.path] for file in sent if file.key in choices[0].missing and elsewhere}
        instead, cache = self._fetched(wanted, way)
        places = [
            near.get(file.path, file.path) if file.key not in choices[0].missing else instead.get(file.path, file.path)
            for file in sent
        ]
        self._keeper.begin(Fetch(sent, choices[0], None, chain[1] if chain[1:] else None), places)
        ended = self._wait_for(len(chain))
        if cache:
            cache.close()
        seconds, n_bytes = time.monotonic() - began, sum(file.size for file in sent)
        self._message(f"databases: {size(n_bytes)} copied to each in {duration(seconds)}, {size(n_bytes / seconds)}/s")
        return {rank: why for rank, why in ended.items() if why}

    def _fetched(self, wanted: Mapping[str, str], way: str) -> tuple[dict[str, str], Cache | None]:
        """Where to read files instead; nowhere else if a replica fails, as the files themselves are there."""
        try:
            return sources.bring(wanted, way)
        except MillraceError as error:
            self._message(f"databases: read from where they are after all: {error.message}")
            return {}, None

    def _wait_for(self, n: int) -> dict[int, str]:
        """Pass pieces on until ``n`` nodes have ended their parts; why they have got no copies, if so."""
        ended: dict[int, str] = {}
        seen, still = -1, Deadline(STILL_SECONDS)

        def look() -> bool:
            nonlocal seen
            if not self._keeper.busy:
                time.sleep(NAP)
            elif over := self._keeper.turn():
                ended[0] = over.why_not
            ended.update((rank, said.why_not) for rank, said in self._hear() if isinstance(said, Fetched))
            if (moved := self._keeper.moved + len(ended)) != seen:
                seen = moved
                still.restart()
            elif still.is_over:
                raise LostError(
                    f"databases: no node has got anything for {duration(STILL_SECONDS)}", "look at the nodes"
                )
            return len(ended) == n

        until(look)
        return ended
