"""Choice of the source of databases for each node: in place, or a copy from storage, a replica or another node. Pure.

The time of each way is the sum of measured costs (``millrace.plan.costs``). Readers are counted over all nodes, as they
share the link of a server. The model is that of dSOARS with two additions: a node keeps what it has read in memory, if
it fits, and can pass it on to other nodes.
"""

from __future__ import annotations

from millrace.model import FrozenValue
from millrace.plan.costs import ReadCost, ReadCostLine, guess_read_cost
from millrace.report.words import format_duration
from millrace.words import format_count, format_size

#: Seconds to mount a copy in the place of a file, whatever its size.
COPY_SECONDS = 0.2

#: Additional seconds to fetch a replica into a node's cache, whatever its size: client, digests, disk.
FETCH_SECONDS = 0.3

#: Assumed cost from one node to the next; it is not measured before a run.
LINK = ReadCost(lines=(ReadCostLine(readers=1, start_seconds=1e-3, seconds_per_byte=2e-9),))

#: Error factor of predicted times: of ways whose times differ by less, the one that loads servers least is taken. See
#: bench/probe.py.
MAX_TIME_RATIO = 1.1


class ReadSource(FrozenValue, frozen=True):
    """A place that has all the bytes."""

    #: Its name without secrets.
    place: str
    cost: ReadCost
    #: Whether each node has its own copy there, so that nodes do not share it.
    is_own: bool = False

    def predict_seconds(self, n_bytes: int, nodes: int) -> float:
        """Return the seconds until ``nodes`` concurrent readers have read ``n_bytes`` each."""
        return self.cost.predict_seconds(n_bytes, 1 if self.is_own else nodes) if n_bytes else 0.0


class ReadQuestion(FrozenValue, frozen=True):
    """All values on which the choice of a way depends."""

    size: int
    #: Bytes of which a node has no copy.
    lacking: int
    #: Reads of all bytes by the tasks of a node: batches, times the passes of a tool.
    reads: int
    nodes: int
    here: ReadSource
    #: Replicas, which would have to be copied.
    elsewhere: tuple[ReadSource, ...] = ()
    #: Cost of the place of copies on a node.
    local: ReadCost = guess_read_cost("memory")
    #: Whether bytes that are read in place stay in the node's page cache.
    is_kept: bool = True
    #: Whether costs were measured; else they are guesses.
    is_measured: bool = False


class ReadWay(FrozenValue, frozen=True):
    """One way to read, and its cost up to the last read."""

    name: str
    source: ReadSource
    first: float
    again: float
    #: Times that the server sends the lacking bytes.
    sent: int

    @property
    def seconds(self) -> float:
        return self.first + self.again

    @property
    def words(self) -> str:
        return f"{self.name} {_format_time(self.seconds)} (first {_format_time(self.first)})"


#: Names of the ways.
IN_PLACE, STAGE, BROADCAST, REPLICA, PASSED_ON = "in place", "each its copy", "one reader for all", "replica", "replica, one reader for all"  # fmt: skip


def rank_read_ways(question: ReadQuestion) -> list[ReadWay]:
    """Return all ways, the best first: the fastest, or one within the error of prediction that loads servers less.

    >>> disk = ReadSource(place="/nfs", cost=guess_read_cost("shared"))
    >>> [way.name for way in rank_read_ways(ReadQuestion(size=10**9, lacking=10**9, reads=8, nodes=4, here=disk))]
    ['one reader for all', 'in place', 'each its copy']
    """
    found = sorted(_list_read_ways(question), key=lambda way: way.seconds)
    as_cheap = [way for way in found if way.seconds <= MAX_TIME_RATIO * found[0].seconds]
    best = min(as_cheap, key=lambda way: way.sent)
    return [best, *(way for way in found if way is not best)]


def _list_read_ways(question: ReadQuestion) -> list[ReadWay]:
    q = question
    memory = guess_read_cost("memory").predict_seconds(q.size, 1)
    # A node's own page cache serves what it has read, if there is room for it.
    again = memory if q.is_kept else q.here.predict_seconds(q.size, q.nodes)
    copied = q.reads * q.local.predict_seconds(q.size, 1)
    each = 0 if q.here.is_own else q.nodes
    found = [
        ReadWay(
            name=IN_PLACE,
            source=q.here,
            first=q.here.predict_seconds(q.size, q.nodes),
            again=(q.reads - 1) * again,
            sent=each,
        )
    ]

    def add(name: str, source: ReadSource, first: float, sent: int = 1) -> None:
        sent = sent if q.lacking else 0
        found.append(ReadWay(name=name, source=source, first=COPY_SECONDS + first, again=copied, sent=sent))

    link = LINK.predict_seconds(q.lacking, 1) if q.lacking else 0.0
    add(STAGE, q.here, q.here.predict_seconds(q.lacking, q.nodes), each)
    if q.nodes > 1:
        add(BROADCAST, q.here, max(q.here.predict_seconds(q.lacking, 1), link))
    for source in q.elsewhere:
        if q.nodes == 1:
            add(REPLICA, source, FETCH_SECONDS + source.predict_seconds(q.lacking, 1))
        else:
            add(PASSED_ON, source, FETCH_SECONDS + max(source.predict_seconds(q.lacking, 1), link))
    return found


def describe_read_ways(question: ReadQuestion) -> list[str]:
    """Describe question, times of all ways and choice, in three lines."""
    q, found = question, rank_read_ways(question)
    source = "measured" if q.is_measured else "guessed: measure with millrace data probe"
    best = found[0]
    place = "" if best.name == IN_PLACE else f", from {best.source.place}"
    who = "the node" if q.nodes == 1 else f"each of {format_count(q.nodes, 'node')}"
    again = "" if q.is_kept else "; what is read in place does not stay in memory"
    return [
        f"databases: {format_size(q.size)}, of which {who} lacks {format_size(q.lacking)} and reads all about {format_count(q.reads, 'time')}{again}",
        f"databases: {'; '.join(way.words for way in found)} ({source})",
        f"databases: {best.name}{place}",
    ]


def _format_time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else format_duration(seconds)
