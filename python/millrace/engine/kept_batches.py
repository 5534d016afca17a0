"""Batches whose files are kept after their commit, so that their records can be run again."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import msgspec

from millrace.committed import Committed
from millrace.node.batch import Batch
from millrace.schedule.stretches import Extent


class KeptBatches:
    """Batches with their files, and their committed tasks."""

    def __init__(self) -> None:
        self._kept: dict[Extent, tuple[Batch, Committed]] = {}

    def add(self, batch: Batch, task: Committed) -> None:
        """Keep a batch whose files are about to be removed."""
        self._kept[batch.first, batch.last] = (linked(batch), task)

    def batches(self, extents: Sequence[Extent]) -> list[Batch]:
        """Return the batches of a stretch."""
        return [self._kept[each][0] for each in extents]

    def results(self, extents: Sequence[Extent]) -> list[tuple[Extent, Committed]]:
        """Return the extents of a stretch with their committed tasks."""
        return [(each, self._kept[each][1]) for each in extents]

    def keep_only(self, extents: Collection[Extent]) -> None:
        """Remove all other batches and their files."""
        for extent in self._kept.keys() - extents:
            remove_files(self._kept.pop(extent)[0])


def linked(batch: Batch) -> Batch:
    """Return the batch with hard links of its own to its files."""
    paths = []
    for path in batch.spooled:
        paths.append(path.with_name(f"kept-{batch.first}-{path.name}"))
        if path.exists():  # false where the files are the records themselves
            os.link(path, paths[-1])
    return msgspec.structs.replace(batch, spooled=tuple(paths))


def remove_files(batch: Batch) -> None:
    """Remove the files of a batch."""
    for path in batch.spooled:
        path.unlink(missing_ok=True)
