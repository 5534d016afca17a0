"""Trial regeneration of a part of a result: predicts the time for all, and whether to trust it.

The times of sending a result uncompressed, compressed or packed are compared, in seconds. Source: the inequality of
ParaMEDIC (Balaji, Feng, Archuleta, Lin, 2007): D - x > B (f(x) + g(x)), with D bytes of the result, x of the pack, a
bandwidth of B, and f and g seconds to pack and to regenerate.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputUse
from millrace.extensions.pack import difference, regeneration_run, result_codec
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.result_codec import NotPackableError, QueryBatch, ResultCodec
from millrace.planning.run_plan import RunPlan


@dataclass(frozen=True)
class TransferMethod:
    """One way to transfer a result."""

    name: str
    #: Bytes that are sent.
    bytes: int
    #: Seconds of work before the transfer, and after it.
    before: float = 0.0
    after: float = 0.0

    def estimate_seconds(self, bandwidth: float) -> float:
        """Return the seconds from the finished result to its copy there; ``bandwidth`` is in bytes a second."""
        return self.before + self.bytes / bandwidth + self.after


def choose_fastest_transfer(ways: list[TransferMethod], bandwidth: float) -> TransferMethod:
    """Return the way that takes least time; of equal ones the first.

    >>> ways = [TransferMethod("as it is", 1000), TransferMethod("packed", 10, before=3, after=6)]
    >>> [choose_fastest_transfer(ways, bandwidth).name for bandwidth in (100, 110, 120)]
    ['packed', 'packed', 'as it is']
    """
    return min(ways, key=lambda way: way.estimate_seconds(bandwidth))


def compute_break_even_bandwidth(other: TransferMethod, packed: TransferMethod) -> float:
    """Return the bandwidth, in bytes a second, below which ``packed`` is faster; 0: at none, infinite: at all.

    >>> compute_break_even_bandwidth(TransferMethod("as it is", 1000), TransferMethod("packed", 10, before=3, after=6))
    110.0
    """
    saved, spent = other.bytes - packed.bytes, packed.before + packed.after - other.before - other.after
    if saved <= 0:
        return float("inf") if spent < 0 else 0.0
    return saved / spent if spent > 0 else float("inf")


@dataclass(frozen=True)
class RegenerationSample:
    """The regeneration of a part of a result; times in seconds."""

    #: Elapsed time.
    wall: float
    #: Number of slots, and the mean share of the time in which a slot was busy.
    slots: int
    occupancy: float
    #: Share of all work.
    share: float
    #: Batches in the part, and in all.
    batches: int
    of: int

    def estimate_total_seconds(self) -> float:
        """Return the seconds to regenerate all: start and end count once, the tools work at the rate of the sample.

        >>> RegenerationSample(wall=3, slots=1, occupancy=2 / 3, share=0.1, batches=1, of=10).estimate_total_seconds()
        21.0
        >>> RegenerationSample(wall=3, slots=2, occupancy=1 / 3, share=0.5, batches=1, of=2).estimate_total_seconds()
        3.0
        """
        work = self.wall * self.slots * self.occupancy
        beside = self.wall - work / min(self.slots, self.batches)
        return max(beside, 0.0) + work / self.share / min(self.slots, self.of)


def parse_bandwidth(text: str) -> float:
    """Parse a bandwidth such as ``100M``, in bits a second; return bytes a second.

    >>> parse_bandwidth("100M"), parse_bandwidth("1.5Gbit/s"), parse_bandwidth("800")
    (12500000.0, 187500000.0, 100.0)

    Raises:
        RefusedError: The text is not a bandwidth.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)(?:bit(?:/s)?)?", text, re.IGNORECASE)
    if not found or not float(found[1]):
        raise RefusedError(f"--bandwidth {text}: not a bandwidth", "write bits a second: 100M, 1G")
    return float(found[1]) * 1000.0 ** " KMG".index(found[2].upper() or " ") / 8


#: Batches that are regenerated.
BATCHES = 2

#: Bytes at most of the end of an output, after the part of the last query.
MAX_FOOT_BYTES = 4096


@dataclass(frozen=True)
class RegenerationTrial:
    """The regeneration of the first batches."""

    plan: RunPlan
    #: The stripped outputs.
    outputs: Sequence[Path]
    cost: RegenerationSample

    def strip_trusted_outputs(self, codec: ResultCodec, originals: Sequence[Path], folder: Path) -> list[Path] | None:
        """Return the stripped ``originals`` if they begin and end as the outputs of the trial; else None."""
        pairs = enumerate(originals)
        found = [
            difference.strip_output(codec, self.plan, number, path, folder / f"trusted{number}")
            for number, path in pairs
        ]
        return found if all(map(has_matching_ends, found, self.outputs)) else None


def run_trial(
    regeneration: Callable[[Path, Path, Sequence[QueryBatch], Sequence[BatchHits]], RunPlan],
    codec: ResultCodec, source: tuple[Path, InputUse], folder: Path, batches: Sequence[QueryBatch], found: Sequence[BatchHits],
) -> RegenerationTrial:  # fmt: skip
    """Regenerate the first batches in ``folder``.

    Args:
        regeneration: Plans a regeneration in a folder, for a file of queries with these batches and hits.
        source: The file of queries, and its format.
    """
    shutil.rmtree(folder, ignore_errors=True)  # of a start that was stopped
    folder.mkdir()
    path, item = source
    few, some = batches[:BATCHES], folder / "sample"
    if not few or next(iter(result_codec.cut_query_batches(path, item, [few[-1].last], some)), None) is None:
        raise NotPackableError("there are no queries")
    begun = time.monotonic()
    plan = regeneration(folder, some, few, found[: len(few)])
    cost = regeneration_run.run_and_summarize(plan)
    wall = time.monotonic() - begun
    outputs = difference.strip_outputs(codec, plan, regeneration_run.list_written_outputs(plan))
    share = count_work_units(found[: len(few)]) / count_work_units(found)
    slots, busy = (cost.slots, min(cost.occupancy * cost.wall / wall, 1.0)) if cost else (1, 1.0)
    return RegenerationTrial(plan, outputs, RegenerationSample(wall, slots, busy, share, len(few), len(batches)))


def count_work_units(found: Sequence[BatchHits]) -> int:
    """Count units of work: one for the start of each query, and one for each entry that it is compared with."""
    return sum(each.queries * (1 + len(each.entries)) for each in found)


def has_matching_ends(whole: Path, some: Path) -> bool:
    """Tell whether an output begins and ends as ``some``, the output for a part of the queries.

    False if the equal begin is not longer than the end.
    """
    with ExitStack() as stack:
        ours, theirs = (difference.map_file(path, stack) for path in (whole, some))
        same = difference.count_same_bytes(ours, 0, theirs, 0)
        foot = theirs[same:]
        return (
            same > len(foot) <= MAX_FOOT_BYTES
            and same + len(foot) <= len(ours)
            and ours[len(ours) - len(foot) :] == foot
        )
