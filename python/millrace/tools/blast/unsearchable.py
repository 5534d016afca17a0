"""Queries in which BLAST has nothing to search, such as the gaps of an assembly, and formats that show it.

Some formats write a pass of only such queries in another form than the same queries in a pass with a searchable one:
``docs/exactness-blast.md`` has these formats and their tests.

Source, of the NCBI C++ Toolkit: ``blast_setup.c``, which makes no statistics for a query whose letters are all
ambiguous or masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millrace import _core

#: Formats that write a pass of only such queries in another form.
SHOWN_IN = frozenset({0, 7, 15, 16, 18})

#: Letters one of which makes a query searchable: BLAST makes statistics for each alone. Not O, X and ``*`` of proteins,
#: nor ambiguous nucleotides.
_LETTERS = {"blastp": "ABCDEFGHIJKLMNPQRSTUVWYZ", "blastn": "ACGTU"}

_NO = ("false", "f", "0", "no", "n")


def find_searched_letters(program: str, options: dict[str, str]) -> str | None:
    """Return the letters that are searched in any place of a query; None: a mask may hide any of them."""
    letters = _LETTERS[program]
    # By default masked nucleotides are left out of words only (soft masking), and proteins are not masked.
    if options.get("soft_masking", "false" if program == "blastp" else "true").lower() not in _NO:
        return letters + letters.lower()
    if program == "blastp" and options.get("seg", "no") != "no":
        return None
    if program == "blastn" and not (options.get("dust") == "no" and not _has_other_mask(options)):
        return None
    return letters if "lcase_masking" in options else letters + letters.lower()


def _has_other_mask(options: dict[str, str]) -> bool:
    return any(name.startswith("window_masker") or name == "filtering_db" for name in options)


def count_unsearchable(queries: Path, letters: str | None) -> int:
    """Count the queries that may have nothing to search."""
    whole = _open_reader(queries, letters).skip(1 << 62)
    return whole.records - whole.sufficient if whole else 0


def find_first_uncertain(queries: Path, letters: str | None, smallest_pass: int) -> int:
    """Return the 1-based number of the first of those unsearchable queries that may fill a pass; 0: there are none.

    The ends of passes are not known; but each has at least ``smallest_pass`` residues, except the last.
    """
    begun, residues = 0, 0
    for number, (is_searchable, length) in enumerate(_read_lengths(queries, letters), 1):
        if is_searchable:
            begun, residues = 0, 0
        else:
            begun, residues = begun or number, residues + length
        if residues >= smallest_pass:
            return begun
    return begun


def _read_lengths(queries: Path, letters: str | None) -> Iterator[tuple[bool, int]]:
    reader = _open_reader(queries, letters)
    while record := reader.skip(1):
        yield record.sufficient > 0, record.cost


def _open_reader(queries: Path, letters: str | None) -> _core.Reader:
    # A NUL byte is in no sequence.
    return _core.Reader([queries], "fasta", content=("\0" if letters is None else letters, 1))
