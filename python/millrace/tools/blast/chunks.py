"""Sizes of BLAST's passes over a database, and from which size on BLAST cuts a pass into chunks.

Sources, of the NCBI C++ Toolkit: ``blast_app_util.cpp`` (passes), ``split_query_aux_priv.cpp`` (chunks). Both read the
environment: ``BATCH_SIZE``, ``CHUNK_SIZE`` and ``OVERLAP_CHUNK_SIZE``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from millrace.errors import RefusedError

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
