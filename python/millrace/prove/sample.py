"""The sample of a check: its first records, and its records turned round."""

from __future__ import annotations

import gzip
from pathlib import Path

from millrace import _core

#: Records of each input that are taken: with one a batch, each is a start of the tool, several times over.
MOST_RECORDS = 100


def reader(path: Path, form: str, patterns: tuple[str, str]) -> _core.Reader:
    """The records of one file.

    Args:
        patterns: Of the first and of the last line of a record, where ``form`` is ``regex``.
    """
    start, end = patterns
    return _core.Reader([str(path)], form, record_start=start or None, record_end=end or None)


def first_records(path: Path, form: str, patterns: tuple[str, str], dest: Path) -> bool:
    """Write the first records of a large input to ``dest``; returns whether it is large."""
    found = reader(path, form, patterns)
    if not found.cut(str(dest), MOST_RECORDS, 0, 0):
        return False
    dest.write_bytes(_as_was(path, dest.read_bytes()))
    return found.cut(str(dest.with_name(f"{dest.name}.more")), 1, 0, 0) is not None


def turned_round(path: Path, form: str, patterns: tuple[str, str], scratch: Path) -> bytes:
    """The records of an input from the last to the first."""
    found, records = reader(path, form, patterns), list[bytes]()
    header = found.header
    while found.cut(str(scratch), 1, 0, 0):
        records.append(scratch.read_bytes()[len(header) :])
    # The last record of a file may have no end of line, which one in the middle needs.
    whole = (text if text.endswith((b"\n", b"\0")) else text + b"\n" for text in reversed(records))
    return _as_was(path, header + b"".join(whole))


def _as_was(path: Path, content: bytes) -> bytes:
    """``content`` packed, if ``path`` is: the serial tool unpacks it itself."""
    with path.open("rb") as file:
        return gzip.compress(content, 1) if file.read(2) == b"\x1f\x8b" else content
