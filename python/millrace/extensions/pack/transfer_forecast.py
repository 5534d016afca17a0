"""Forecast of a search whose result is needed on another machine, before it is run.

Some queries are searched by the command itself and for their hits alone, and the result is regenerated from these. The
CPU seconds of all queries follow from those of the sample; the cores of both ends share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from millrace import _core
from millrace.extensions.pack import hit_lists, hits, live_packing, pack_transfer, regeneration_run, result_codec
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.layout import LEVEL, UNKNOWN, OriginalOutput, PackRecipe
from millrace.extensions.pack.result_codec import NotPackableError
from millrace.extensions.pack.result_packer import QUERIES_PER_BATCH, PackOptions, ResultPacker
from millrace.planning.run_plan import RunPlan

#: Queries of the first sample, and the factor by which it grows until its search takes so many CPU seconds.
FIRST_QUERIES, GROWTH, MIN_SAMPLE_SECONDS = 4, 4, 4.0

#: Queries that are counted at a time.
COUNTED_QUERIES = 1000

#: The level of zstd with which the result would be piped through ssh.
PIPE_LEVEL = 3


class TransferEnds(NamedTuple):
    """The two machines, or clusters, of a transfer."""

    cores: int
    cores_there: int
    #: Speed of a core there, where one here has 1.
    speed_there: float


@dataclass(frozen=True)
class ForecastMethod:
    """One way to get the result of a search to the other end; times in seconds."""

    name: str
    compute: float
    bytes: int
    #: Work at the other end.
    after: float = 0.0
    #: Whether the three go on at once, as each batch is sent and finished by itself.
    overlaps: bool = False

    def estimate_seconds(self, bandwidth: float) -> float:
        """Return the seconds from the start of the search to the result there; ``bandwidth`` is in bytes a second.

        >>> [ForecastMethod("", 8.0, 100, 1.0, overlaps=each).estimate_seconds(10.0) for each in (False, True)]
        [19.0, 10.0]
        """
        parts = (self.compute, self.bytes / bandwidth, self.after)
        return max(parts) if self.overlaps else sum(parts)


def compute_crossover_bandwidth(other: ForecastMethod, packed: ForecastMethod) -> float:
    """Return the bandwidth, in bytes a second, below which ``packed`` is sooner; 0: at none, infinite: at all.

    >>> ways = ForecastMethod("zstd", 10.0, 1000), ForecastMethod("packed", 12.0, 10, 15.0, overlaps=True)
    >>> compute_crossover_bandwidth(*ways)
    200.0

    Where the other way sends while it computes, too, its transfer alone has to take longer:

    >>> compute_crossover_bandwidth(ForecastMethod("piped", 10.0, 1000, overlaps=True), ways[1])
    66.66666666666667
    """
    if other.bytes <= packed.bytes:
        return 0.0
    packed_seconds = max(packed.compute, packed.after)
    if packed_seconds <= other.compute:
        return float("inf")
    return other.bytes / (packed_seconds if other.overlaps else packed_seconds - other.compute)


class _SampleCosts(NamedTuple):
    """What a sample took, in CPU seconds and bytes."""

    n_queries: int
    search: float
    hits_search: float
    regeneration: float
    result_bytes: int
    zstd_bytes: int
    pack_bytes: int


def forecast_transfer(plan: RunPlan, wishes: PackOptions, folder: Path, ends: TransferEnds) -> list[ForecastMethod]:
    """Measure a sample of the queries of ``plan``, and return the ways to send the result of all.

    Args:
        folder: An empty folder.

    Raises:
        NotPackableError: The result cannot be packed as hits.
        MillraceError: The sample cannot be searched.
    """
    packing = ResultPacker(
        plan,
        (),
        tuple(OriginalOutput(name=use.name, bytes=0, sha256=UNKNOWN) for use in plan.use.outputs),
        folder / "pack",
        wishes,
        _ignore,
    )
    made = packing.make_recipe()
    every = result_codec.cut_query_batches(packing.queries, packing.item, repeat(COUNTED_QUERIES), folder / "counted")
    n_queries = sum(batch.last - batch.first for batch in every)
    n = FIRST_QUERIES
    while True:
        found = _measure_sample(plan, packing, made, min(n, n_queries), folder / f"sample{n}")
        if found.search >= MIN_SAMPLE_SECONDS or n >= n_queries:
            break
        n *= GROWTH
    times = n_queries / found.n_queries
    here, there = times / ends.cores, times / (ends.cores_there * ends.speed_there)
    return [
        ForecastMethod("as it is", found.search * here, round(found.result_bytes * times)),
        ForecastMethod("zstd", found.search * here, round(found.zstd_bytes * times)),
        ForecastMethod("zstd piped", found.search * here, round(found.zstd_bytes * times), overlaps=True),
        ForecastMethod(
            "packed", found.hits_search * here, round(found.pack_bytes * times) + pack_transfer.OVERHEAD_BYTES,
            found.regeneration * there, overlaps=True,
        ),
    ]  # fmt: skip


def _measure_sample(plan: RunPlan, packing: ResultPacker, made: PackRecipe, n: int, folder: Path) -> _SampleCosts:
    """Search and regenerate the first ``n`` queries in the new ``folder``."""
    for name in ("whole", "hits", "again"):
        (folder / name).mkdir(parents=True)
    sample = folder / "sample"
    if next(result_codec.cut_query_batches(packing.queries, packing.item, [n], sample), None) is None:
        raise NotPackableError("there are no queries")
    argv, settings = packing.build_command_line(made), packing.wishes.settings
    whole = regeneration_run.plan_whole_search(folder / "whole", sample, argv, settings)
    searched = regeneration_run.run_and_summarize(whole)
    result = b"".join(path.read_bytes() for path in regeneration_run.list_written_outputs(whole))
    listed = regeneration_run.plan_whole_search(folder / "hits", sample, argv, settings)
    use = hit_lists.end_with_hits(regeneration_run.treat_as_one_fragment(listed.use, listed.command), listed.command)
    output = replace(use.outputs[0], to=str(folder / "found"))
    found_by = regeneration_run.run_and_summarize(replace(listed, use=replace(use, outputs=(output,))))
    found = _read_hits(folder / "found", made)
    batches = list(
        result_codec.cut_query_batches(sample, packing.item, (each.queries for each in found), folder / "batch")
    )
    again = regeneration_run.run_and_summarize(
        packing.plan_regeneration(folder / "again", sample, made, batches, found)
    )
    assert searched and found_by and again  # none of them was done before
    return _SampleCosts(
        n, searched.cpu, found_by.cpu, again.cpu, len(result), len(_core.squeeze(result, PIPE_LEVEL)),
        len(_core.squeeze(hits.encode_hits(found), LEVEL)),
    )  # fmt: skip


def _read_hits(path: Path, made: PackRecipe) -> list[BatchHits]:
    assert made.database  # its codec has described it
    found = hit_lists.BlockReader(made.database.entries).read_batches(path.read_bytes())
    return live_packing.merge_small_batches(list(found), QUERIES_PER_BATCH)


def _ignore(_: str) -> None:
    pass
