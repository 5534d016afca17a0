"""The trial regeneration of a part of a result: it predicts the time for all, and whether the rest can be trusted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from millrace.model import InputUse
from millrace.pack import difference, queries, regenerate, stripping
from millrace.pack.codec import NotPackableError, ResultCodec
from millrace.pack.cost import RegenerationSample
from millrace.pack.hits import BatchHits
from millrace.pack.queries import QueryBatch
from millrace.plan.plan import RunPlan

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
            stripping.strip_output(codec, self.plan, number, path, folder / f"trusted{number}")
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
    if not few or next(iter(queries.cut_query_batches(path, item, [few[-1].last], some)), None) is None:
        raise NotPackableError("there are no queries")
    begun = time.monotonic()
    plan = regeneration(folder, some, few, found[: len(few)])
    cost = regenerate.run_and_summarize(plan)
    wall = time.monotonic() - begun
    outputs = stripping.strip_outputs(codec, plan, regenerate.list_written_outputs(plan))
    share = count_work_units(found[: len(few)]) / count_work_units(found)
    slots, busy = (cost.slots, min(cost.occupancy * cost.wall / wall, 1.0)) if cost else (1, 1.0)
    return RegenerationTrial(plan, outputs, RegenerationSample(wall, slots, busy, share, len(few), len(batches)))


def count_work_units(found: Sequence[BatchHits]) -> int:
    """Count units of work: one for the start of each query, and one for each entry that it is compared with."""
    return sum(each.queries * (1 + len(each.entries)) for each in found)


def has_matching_ends(whole: Path, some: Path) -> bool:
    """Tell whether an output begins and ends as ``shorten_name_list``, the output for a part of the queries.

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
