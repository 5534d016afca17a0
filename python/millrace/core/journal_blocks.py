"""Access to the bytes of blocks in journals, whichever node wrote them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.core.wait_loop import wait_until

#: Maximum time that a journal may look shorter than its node reports, and the poll interval, in seconds.
MAX_VISIBLE_DELAY_SECONDS, POLL_INTERVAL_SECONDS = 10.0, 0.05


@contextmanager
def map_blocks(blocks: Sequence[_core.BlockRef]) -> Iterator[list[memoryview]]:
    """Yield the checked bytes of ``blocks`` as memory maps, without copying them: they may be gigabytes.

    Raises:
        CorruptError: The checksum of a block is wrong.
    """
    maps: list[mmap.mmap] = []
    found: list[memoryview] = []
    try:
        for block in blocks:
            if not block.length:
                found.append(memoryview(b""))
                continue
            start = block.offset - block.offset % mmap.ALLOCATIONGRANULARITY
            size = block.offset - start + block.length
            with open_journal(block) as file:
                maps.append(mmap.mmap(file.fileno(), size, offset=start, access=mmap.ACCESS_READ))
            maps[-1].madvise(mmap.MADV_SEQUENTIAL)
            found.append(memoryview(maps[-1])[block.offset - start :])
            if _core.crc32c(found[-1]) != block.crc32c:
                raise CorruptError(
                    f"{block.journal}: byte {block.offset}: the block's checksum is wrong", "start over with --fresh"
                )
        yield found
    finally:
        for view in found:
            view.release()
        for each in maps:
            each.close()


def open_journal(block: _core.BlockRef) -> BinaryIO:
    """Open the journal that holds ``block``, of this node or of another one.

    On a network filesystem, bytes that another node has reported may not be visible at once: the file is opened again
    until they are.

    Raises:
        CorruptError: The block is cut off.
    """

    def open_whole_block() -> BinaryIO | None:
        file = block.journal.open("rb")
        if os.fstat(file.fileno()).st_size >= block.offset + block.length:
            return file
        file.close()
        return None

    if found := wait_until(open_whole_block, MAX_VISIBLE_DELAY_SECONDS, nap=POLL_INTERVAL_SECONDS):
        return found
    raise CorruptError(f"{block.journal}: byte {block.offset}: the block is cut off", "start over with --fresh")
