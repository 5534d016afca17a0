"""The sample of a check: the first records of an input, and its records in reverse order."""

from __future__ import annotations

from pathlib import Path

from millrace import _core

#: Records of each input at most: in batches of one, each record starts the tool, in several rounds.
MAX_RECORDS = 100


def open_record_reader(path: Path, form: str, patterns: tuple[str, str]) -> _core.Reader:
    """Open a reader of the records of one file.

    Args:
        patterns: Of the first and of the last line of a record, where ``form`` is ``regex``.
    """
    start, end = patterns
    return _core.Reader([str(path)], form, record_start=start or None, record_end=end or None)


def write_first_records(path: Path, form: str, patterns: tuple[str, str], dest: Path) -> bool:
    """Write the first ``MAX_RECORDS`` records of an input to ``dest``; return whether the input has more."""
    found = open_record_reader(path, form, patterns)
    if not found.cut(str(dest), MAX_RECORDS, 0, 0):
        return False
    is_large = found.cut(str(dest.with_name(f"{dest.name}.more")), 1, 0, 0) is not None
    _compress_like_input(dest, found.compression)
    return is_large


def write_reversed_records(path: Path, form: str, patterns: tuple[str, str], dest: Path) -> None:
    """Write the records of an input to ``dest``, from the last to the first."""
    found, records = open_record_reader(path, form, patterns), list[bytes]()
    header = found.header
    while found.cut(str(dest), 1, 0, 0):
        records.append(dest.read_bytes()[len(header) :])
    # The last record of a file may lack an end of line, but in the middle it needs one.
    whole = (text if text.endswith((b"\n", b"\0")) else text + b"\n" for text in reversed(records))
    dest.write_bytes(header + b"".join(whole))
    _compress_like_input(dest, found.compression)


def _compress_like_input(path: Path, compression: str) -> None:
    """Compress a file as the input was: the serial tool unpacks it itself."""
    if compression:
        plain = path.rename(path.with_name(f"{path.name}.plain"))
        _core.compress_file(plain, path, compression)
        plain.unlink()
