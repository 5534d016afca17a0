"""Queries in which BLAST finds nothing to search, such as the gaps of an assembly, and where that shows.

A pass of nothing but such queries is written otherwise than the same queries beside one that can be searched:
``docs/exactness-blast.md`` has the formats, and the tests that show it.

Source, of the NCBI C++ Toolkit: ``blast_setup.c``, which makes no statistics for a query without a letter that is neither
ambiguous nor masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millrace import _core

#: Formats in which a pass of nothing but such queries is written in another way.
SHOWN_IN = frozenset({0, 7, 15, 16, 18})

#: Letters of which one is enough: BLAST has statistics for each alone. Not O, X and ``*`` of proteins, nor what is ambiguous
#: of nucleotides.
_LETTERS = {"blastp": "ABCDEFGHIJKLMNPQRSTUVWYZ", "blastn": "ACGTU"}

_NO = ("false", "f", "0", "no", "n")


def searched_letters(program: str, options: dict[str, str]) -> str | None:
    """Letters that can be searched wherever they stand in a query; None: a mask may hide any of them."""
    letters = _LETTERS[program]
    # By default what is masked in nucleotides is left out of words alone, and of proteins nothing is masked.
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
    """How many queries may have nothing in them to be searched."""
    whole = _reader(queries, letters).skip(1 << 62)
    return whole.records - whole.sufficient if whole else 0


def first_uncertain(queries: Path, letters: str | None, smallest_pass: int) -> int:
    """1-based number of the first query of those that may be a pass of their own; 0: there are none.

    Where passes end is not known, but that none has less than ``smallest_pass`` residues, save the last.
    """
    begun, residues = 0, 0
    for number, (is_searchable, length) in enumerate(_lengths(queries, letters), 1):
        if is_searchable:
            begun, residues = 0, 0
        else:
            begun, residues = begun or number, residues + length
        if residues >= smallest_pass:
            return begun
    return begun


def _lengths(queries: Path, letters: str | None) -> Iterator[tuple[bool, int]]:
    reader = _reader(queries, letters)
    while record := reader.skip(1):
        yield record.sufficient > 0, record.cost


def _reader(queries: Path, letters: str | None) -> _core.Reader:
    # A NUL byte is in no sequence.
    return _core.Reader([queries], "fasta", content=("\0" if letters is None else letters, 1))
