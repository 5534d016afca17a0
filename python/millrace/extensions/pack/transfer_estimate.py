"""Estimates, measured on a sample, of the cost of each way to send a result."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from millrace import _core
from millrace.extensions.pack import hits
from millrace.extensions.pack.layout import LEVEL
from millrace.extensions.pack.recipe import OriginalOutput
from millrace.extensions.pack.regeneration_trial import TransferMethod
from millrace.extensions.pack.result_codec import NotPackableError
from millrace.extensions.pack.result_packer import PackOptions, ResultPacker
from millrace.planning.run_plan import RunPlan

#: Bytes of a result that are compressed as a sample.
PIECE_BYTES = 8 << 20

#: Estimated bytes of a pack besides its hits: recipe and differences.
OVERHEAD_BYTES = 1000


def measure_transfer_methods(
    plan: RunPlan, outputs: Sequence[Path], wishes: PackOptions, folder: Path, say: Callable[[str], None]
) -> tuple[list[TransferMethod], str]:
    """Return the ways to send ``outputs`` with their costs, and the reason why they cannot be packed as hits, or "".

    Args:
        folder: Folder in which the sample is regenerated.
    """
    start = time.process_time()  # the start-up time of one of our commands
    size = sum(path.stat().st_size for path in outputs)
    found = [TransferMethod("as it is", size), _measure_compression(outputs, size)]
    try:
        found.append(
            _measure_packing(
                ResultPacker(plan, outputs, list_undigested_outputs(plan, outputs), folder / "pack", wishes, say),
                folder,
                start,
            )
        )
    except NotPackableError as error:
        return found, str(error)
    return found, ""


def list_undigested_outputs(plan: RunPlan, outputs: Sequence[Path]) -> tuple[OriginalOutput, ...]:
    """Describe the outputs without digests, as a sample is compared with none."""
    pairs = zip(plan.use.outputs, outputs, strict=True)
    return tuple(OriginalOutput(name=use.name, bytes=path.stat().st_size, sha256="0" * 64) for use, path in pairs)


def _measure_compression(outputs: Sequence[Path], size: int) -> TransferMethod:
    """Estimate compression by zstd, from the begin of the largest output."""
    with max(outputs, key=lambda path: path.stat().st_size).open("rb") as file:
        piece = file.read(PIECE_BYTES)
    begun = time.monotonic()
    small = _core.squeeze(piece, LEVEL)
    packed = time.monotonic()
    _core.restore(small, len(piece))
    restored = time.monotonic()
    share = size / max(len(piece), 1)
    return TransferMethod("zstd -19", round(len(small) * share), (packed - begun) * share, (restored - packed) * share)


def _measure_packing(packing: ResultPacker, folder: Path, start: float) -> TransferMethod:
    """Estimate packing as hits: read all hits, and regenerate the first batches.

    Args:
        start: Start-up seconds of one of our commands: ``pack`` and ``send`` here, ``receive`` there.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        begun = time.monotonic()
        made = packing.make_recipe()
        described = time.monotonic()
        packing.make_recipe()  # timed again, as ``pack`` will find the database in the cache
        batches = packing.cut_queries(scratch)
        found = packing.find_hits(scratch, batches)
        read = time.monotonic()
        again = packing.run_trial(scratch / "trial", made, batches, found).cost.estimate_total_seconds()
    size = len(_core.squeeze(hits.encode_hits(found), LEVEL)) + OVERHEAD_BYTES
    # The other end reads its database, too.
    return TransferMethod("packed", size, 2 * start + read - described + again, start + described - begun + again)
