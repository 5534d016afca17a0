"""Sources of a run's databases and their costs: the facts for ``millrace.plan.sources``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from millrace import replicas
from millrace.errors import MillraceError
from millrace.plan import memory
from millrace.plan.costs import ReadCost, choose_cheapest_offer
from millrace.plan.sources import ReadQuestion, ReadSource
from millrace.plan.staging import MEMORY_SHARE, DatabaseFile
from millrace.storage import choice, cost_table, fetch, keep
from millrace.storage.cache import NodeCache
from millrace.storage.probe import MeasuredCost

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
    rules: Sequence[replicas.ReplicaRule],
    environ: Mapping[str, str],
) -> SourceFacts:
    """Ask all places of the files and look up their costs; measure a network share that is not in the table.

    Args:
        files: At least one, the largest first.
        reads: How often the tasks of a node read all files: ``millrace.plan.reads``.
    """
    table = cost_table.measure_unknown_place(files[0].path, files[0].size, environ)
    total = sum(file.size for file in files)
    elsewhere = _find_cheapest_replicas(files, rules, environ)
    here = _make_source(files[0].path, table)
    others = (_make_source(elsewhere[files[0].path], table),) if elsewhere else ()
    measured = all(cost_table.find_server(place) in table for place in (files[0].path, *list(elsewhere.values())[:1]))
    known = table.get(cost_table.find_server(files[0].path))
    question = ReadQuestion(
        size=total, lacking=total, reads=reads, nodes=nodes, here=here, elsewhere=others,
        is_kept=total < MEMORY_SHARE * memory.read_usable_memory()[0] and (known is None or known.is_kept), is_measured=measured,
    )  # fmt: skip
    return SourceFacts(question, elsewhere)


def _make_source(place: str, table: Mapping[str, MeasuredCost]) -> ReadSource:
    is_own = cost_table.classify_place(place) in ("memory", "disk")
    cost: ReadCost = cost_table.find_cost(place, table)[0]
    return ReadSource(place=replicas.redact_place(os.path.dirname(place)), cost=cost, is_own=is_own)


def _find_cheapest_replicas(
    files: Sequence[DatabaseFile], rules: Sequence[replicas.ReplicaRule], environ: Mapping[str, str]
) -> dict[str, str]:
    if not all(replicas.find_replicas(file.path, rules) for file in files):
        return {}

    def find_cheapest(file: DatabaseFile) -> str:
        found = choice.query_places(file.path, rules)[1:]  # the first one is the file itself
        found = [each for each in found if each.about and each.about.size == file.size]
        offer = choose_cheapest_offer(choice.list_offers(found, 1, environ))
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
            if replicas.is_url(place):
                if cache is None:
                    cache = NodeCache(
                        keep.resolve_cache_folder(
                            way if way.startswith("/") else "disk" if keep.find_disk_folder() else "ram"
                        ),
                        fetched=True,
                    )
                found[path] = str(fetch.fetch_to_cache(place, cache, keep.compute_budget_bytes(cache)))
            else:
                found[path] = place
            if not _has_same_samples(Path(path), Path(found[path])):
                raise MillraceError(f"{replicas.redact_place(place)}: is not what {path} is", "correct its [[replica]]")
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
