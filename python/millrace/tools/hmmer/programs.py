"""Table of the HMMER programs: formats and places of their queries and targets."""

from __future__ import annotations

import msgspec


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """Queries and targets of one program."""

    #: Formats of the query: ``fasta``, ``hmm``. Standard input is taken for the first.
    formats: tuple[str, ...]
    #: Index of the query among the two positional arguments.
    query: int
    #: Whether the target is a pressed profile database, not sequences.
    scans: bool = False


PROGRAMS = {
    "hmmscan": Program(formats=("fasta",), query=1, scans=True),
    "nhmmscan": Program(formats=("fasta",), query=1, scans=True),
    "hmmsearch": Program(formats=("hmm",), query=0),
    "phmmer": Program(formats=("fasta",), query=0),
    "jackhmmer": Program(formats=("fasta",), query=0),
    "nhmmer": Program(formats=("hmm", "fasta"), query=0),
}
