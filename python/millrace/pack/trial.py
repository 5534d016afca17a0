"""Regenerate some of a result: what all of it would take, and whether the rest may be trusted to come out as this did."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from millrace.model import InputUse
from millrace.pack import difference, queries, regenerate, stripping
from millrace.pack.codec import Codec, NotPackable
from millrace.pack.cost import Sample
from millrace.pack.hits import Hits
from millrace.pack.queries import QueryBatch
from millrace.plan.plan import Plan

#: Batches that are regenerated.
BATCHES = 2

#: Bytes that an output may end with, after the last query's.
FOOT = 4096


@dataclass(frozen=True)
class Trial:
    """The first batches, regenerated."""

    plan: Plan
    #: What they are, stripped.
    outputs: Sequence[Path]
    cost: Sample

    def trusted(self, codec: Codec, originals: Sequence[Path], folder: Path) -> list[Path] | None:
        """What all of the regeneration would give, stripped, if ``originals`` begin and end as the trial does; else None."""
        pairs = enumerate(originals)
        found = [stripping.strip(codec, self.plan, number, path, folder / f"trusted{number}") for number, path in pairs]
        return found if all(map(begins_and_ends, found, self.outputs)) else None


def take(
    regeneration: Callable[[Path, Path, Sequence[QueryBatch], Sequence[Hits]], Plan],
    codec: Codec, source: tuple[Path, InputUse], folder: Path, batches: Sequence[QueryBatch], found: Sequence[Hits],
) -> Trial:  # fmt: skip
    """Regenerate the first batches in ``folder``.

    Args:
        regeneration: What is to be run in a folder for a file of queries, which are these batches with these hits.
        source: The queries, and how they are read.
    """
    shutil.rmtree(folder, ignore_errors=True)  # of a start that was stopped
    folder.mkdir()
    path, item = source
    few, some = batches[:BATCHES], folder / "sample"
    if not few or next(iter(queries.batches(path, item, [few[-1].last], some)), None) is None:
        raise NotPackable("there are no queries")
    begun = time.monotonic()
    plan = regeneration(folder, some, few, found[: len(few)])
    cost = regenerate.measured(plan)
    wall = time.monotonic() - begun
    outputs = stripping.stripped(codec, plan, regenerate.written(plan))
    share = work(found[: len(few)]) / work(found)
    slots, busy = (cost.slots, min(cost.occupancy * cost.wall / wall, 1.0)) if cost else (1, 1.0)
    return Trial(plan, outputs, Sample(wall, slots, busy, share, len(few), len(batches)))


def work(found: Sequence[Hits]) -> int:
    """How much there is to regenerate, in units of its own: each query of a batch is begun, and compared with each entry."""
    return sum(each.queries * (1 + len(each.entries)) for each in found)


def begins_and_ends(whole: Path, some: Path) -> bool:
    """Whether an output is what ``some`` of it is, then more, and then how that ends.

    Where too little of both is the same, it is not seen.
    """
    with ExitStack() as stack:
        ours, theirs = (difference.mapped(path, stack) for path in (whole, some))
        same = difference.same_bytes(ours, 0, theirs, 0)
        foot = theirs[same:]
        return same > len(foot) <= FOOT and same + len(foot) <= len(ours) and ours[len(ours) - len(foot) :] == foot
