"""Choice of the source of databases for each node: in place, or a copy, and from where.

A copy is from storage, a replica or another node. The time of each way is the sum of measured costs
(``millrace.storage.reading_costs``). Readers are counted over all nodes, as they share the link of a server. The
choice is that of dSOARS with two additions: a node keeps what it has read in memory, if it fits, and can pass it on to
other nodes. The choice is pure; ``find_sources`` measures the facts for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from millrace.core import replica_rules
from millrace.core.errors import MillraceError
from millrace.core.job import JobSpec
from millrace.core.text_format import format_count, format_duration, format_size
from millrace.core.tool_use import FrozenValue
from millrace.storage import cost_table
from millrace.storage.cache import cache_download, cache_location
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.reading_costs import (
    FETCH_SECONDS,
    MAX_TIME_RATIO,
    MeasuredCost,
    ReadCost,
    ReadCostFunction,
    ReadCostLine,
    choose_cheapest_offer,
    guess_read_cost,
)
from millrace.storage.staging_choice import DatabaseFile

#: Seconds to mount a copy in the place of a file, whatever its size.
COPY_SECONDS = 0.2

#: Assumed cost from one node to the next; it is not measured before a run.
LINK = ReadCost(lines=(ReadCostLine(readers=1, start_seconds=1e-3, seconds_per_byte=2e-9),))


class ReadSource(FrozenValue, frozen=True):
    """A place that has all the bytes."""

    #: Its name without secrets.
    place: str
    cost: ReadCostFunction
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


#: Files whose places are asked at the same time.
MAX_CONCURRENT_QUERIES = 8

#: Parts of a file that are compared with those of its replica, and bytes of each.
SAMPLES, SAMPLE_BYTES = 16, 64 << 10


class SourceFacts(NamedTuple):
    """The question, and the cheapest replica of each file, by its path; empty: some file has none."""

    question: ReadQuestion
    elsewhere: Mapping[str, str]


def find_sources(
    files: Sequence[DatabaseFile],
    nodes: int,
    reads: int,
    job: JobSpec,
    environ: Mapping[str, str],
) -> SourceFacts:
    """Ask all places of the files and look up their costs; measure a network share that is not in the table.

    Args:
        files: At least one, the largest first.
        reads: How often the tasks of a node read all files: ``millrace.planning.database_reads``.
    """
    table = cost_table.measure_unknown_place(files[0].path, files[0].size, environ)
    total = sum(file.size for file in files)
    elsewhere = _find_cheapest_replicas(files, job, environ)
    here = _make_source(files[0].path, table, job.costs)
    others = (_make_source(elsewhere[files[0].path], table, job.costs),) if elsewhere else ()
    used = (files[0].path, *list(elsewhere.values())[:1])
    measured = all(cost_table.find_cost(place, table, job.costs)[1] for place in used)
    known = table.get(cost_table.find_server(files[0].path))
    question = ReadQuestion(
        size=total, lacking=total, reads=reads, nodes=nodes, here=here, elsewhere=others,
        is_kept=cost_table.fits_in_page_cache(total) and (known is None or known.is_kept), is_measured=measured,
    )  # fmt: skip
    return SourceFacts(question, elsewhere)


def _make_source(place: str, table: Mapping[str, MeasuredCost], costs: str) -> ReadSource:
    is_own = cost_table.classify_place(place) in ("memory", "disk")
    cost = cost_table.find_cost(place, table, costs)[0]
    return ReadSource(place=replica_rules.redact_place(os.path.dirname(place)), cost=cost, is_own=is_own)


def _find_cheapest_replicas(files: Sequence[DatabaseFile], job: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    if not all(replica_rules.find_replicas(file.path, job.replica) for file in files):
        return {}

    def find_cheapest(file: DatabaseFile) -> str:
        found = cost_table.query_places(file.path, job.replica)[1:]  # the first one is the file itself
        found = [each for each in found if each.about and each.about.size == file.size]
        offer = choose_cheapest_offer(cost_table.list_offers(found, 1, job.costs, environ))
        return offer.place if offer else ""

    with ThreadPoolExecutor(MAX_CONCURRENT_QUERIES) as pool:
        places = list(pool.map(find_cheapest, files))
    return {file.path: place for file, place in zip(files, places, strict=True)} if all(places) else {}


def fetch_replicas(elsewhere: Mapping[str, str], way: str) -> tuple[dict[str, str], NodeCache | None]:
    """Return the path from which to read each file instead: its replica, or a copy of a replica behind a URL.

    A replica that differs from the file in sampled parts is not used.

    Args:
        way: ``--stage``.

    Returns:
        The new paths, by the old ones, and the cache that holds the copies; close it when they have been read.

    Raises:
        MillraceError: A replica cannot be read, or differs from the file.
    """
    cache = None
    found = {}
    try:
        for path, place in elsewhere.items():
            if replica_rules.is_url(place):
                if cache is None:
                    cache = NodeCache(
                        cache_location.resolve_cache_folder(
                            way if way.startswith("/") else "disk" if cache_location.find_disk_folder() else "ram"
                        ),
                        fetched=True,
                    )
                found[path] = str(
                    cache_download.fetch_to_cache(place, cache, cache_location.compute_budget_bytes(cache))
                )
            else:
                found[path] = place
            if not _has_same_samples(Path(path), Path(found[path])):
                raise MillraceError(
                    f"{replica_rules.redact_place(place)}: is not what {path} is", "correct its [[replica]]"
                )
    except BaseException:
        if cache:
            cache.close()
        raise
    return found, cache


def _has_same_samples(one: Path, other: Path) -> bool:
    """Tell whether two files have the same size and the same bytes in all samples."""
    with suppress(OSError), open(one, "rb") as first, open(other, "rb") as second:
        n_bytes = os.fstat(first.fileno()).st_size
        if os.fstat(second.fileno()).st_size != n_bytes:
            return False
        for k in range(SAMPLES):
            offset = max(0, n_bytes - SAMPLE_BYTES) * k // (SAMPLES - 1)
            if os.pread(first.fileno(), SAMPLE_BYTES, offset) != os.pread(second.fileno(), SAMPLE_BYTES, offset):
                return False
        return True
    return False
