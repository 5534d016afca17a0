"""From where each node reads what all of its tasks read: in place, or from a copy, and where the copy comes from. Pure.

Each way is the sum of what was measured of the places (`millrace.plan.costs`); readers of one server share its link, so
they are counted over all nodes. The model is that of dSOARS, with two things that it did not know: what a node has read
once is in its memory, if it fits there, and what one node has can be passed on.
"""

from __future__ import annotations

from millrace.model import Frozen
from millrace.plan.costs import Cost, Line, guess
from millrace.report.words import duration
from millrace.words import count, size

#: Seconds that it takes to let a copy take the place of a file, whatever its size.
COPY_SECONDS = 0.2

#: Seconds more that it takes to fetch a replica into the cache of a node, whatever its size: the client, digests, the disk.
FETCH_SECONDS = 0.3

#: From one node to the next: a start in seconds, and seconds a byte. Nobody measures it before a run.
LINK = Cost(lines=(Line(readers=1, start_seconds=1e-3, seconds_per_byte=2e-9),))

#: By so much the times that are predicted may be wrong: of ways whose times differ by less, the one that asks least of a server
#: is taken. See bench/probe.py.
UNCERTAIN = 1.1


class Source(Frozen, frozen=True):
    """A place that has all the bytes."""

    #: As everybody may see it.
    place: str
    cost: Cost
    #: Whether each node has its own there, so that nodes do not share it.
    is_own: bool = False

    def seconds(self, n_bytes: int, nodes: int) -> float:
        """What it takes until so many nodes at the same time have read so many bytes each."""
        return self.cost.seconds(n_bytes, 1 if self.is_own else nodes) if n_bytes else 0.0


class Question(Frozen, frozen=True):
    """All that the decision depends on."""

    size: int
    #: Bytes of it that a node has no copy of.
    lacking: int
    #: How often the tasks of a node read all of it: batches, times the passes of a tool.
    reads: int
    nodes: int
    here: Source
    #: Replicas, which would have to be copied.
    elsewhere: tuple[Source, ...] = ()
    #: Where copies would be.
    local: Cost = guess("memory")
    #: Whether what is read in place stays in the memory of the node.
    is_kept: bool = True
    #: Whether costs were measured; else they are guesses.
    is_measured: bool = False


class Way(Frozen, frozen=True):
    """One way, and what it costs until the last read."""

    name: str
    source: Source
    first: float
    again: float
    #: How often the server sends what is lacking.
    sent: int

    @property
    def seconds(self) -> float:
        return self.first + self.again

    @property
    def words(self) -> str:
        return f"{self.name} {_time(self.seconds)} (first {_time(self.first)})"


#: What ways are called.
IN_PLACE, STAGE, BROADCAST, REPLICA, PASSED_ON = "in place", "each its copy", "one reader for all", "replica", "replica, one reader for all"  # fmt: skip


def ways(question: Question) -> list[Way]:
    """All ways, the best first: the cheapest, or one that is as cheap as far as is known, and asks less of a server.

    >>> disk = Source(place="/nfs", cost=guess("shared"))
    >>> [way.name for way in ways(Question(size=10**9, lacking=10**9, reads=8, nodes=4, here=disk))]
    ['one reader for all', 'in place', 'each its copy']
    """
    found = sorted(_all(question), key=lambda way: way.seconds)
    as_cheap = [way for way in found if way.seconds <= UNCERTAIN * found[0].seconds]
    best = min(as_cheap, key=lambda way: way.sent)
    return [best, *(way for way in found if way is not best)]


def _all(question: Question) -> list[Way]:
    q = question
    memory = guess("memory").seconds(q.size, 1)
    # A node's own page cache serves what it has read, if there is room for it.
    again = memory if q.is_kept else q.here.seconds(q.size, q.nodes)
    copied = q.reads * q.local.seconds(q.size, 1)
    each = 0 if q.here.is_own else q.nodes
    found = [
        Way(name=IN_PLACE, source=q.here, first=q.here.seconds(q.size, q.nodes), again=(q.reads - 1) * again, sent=each)
    ]

    def add(name: str, source: Source, first: float, sent: int = 1) -> None:
        sent = sent if q.lacking else 0
        found.append(Way(name=name, source=source, first=COPY_SECONDS + first, again=copied, sent=sent))

    link = LINK.seconds(q.lacking, 1) if q.lacking else 0.0
    add(STAGE, q.here, q.here.seconds(q.lacking, q.nodes), each)
    if q.nodes > 1:
        add(BROADCAST, q.here, max(q.here.seconds(q.lacking, 1), link))
    for source in q.elsewhere:
        if q.nodes == 1:
            add(REPLICA, source, FETCH_SECONDS + source.seconds(q.lacking, 1))
        else:
            add(PASSED_ON, source, FETCH_SECONDS + max(source.seconds(q.lacking, 1), link))
    return found


def in_words(question: Question) -> list[str]:
    """The arithmetic, in three lines."""
    q, found = question, ways(question)
    source = "measured" if q.is_measured else "guessed: measure with millrace data probe"
    best = found[0]
    place = "" if best.name == IN_PLACE else f", from {best.source.place}"
    who = "the node" if q.nodes == 1 else f"each of {count(q.nodes, 'node')}"
    again = "" if q.is_kept else "; what is read in place does not stay in memory"
    return [
        f"databases: {size(q.size)}, of which {who} lacks {size(q.lacking)} and reads all about {count(q.reads, 'time')}{again}",
        f"databases: {'; '.join(way.words for way in found)} ({source})",
        f"databases: {best.name}{place}",
    ]


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds)
