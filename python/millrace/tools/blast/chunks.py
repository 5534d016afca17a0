"""How many residues of queries BLAST searches together, and from how many on it cuts them into chunks.

Sources, of the NCBI C++ Toolkit: ``blast_app_util.cpp`` (passes), ``split_query_aux_priv.cpp`` (chunks). Both read the
environment: ``BATCH_SIZE``, ``CHUNK_SIZE`` and ``OVERLAP_CHUNK_SIZE``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from millrace.errors import RefusedError

#: Residues of queries that share one pass over the database (seen in the archive format: one archive a pass). 0: one
#: query; one without residues then takes the next one along, and psiblast refuses the two or, at the end, crashes.
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

#: Residues of a chunk, with those that it has in common with the next one: of the programs that cut a pass. Passes of
#: translated queries and those of rpsblast are never cut.
_CHUNK_RESIDUES = {"blastp": 10_000, "psiblast": 10_000, "tblastn": 20_000}
_OVERLAP_RESIDUES = 100

#: BLAST's own variables.
PASS_VARIABLE = "BATCH_SIZE"
_CHUNK_VARIABLES = ("CHUNK_SIZE", "OVERLAP_CHUNK_SIZE")


class QuerySizes(NamedTuple):
    """What one process of BLAST does with its queries, in residues."""

    #: A pass ends with the query that brings it to so many; 0: with each.
    pass_residues: int
    #: A pass of so many is cut into chunks, and where these begin depends on all its queries. 0: none is.
    cut_residues: int

    def is_cut(self, longest_query: int) -> bool:
        """Whether a pass with a query of that length may be cut.

        >>> QuerySizes(10_000, 19_800).is_cut(9_800), QuerySizes(10_000, 19_800).is_cut(9_801)
        (False, True)
        """
        return 0 < self.cut_residues <= max(self.pass_residues - 1, 0) + longest_query


def sizes_of(program: str, environ: Mapping[str, str]) -> QuerySizes:
    """The sizes of a program other than blastn, as the environment has them.

    Raises:
        RefusedError: A variable has a value that BLAST does not take, or that makes no sense.
    """
    usual = _CHUNK_RESIDUES.get(program, 0)
    chunk, overlap = (
        read_size(name, environ, size) for name, size in zip(_CHUNK_VARIABLES, (usual, _OVERLAP_RESIDUES), strict=True)
    )
    pass_residues = PASS_RESIDUES[program]
    if pass_residues:
        pass_residues = read_size(PASS_VARIABLE, environ, pass_residues)
    # Chunks overlap, and there are two only where two fit without what they have in common. Where chunks are no longer
    # than that, each pass counts as cut.
    return QuerySizes(pass_residues, max(2 * (chunk - overlap), 1) if usual else 0)


def read_size(name: str, environ: Mapping[str, str], usual: int) -> int:
    """A size that is set in the environment.

    Raises:
        RefusedError: It is no whole number above 0.
    """
    text = environ.get(name)
    if text is None or (not text.strip() and name != PASS_VARIABLE):
        return usual  # an empty BATCH_SIZE ends BLAST
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise RefusedError(f"the environment variable {name} is no whole number above 0: '{text}'", f"unset {name}")
    return int(text)


def chunks_set(environ: Mapping[str, str]) -> str:
    """The first variable of the environment that says how long chunks are; empty: there is none."""
    return next((name for name in _CHUNK_VARIABLES if environ.get(name, "").strip()), "")
