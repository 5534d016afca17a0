"""Starts of records in the middle of a file. Pure.

What is found is likely, not certain: a quality of FASTQ may begin with ``@``, a data item of SDF may contain ``$$$$``.
The exact cutter reads on from the piece before to the same place, and where both differ, its end counts
(``millrace.cluster.piece_input``).
"""

from __future__ import annotations

import re

#: Bytes before an offset that show whether a record begins there.
LOOK_BACK = {"fasta": 1, "fastq": 1, "lines": 1, "sdf": 256, "mol2": 4096}

#: Bytes behind the end of a record that show that it ends there.
LOOK_AHEAD = {"fasta": 2, "fastq": 4096, "lines": 0, "sdf": 70_000, "mol2": 70_000}

#: Records of FASTQ that must follow each other for a start to count.
FASTQ_RECORDS = 2

_FASTA = re.compile(rb"(?<=\n)>(?=[^?])")
_SDF = re.compile(rb"(?<=\n)\$\$\$\$[^\n]*\n")
_MOL2 = re.compile(rb"(?<=\n)(?:[ \t\r]*\n|#[^\n]*\n)*@<TRIPOS>MOLECULE")
_AT = re.compile(rb"(?<=\n)@")
_RESIDUES = re.compile(rb"[A-Za-z*.~-][!-~ \t\r]*|\s*")


def find_record_start(window: bytes, begin: int, form: str, *, is_end: bool) -> int | None:
    """Return the position of the first record that begins at ``begin`` or later; None: none, or the window does not tell.

    Args:
        window: Bytes of the file, from up to ``LOOK_BACK`` before ``begin`` on.
        is_end: Whether the file ends with the window.

    >>> find_record_start(b"AC\\n>b\\nGT\\n", 1, "fasta", is_end=True), find_record_start(b"\\nb\\nc\\n", 1, "lines", is_end=True)
    (3, 1)
    >>> find_record_start(b"\\n@IIC\\n@r2\\nACG\\n+\\nIII\\n", 1, "fastq", is_end=True)
    6
    """
    match form:
        case "fasta":
            return next((found.start() for found in _FASTA.finditer(window, begin)), None)
        case "lines":
            at = window.find(b"\n", max(begin - 1, 0)) + 1
            return at if at and (at < len(window) or not is_end) else None
        case "sdf":
            return next((found.end() for found in _SDF.finditer(window) if found.end() >= begin), None)
        case "mol2":
            return next((found.start() for found in _MOL2.finditer(window) if found.start() >= begin), None)
    return next(
        (at.start() for at in _AT.finditer(window, begin) if _begins_fastq(window, at.start(), is_end=is_end)), None
    )


def _begins_fastq(window: bytes, at: int, *, is_end: bool) -> bool:
    """Tell whether whole records of FASTQ follow each other from ``at`` on; false too if the window ends before."""
    for _ in range(FASTQ_RECORDS):
        found = _skip_fastq_record(window, at)
        if found is None:
            return False
        at = found
        if at == len(window):
            return is_end
    return True


def _skip_fastq_record(window: bytes, at: int) -> int | None:
    """Return the end of the record of FASTQ at ``at``; None: it is none, or is not whole."""
    if window[at : at + 1] != b"@":
        return None
    at = window.find(b"\n", at) + 1
    n_letters = 0
    while at and window[at : at + 1] != b"+":
        end = window.find(b"\n", at)
        if end < 0 or not _RESIDUES.fullmatch(line := window[at:end]):
            return None
        n_letters += _count_letters(line)
        at = end + 1
    at = window.find(b"\n", at) + 1 if at else 0
    while at and n_letters > 0:
        end = window.find(b"\n", at)
        end = len(window) if end < 0 else end
        n_letters -= _count_letters(window[at:end])
        at = min(end + 1, len(window))
        if at == len(window) and n_letters > 0:
            return None
    while at and window[at : at + 1].isspace():
        at += 1
    return at if at and not n_letters else None


def _count_letters(line: bytes) -> int:
    return sum(byte > ord(" ") for byte in line)
