"""What the blocks of journals hold, whichever node wrote them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from millrace import _core
from millrace.errors import CorruptError
from millrace.waiting import until

#: How long a journal may look shorter than its node says, in seconds, and how often it is looked at.
SEEN_WITHIN, LOOK_AGAIN = 10.0, 0.05


@contextmanager
def views(blocks: Sequence[_core.BlockRef]) -> Iterator[list[memoryview]]:
    """What ``blocks`` hold, checked, without reading it into memory of our own: it may be gigabytes.

    Raises:
        CorruptError: A block is not what was committed.
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
            with opened(block) as file:
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


def opened(block: _core.BlockRef) -> BinaryIO:
    """The journal that holds ``block``, of this node or of another one.

    What another one has written and told of may not be seen at once on a network filesystem: opened again, it is.

    Raises:
        CorruptError: The block is cut off.
    """

    def look() -> BinaryIO | None:
        file = block.journal.open("rb")
        if os.fstat(file.fileno()).st_size >= block.offset + block.length:
            return file
        file.close()
        return None

    if found := until(look, SEEN_WITHIN, nap=LOOK_AGAIN):
        return found
    raise CorruptError(f"{block.journal}: byte {block.offset}: the block is cut off", "start over with --fresh")
