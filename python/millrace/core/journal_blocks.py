"""Access to the bytes of blocks in journals, whichever node wrote them; and results that travel without a shared folder."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.core.tasks import TaskEnded, TaskEnding
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


def attach_contents(ended: TaskEnded, journal: _core.Journal) -> TaskEnded:
    """Attach the bytes of a task's blocks to its end, and drop them from the journal of this node."""
    if not ended.committed:
        return ended
    with map_blocks(ended.committed.blocks) as blocks:
        contents = [bytes(block) for block in blocks]
    journal.drop_blocks(ended.committed)
    return msgspec.structs.replace(ended, contents=contents)


def save_contents(contents: Sequence[bytes], path: Path) -> list[_core.BlockRef]:
    """Write the bytes of blocks of another node into a file of this one; return where they are there."""
    blocks = []
    with path.open("wb") as file:
        for content in contents:
            blocks.append(_core.BlockRef(path, (0, b"", file.tell(), len(content), _core.crc32c(content))))
            file.write(content)
    return blocks


def append_contents(ended: TaskEnded, journal: _core.Journal, attempt: int, name: str) -> TaskEnded:
    """Append the attached blocks of a task to the coordinator's journal; return its end with their places there.

    Args:
        name: The node that has sent them.

    Raises:
        CorruptError: The bytes are not those that the node committed.
    """
    if ended.committed is None or ended.contents is None:
        return ended
    _, (first, last, fragment), _, inputs, blocks = ended.committed.values
    arrived = list[tuple[int, bytes, bytes]]()
    for (stream, block_name, _, length, crc32c), content in zip(blocks, ended.contents, strict=True):
        if len(content) != length or _core.crc32c(content) != crc32c:
            raise CorruptError(f"{name}: a result is not what the node has sent", "the same command computes it again")
        arrived.append((stream, block_name, content))
    replace = msgspec.structs.replace
    try:
        committed = journal.append_task(first, last, fragment, inputs, arrived, attempt)
    except OSError as error:
        return replace(
            ended,
            ending=TaskEnding.IO,
            detail=str(error),
            disk_full=isinstance(error, _core.DiskFull),
            committed=None,
            contents=None,
        )
    return replace(ended, committed=committed, contents=None)


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
