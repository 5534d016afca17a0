"""Whether the preliminary search of a fragment can be that of the whole search itself, and with which numbers.

``blastp`` with an E-value of at most 10 (``RESTRICTED_ALIGNMENT_WORST_EVALUE``) first aligns with gaps at some places
only, which is faster. What it then finds hangs on the score from which on a hit is kept, so a fragment either aligns
fully, or has that very score. The whole search has it from ``cbs_stretch`` times the E-value: 5 times, where the
composition of sequences counts in the second alignment. A fragment is searched without composition, so its own
E-value is taken 5 times, if that is still at most 10; else the database is said to be so much smaller that the same
score has an E-value of 10. E-values are in proportion to the size of the database (``BLAST_SpougeStoE``).

Then the hits of the preliminary search are those of the whole one, with the same scores, and none is dropped that the
whole search keeps. The second alignment starts at the same place as the first. What it drops at is so much larger
that it either goes through all that the first one went through, or has found more than the score that is asked for.

Source: NCBI C++ Toolkit 2.12, ``blast_parameters.c`` (``BlastHitSavingParametersUpdate``), ``blast_stat.c``,
``blast_gapalign.c``; and comparison of all preliminary hits.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Releases whose preliminary hits were compared.
RELEASES = ("2.12.0+",)

#: Above this E-value all is aligned fully.
RESTRICTED = 10.0

#: How many times the user's E-value the preliminary search keeps, by its ``-comp_based_stats``.
STRETCH = {"0": 1.0, "F": 1.0, "f": 1.0, "1": 1.0, "2": 5.0, "D": 5.0, "d": 5.0, "T": 5.0, "t": 5.0, "3": 5.0}

#: Options with other scores or statistics, for which that is not known.
OTHERS = frozenset(["matrix", "gapopen", "gapextend", "dbsize", "searchsp", "ungapped", "use_sw_tback", "xdrop_gap"])

#: X-dropoff of the second alignment, in bits: the first has 15, and no search asks for a score of 60 bits, which is
#: that of 2^43 residues and a query of 2^17.
XDROP_FINAL = 75


@dataclass(frozen=True)
class Preliminary:
    """What makes the preliminary search of a fragment that of the whole."""

    #: E-value of the search of a fragment.
    evalue: float
    #: Entries and residues that it is told the database has.
    counted: tuple[int, int]


def preliminary(program: str, options: dict[str, str], version: str, counted: tuple[int, int]) -> Preliminary | None:
    """The numbers for the fragments of a search; None if it is not known to be the same with any.

    Args:
        options: The user's, by name, without the dash.
        version: What the program says of itself.
        counted: Entries and residues that go into the statistics of the whole search.

    >>> preliminary("blastp", {}, "blastp: 2.12.0+", (1000, 500_000))
    Preliminary(evalue=10.0, counted=(200, 100000))
    >>> preliminary("blastp", {"evalue": "1e-3"}, "blastp: 2.12.0+", (1000, 500_000))
    Preliminary(evalue=0.005, counted=(1000, 500000))
    """
    if program != "blastp" or options.get("task", program) != program or OTHERS & options.keys():
        return None
    if not version.endswith(tuple(f" {release}" for release in RELEASES)):
        return None
    try:
        evalue = float(options.get("evalue", "10"))
        stretch = STRETCH[options.get("comp_based_stats", "2")]
    except (ValueError, KeyError):
        return None
    if not 0 < evalue <= RESTRICTED:
        return None
    if stretch * evalue <= RESTRICTED:
        return Preliminary(stretch * evalue, counted)
    n, residues = counted
    # Rounded down: then E-values are rather too small, and more is found.
    smaller = int(residues * RESTRICTED / (stretch * evalue))
    return Preliminary(RESTRICTED, (max(1, int(n * smaller / residues)), smaller)) if smaller else None
