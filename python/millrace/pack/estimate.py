"""Estimates, measured on a sample, of the cost of each way to send a result."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from millrace import _core
from millrace.pack import hits
from millrace.pack.codec import NotPackable
from millrace.pack.cost import Way
from millrace.pack.layout import LEVEL
from millrace.pack.packing import Packing, Wishes
from millrace.pack.recipe import Original
from millrace.plan.plan import Plan

#: Bytes of a result that are compressed as a sample.
PIECE = 8 << 20

#: Estimated bytes of a pack besides its hits: recipe and differences.
BESIDE = 1000


def ways(
    plan: Plan, outputs: Sequence[Path], wishes: Wishes, folder: Path, say: Callable[[str], None]
) -> tuple[list[Way], str]:
    """Return the ways to send ``outputs`` with their costs, and the reason why they cannot be packed as hits, or "".

    Args:
        folder: Folder in which the sample is regenerated.
    """
    start = time.process_time()  # the start-up time of one of our commands
    size = sum(path.stat().st_size for path in outputs)
    found = [Way("as it is", size), _compressed(outputs, size)]
    try:
        found.append(
            _packed(Packing(plan, outputs, unread(plan, outputs), folder / "pack", wishes, say), folder, start)
        )
    except NotPackable as error:
        return found, str(error)
    return found, ""


def unread(plan: Plan, outputs: Sequence[Path]) -> tuple[Original, ...]:
    """Describe the outputs without digests, as a sample is compared with none."""
    pairs = zip(plan.use.outputs, outputs, strict=True)
    return tuple(Original(name=use.name, bytes=path.stat().st_size, sha256="0" * 64) for use, path in pairs)


def _compressed(outputs: Sequence[Path], size: int) -> Way:
    """Estimate compression by zstd, from the begin of the largest output."""
    with max(outputs, key=lambda path: path.stat().st_size).open("rb") as file:
        piece = file.read(PIECE)
    begun = time.monotonic()
    small = _core.squeeze(piece, LEVEL)
    packed = time.monotonic()
    _core.restore(small, len(piece))
    restored = time.monotonic()
    share = size / max(len(piece), 1)
    return Way("zstd -19", round(len(small) * share), (packed - begun) * share, (restored - packed) * share)


def _packed(packing: Packing, folder: Path, start: float) -> Way:
    """Estimate packing as hits: read all hits, and regenerate the first batches.

    Args:
        start: Start-up seconds of one of our commands: ``pack`` and ``send`` here, ``receive`` there.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        begun = time.monotonic()
        made = packing.recipe()
        described = time.monotonic()
        packing.recipe()  # timed again, as ``pack`` will find the database in the cache
        batches = packing.batches(scratch)
        found = packing.read(scratch, batches)
        read = time.monotonic()
        again = packing.trial(scratch / "trial", made, batches, found).cost.all_of_it()
    size = len(_core.squeeze(hits.encode(found), LEVEL)) + BESIDE
    # The other end reads its database, too.
    return Way("packed", size, 2 * start + read - described + again, start + described - begun + again)
