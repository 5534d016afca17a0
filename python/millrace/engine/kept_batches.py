"""Batches whose files are kept after their commit, so that their records can be run again."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import msgspec

from millrace.committed import CommittedRecords
from millrace.node.batch import SpooledBatch
from millrace.schedule.stretches import RecordExtent


class KeptBatches:
    """Batches with their files, and their committed tasks."""

    def __init__(self) -> None:
        self._kept: dict[RecordExtent, tuple[SpooledBatch, CommittedRecords]] = {}

    def add_batch(self, batch: SpooledBatch, task: CommittedRecords) -> None:
        """Keep a batch whose files are about to be removed."""
        self._kept[batch.first, batch.last] = (link_batch_files(batch), task)

    def list_batches(self, extents: Sequence[RecordExtent]) -> list[SpooledBatch]:
        """Return the batches of a stretch."""
        return [self._kept[each][0] for each in extents]

    def list_results(self, extents: Sequence[RecordExtent]) -> list[tuple[RecordExtent, CommittedRecords]]:
        """Return the extents of a stretch with their committed tasks."""
        return [(each, self._kept[each][1]) for each in extents]

    def keep_only(self, extents: Collection[RecordExtent]) -> None:
        """Remove all other batches and their files."""
        for extent in self._kept.keys() - extents:
            remove_batch_files(self._kept.pop(extent)[0])


def link_batch_files(batch: SpooledBatch) -> SpooledBatch:
    """Return the batch with hard links of its own to its files."""
    paths = []
    for path in batch.spooled:
        paths.append(path.with_name(f"kept-{batch.first}-{path.name}"))
        if path.exists():  # false where the files are the records themselves
            os.link(path, paths[-1])
    return msgspec.structs.replace(batch, spooled=tuple(paths))


def remove_batch_files(batch: SpooledBatch) -> None:
    """Remove the files of a batch."""
    for path in batch.spooled:
        path.unlink(missing_ok=True)
