"""Sizes of queries that matter to BLAST: passes, chunks of a pass, and queries with nothing to search.

BLAST searches a database with a pass of queries at a time, and cuts a pass into chunks from some size on. It reads
both sizes from the environment: ``BATCH_SIZE``, ``CHUNK_SIZE`` and ``OVERLAP_CHUNK_SIZE``. Some formats write a pass
of only unsearchable queries, such as the gaps of an assembly, in another form than the same queries in a pass with a
searchable one: ``docs/exactness-blast.md`` has these formats and their tests.

Sources, of the NCBI C++ Toolkit: ``blast_app_util.cpp`` (passes), ``split_query_aux_priv.cpp`` (chunks), and
``blast_setup.c``, which makes no statistics for a query whose letters are all ambiguous or masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from millrace import _core
from millrace.core.errors import RefusedError

#: Residues of queries that share one pass over the database (seen in the archive format: one archive a pass). 0: one
#: query a pass; a query without residues then shares that of the next, and psiblast refuses both, or crashes at the
#: end.
PASS_RESIDUES = {
    "blastp": 10_000,
    "rpsblast": 10_000,
    "blastx": 10_002,
    "tblastx": 10_002,
    "rpstblastn": 10_002,
    "tblastn": 20_000,
    "psiblast": 0,
    "deltablast": 0,
}

#: Residues of a chunk, overlap included, of the programs that cut a pass. Passes of translated queries and of rpsblast
#: are never cut.
_CHUNK_RESIDUES = {"blastp": 10_000, "psiblast": 10_000, "tblastn": 20_000}
_OVERLAP_RESIDUES = 100

#: BLAST's own variables.
PASS_VARIABLE = "BATCH_SIZE"
_CHUNK_VARIABLES = ("CHUNK_SIZE", "OVERLAP_CHUNK_SIZE")


class QuerySizes(NamedTuple):
    """Sizes of the passes and chunks of one process of BLAST, in residues."""

    #: A pass ends with the query that brings it to this size; 0: with each query.
    pass_residues: int
    #: A pass of this size is cut into chunks, whose bounds depend on all its queries. 0: no pass is cut.
    cut_residues: int

    def may_cut_pass(self, longest_query: int) -> bool:
        """Tell whether a pass with a query of that length may be cut into chunks.

        >>> QuerySizes(10_000, 19_800).may_cut_pass(9_800), QuerySizes(10_000, 19_800).may_cut_pass(9_801)
        (False, True)
        """
        return 0 < self.cut_residues <= max(self.pass_residues - 1, 0) + longest_query


def read_query_sizes(program: str, environ: Mapping[str, str]) -> QuerySizes:
    """Return the sizes of a program other than blastn, with those that the environment sets.

    Raises:
        RefusedError: A variable has a value that BLAST does not accept.
    """
    usual = _CHUNK_RESIDUES.get(program, 0)
    chunk, overlap = (
        read_environ_size(name, environ, size)
        for name, size in zip(_CHUNK_VARIABLES, (usual, _OVERLAP_RESIDUES), strict=True)
    )
    pass_residues = PASS_RESIDUES[program]
    if pass_residues:
        pass_residues = read_environ_size(PASS_VARIABLE, environ, pass_residues)
    # A pass is cut if two chunks fit without their overlap. Where chunks are no longer than that, each pass counts as
    # cut.
    return QuerySizes(pass_residues, max(2 * (chunk - overlap), 1) if usual else 0)


def read_environ_size(name: str, environ: Mapping[str, str], usual: int) -> int:
    """Read a size from the environment; ``usual`` if it is not set there.

    Raises:
        RefusedError: It is no whole number above 0.
    """
    text = environ.get(name)
    if text is None or (not text.strip() and name != PASS_VARIABLE):
        return usual  # an empty BATCH_SIZE ends BLAST
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise RefusedError(f"the environment variable {name} is no whole number above 0: '{text}'", f"unset {name}")
    return int(text)


def find_chunk_variable(environ: Mapping[str, str]) -> str:
    """Return the first environment variable that sets the size of chunks; empty: none does."""
    return next((name for name in _CHUNK_VARIABLES if environ.get(name, "").strip()), "")


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
