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
from millrace.plan.costs import Cost, cheapest
from millrace.plan.sources import Question, Source
from millrace.plan.staging import MEMORY_SHARE, File
from millrace.storage import choice, cost_table, fetch, keep
from millrace.storage.cache import Cache
from millrace.storage.probe import Measured

#: Files whose places are asked at the same time.
ASKED_AT_ONCE = 8

#: Parts of a file that are compared with those of its replica, and bytes of each.
SAMPLES, SAMPLE_BYTES = 16, 64 << 10


class Known(NamedTuple):
    """The question, and the cheapest replica of each file, by its path; empty: some file has none."""

    question: Question
    elsewhere: Mapping[str, str]


def look(
    files: Sequence[File], nodes: int, reads: int, rules: Sequence[replicas.Replica], environ: Mapping[str, str]
) -> Known:
    """Ask all places of the files and look up their costs; measure a network share that is not in the table.

    Args:
        files: At least one, the largest first.
        reads: How often the tasks of a node read all files: ``millrace.plan.reads``.
    """
    table = cost_table.measure_unknown(files[0].path, files[0].size, environ)
    total = sum(file.size for file in files)
    elsewhere = _replicas(files, rules, environ)
    here = _source(files[0].path, table)
    others = (_source(elsewhere[files[0].path], table),) if elsewhere else ()
    measured = all(cost_table.server(place) in table for place in (files[0].path, *list(elsewhere.values())[:1]))
    known = table.get(cost_table.server(files[0].path))
    question = Question(
        size=total, lacking=total, reads=reads, nodes=nodes, here=here, elsewhere=others,
        is_kept=total < MEMORY_SHARE * memory.usable()[0] and (known is None or known.is_kept), is_measured=measured,
    )  # fmt: skip
    return Known(question, elsewhere)


def _source(place: str, table: Mapping[str, Measured]) -> Source:
    is_own = cost_table.nature(place) in ("memory", "disk")
    cost: Cost = cost_table.cost_of(place, table)[0]
    return Source(place=replicas.shown(os.path.dirname(place)), cost=cost, is_own=is_own)


def _replicas(files: Sequence[File], rules: Sequence[replicas.Replica], environ: Mapping[str, str]) -> dict[str, str]:
    if not all(replicas.of(file.path, rules) for file in files):
        return {}

    def best(file: File) -> str:
        found = choice.look(file.path, rules)[1:]  # the first one is the file itself
        found = [each for each in found if each.about and each.about.size == file.size]
        offer = cheapest(choice.offers(found, 1, environ))
        return offer.place if offer else ""

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        places = list(pool.map(best, files))
    return {file.path: place for file, place in zip(files, places, strict=True)} if all(places) else {}


def bring(elsewhere: Mapping[str, str], way: str) -> tuple[dict[str, str], Cache | None]:
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
                    cache = Cache(
                        keep.place(way if way.startswith("/") else "disk" if keep.on_disk() else "ram"), fetched=True
                    )
                found[path] = str(fetch.fetch(place, cache, keep.budget(cache)))
            else:
                found[path] = place
            if not _same(Path(path), Path(found[path])):
                raise MillraceError(f"{replicas.shown(place)}: is not what {path} is", "correct its [[replica]]")
    except BaseException:
        if cache:
            cache.close()
        raise
    return found, cache


def _same(one: Path, other: Path) -> bool:
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
