"""What differs between the programs of HMMER."""

from __future__ import annotations

import msgspec


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the programs."""

    #: Formats of the query: ``fasta``, ``hmm``; the first is taken for standard input.
    formats: tuple[str, ...]
    #: Which of the two positional arguments the query is.
    query: int
    #: Whether the other one is a pressed profile database instead of sequences.
    scans: bool = False


PROGRAMS = {
    "hmmscan": Program(formats=("fasta",), query=1, scans=True),
    "nhmmscan": Program(formats=("fasta",), query=1, scans=True),
    "hmmsearch": Program(formats=("hmm",), query=0),
    "phmmer": Program(formats=("fasta",), query=0),
    "jackhmmer": Program(formats=("fasta",), query=0),
    "nhmmer": Program(formats=("hmm", "fasta"), query=0),
}
