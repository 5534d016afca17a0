"""Table of the HMMER programs: formats and places of their queries and targets."""

from __future__ import annotations

import msgspec


class HmmerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Queries and targets of one program."""

    #: Formats of the query: ``fasta``, ``hmm``. Standard input is taken for the first.
    formats: tuple[str, ...]
    #: Index of the query among the two positional arguments.
    query: int
    #: Whether the target is a pressed profile database, not sequences.
    scans: bool = False


PROGRAMS = {
    "hmmscan": HmmerProgram(formats=("fasta",), query=1, scans=True),
    "nhmmscan": HmmerProgram(formats=("fasta",), query=1, scans=True),
    "hmmsearch": HmmerProgram(formats=("hmm",), query=0),
    "phmmer": HmmerProgram(formats=("fasta",), query=0),
    "jackhmmer": HmmerProgram(formats=("fasta",), query=0),
    "nhmmer": HmmerProgram(formats=("hmm", "fasta"), query=0),
}
