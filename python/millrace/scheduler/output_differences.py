"""Search for the first difference of two outputs for the same records, and its likely cause. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from millrace.core import record_formats
from millrace.scheduler.verification_stretches import RecordExtent

#: Maximum number of lines of a header and a footer together.
MAX_FRAME_LINES = 1000

_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")

#: Maximum number of characters of a line that is shown.
MAX_SHOWN_CHARACTERS = 100


class DifferenceExplanation(NamedTuple):
    """The likely cause of a difference, in words, and a hint."""

    what: str
    hint: str


class LineDifference(NamedTuple):
    """The first line that differs, counted from 0. ``None``: there is no such line."""

    line: int
    #: The line as committed, and from the second execution.
    then: bytes | None
    now: bytes | None
    #: Offset of the line in both outputs.
    offset: int


class MismatchedOutput(msgspec.Struct, frozen=True):
    """The difference in one output."""

    output: str
    then: list[bytes]
    now: list[bytes]
    records: RecordExtent
    difference: LineDifference


def find_first_difference(then: bytes, now: bytes) -> LineDifference:
    """Return the first line that is not the same in both.

    >>> find_first_difference(b"a\\nb\\nc\\n", b"a\\nc\\n")
    LineDifference(line=1, then=b'b', now=b'c', offset=2)
    >>> find_first_difference(b"a\\n", b"a\\nb")
    LineDifference(line=1, then=None, now=b'b', offset=2)
    """
    low, high = 0, min(len(then), len(now))
    while low < high:  # bisect: comparing slices is fast, comparing bytes one by one is not
        middle = (low + high + 1) // 2
        if then[low:middle] == now[low:middle]:
            low = middle
        else:
            high = middle - 1
    start = then.rfind(b"\n", 0, low) + 1
    return LineDifference(then.count(b"\n", 0, start), _get_line_at(then, start), _get_line_at(now, start), start)


def _get_line_at(text: bytes, start: int) -> bytes | None:
    return text[start:].split(b"\n", 1)[0] if start < len(text) else None


def format_line(line: bytes | None) -> str:
    """Format a line for a message."""
    if line is None:
        return "(nothing)"
    text = "".join(c if c.isprintable() else "\\t" if c == "\t" else "?" for c in line.decode(errors="replace"))
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."


def explain_difference(then: Sequence[bytes], now: Sequence[bytes], *, repeatable: bool) -> DifferenceExplanation:
    """Explain a difference: why the tool's output depends on where its input is cut.

    Args:
        then: Its output for each batch.
        now: Its output for the same records in other pieces.
        repeatable: Whether it writes the same bytes when a batch is run again unchanged.
    """
    if not repeatable:
        return DifferenceExplanation(
            "the tool gives other bytes when it is run again on the same records: random numbers, a date, a process "
            "number, or threads that race",
            "give it a fixed seed, or leave the date out; with one, the serial tool gives the same bytes twice too",
        )
    if all(part.startswith(record_formats.PACKED_MAGIC) for part in (*then, *now)):
        return DifferenceExplanation(
            "one compressed stream of the whole output",
            "name the output without the ending of compressed files, and compress it afterwards",
        )
    before, after = [part.splitlines(keepends=True) for part in then], [part.splitlines(keepends=True) for part in now]
    return (
        _explain_frame(before, after)
        or _explain_missing_lines(before, after)
        or _explain_totals(before, after)
        or _explain_lines(before, after)
    )


BlockLines = Sequence[Sequence[bytes]]


def _explain_frame(then: BlockLines, now: BlockLines) -> DifferenceExplanation | None:
    """Recognise a header or footer that is the same in each block."""
    blocks = [*then, *now]
    for head, foot in _list_frame_sizes(then, now):
        ends = {(tuple(block[:head]), tuple(block[len(block) - foot :])) for block in blocks}
        if len(ends) == 1 and _strip_frames(then, head, foot) == _strip_frames(now, head, foot) is not None:
            return _describe_frame(blocks[0], head, foot)
    return None


def _list_frame_sizes(then: BlockLines, now: BlockLines) -> Iterator[tuple[int, int]]:
    """Yield possible (header, footer) line counts: as many lines as fewer blocks of the same records lack."""
    n_blocks = len(then) - len(now)
    lines = sum(map(len, then)) - sum(map(len, now))
    if n_blocks and not lines % n_blocks and 0 < lines // n_blocks <= MAX_FRAME_LINES:
        size = lines // n_blocks
        yield from ((head, size - head) for head in range(size, -1, -1))


def _strip_frames(blocks: BlockLines, head: int, foot: int) -> list[bytes] | None:
    """Return all lines without the frames; None if a block is shorter than its frame."""
    if any(len(block) < head + foot for block in blocks):
        return None
    return [line for block in blocks for line in block[head : len(block) - foot]]


def _describe_frame(block: Sequence[bytes], head: int, foot: int) -> DifferenceExplanation:
    first = block[0].strip() if block else b""
    if head and foot:
        tag = re.search(rb"<([A-Za-z_][\w.-]*)[^>?!]*>", b"".join(block[:head]))
        if tag and b"</" in block[-1]:
            return DifferenceExplanation(
                "a header and a footer that the tool writes at each start and end",
                f"--fresh --join xml:{tag[1].decode()} keeps one of each",
            )
        return DifferenceExplanation(
            "a header and a footer that the tool writes at each start and end", "let the tool write without them"
        )
    if foot:
        return DifferenceExplanation(
            "a footer that the tool writes at each end",
            f"--fresh --join {_format_join('footer', foot)} keeps the last one",
        )
    is_csv = head == 1 and b"," in first
    is_sam = re.match(rb"@(HD|SQ|PG|RG|CO)\t", first)
    join = "sam" if is_sam else "csv" if is_csv else _format_join("header", head)
    return DifferenceExplanation(
        "a header that the tool writes at each start", f"--fresh --join {join} keeps the first one"
    )


def _format_join(how: str, n_lines: int) -> str:
    """Format a join option for ``n_lines`` lines; one line is its default."""
    return how if n_lines == 1 else f"{how}:{n_lines}"


def _explain_missing_lines(then: BlockLines, now: BlockLines) -> DifferenceExplanation | None:
    """Recognise lines that are missing while no others were added."""
    before, after = (Counter(line for block in blocks for line in block) for blocks in (then, now))
    if before == after or not (before <= after or after <= before):
        return None
    return DifferenceExplanation(
        "state carried from record to record: some results depend on others, such as duplicates left out",
        "let the tool treat each record by itself, and do the rest afterwards",
    )


def _explain_totals(then: BlockLines, now: BlockLines) -> DifferenceExplanation | None:
    """Recognise a last or first line about all records, such as a total."""
    for head, foot in _list_frame_sizes(then, now):
        if _strip_frames(then, head, foot) == _strip_frames(now, head, foot) is not None:
            where = "at its end" if not head else "at its start" if not foot else "at its start and end"
            return DifferenceExplanation(
                f"a total, or another line on all records, that the tool writes {where}",
                "let the tool write without it, or take it from a serial run",
            )
    return None


def _explain_lines(then: BlockLines, now: BlockLines) -> DifferenceExplanation:
    before, after = [line for block in then for line in block], [line for block in now for line in block]
    if Counter(before) == Counter(after):
        return DifferenceExplanation(
            "the tool sorts, or reorders, what it is given",
            "sort afterwards: millrace run -- ... | sort, with the order that the tool has",
        )
    if len(before) == len(after) and all(
        _NUMBER.sub(b"0", one) == _NUMBER.sub(b"0", other) for one, other in zip(before, after, strict=True)
    ):
        return DifferenceExplanation(
            "numbers that run on through the input, such as NR, a running sum, random numbers of one seed, "
            "or statistics of all records",
            "let the tool leave them out; number the lines afterwards",
        )
    return DifferenceExplanation(
        "state carried from record to record, or learnt from the whole input",
        "use options with which the tool treats each record by itself; if there are none, run it serially",
    )
