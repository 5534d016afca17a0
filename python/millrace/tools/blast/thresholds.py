"""Which E-values the hits of a fragment may have, so that none is missing that the whole search would rank."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.tools.blast.database import NotInFragments

#: E-values that tasks have by themselves; 10 for all others.
_EVALUES = {"blastp-short": 20000.0, "blastn-short": 1000.0}

#: How many times the user's E-value a fragment's may be. A preliminary E-value may be 5 times the final one where
#: the composition of sequences counts (``EVALUE_STRETCH``); ambiguous bases and sums of hits move it further.
_STRETCH = {"blastp": 10.0, "psiblast": 10.0}
_STRETCH_MOVED = 100.0

#: Up to this E-value blastp first aligns with gaps at some places only (``RESTRICTED_ALIGNMENT_WORST_EVALUE``), and then
#: finds more or less as the limit happens to lie; above, it aligns fully, and what a subject scores is never less.
_RESTRICTED = 10.0
_LEAST_EVALUE = 20.0

#: How many times the user's E-value the preliminary stage of blastp allows in composition modes 2 and 3, and by which
#: part of its size the database of a fragment is called smaller where that makes an E-value above `_RESTRICTED`.
_PRELIMINARY, _SMALLER = 5, 6

#: First letters that mean these modes; any other than these and 1 means none (``s_SetCompositionBasedStats``).
_ADJUSTED = frozenset("23DdTt")

#: What moves a limit by less than any E-value could differ, and by more than the rounding of numbers.
_ABOVE_ROUNDING = 1 + 1e-12

#: Options with which it is not the size of the database alone by which E-values differ.
_OTHER_STATISTICS = frozenset(("dbsize", "searchsp", "ungapped"))


def evalue_of(options: dict[str, str]) -> float:
    """The user's E-value.

    Raises:
        NotInFragments: It is not a number.
    """
    text = options.get("evalue", str(_EVALUES.get(options.get("task", ""), 10.0)))
    try:
        return float(text)
    except ValueError:
        raise NotInFragments(f"-evalue {text} is not a number") from None


def threshold(program: str, options: dict[str, str], residues: int, environ: Mapping[str, str]) -> list[str]:
    """The options of a fragment that say what is worth to be told, without the composition of sequences.

    Where blastp aligns with restricted gaps, a fragment has the very limit of the preliminary stage of the user's
    search, so that this stage does in it what it does there. Mostly that is 5 times 10: fragments say the same of a
    database of a sixth of the size, in which E-values are a sixth (``BLAST_SpougeStoE``).

    Args:
        residues: Of the whole database.
        environ: Of the user; BLAST reads ``OLD_FSC`` in it.
    Raises:
        NotInFragments: The user's E-value is not a number.
    """
    evalue = evalue_of(options)
    if (
        program != "blastp" or not 0 < evalue <= _RESTRICTED or not _OTHER_STATISTICS.isdisjoint(options)
        or "OLD_FSC" in environ or residues < _SMALLER
    ):  # fmt: skip
        return ["-evalue", repr(max(evalue * _STRETCH.get(program, _STRETCH_MOVED), _LEAST_EVALUE))]
    limit = _PRELIMINARY * evalue if options.get("comp_based_stats", "2")[:1] in _ADJUSTED else evalue
    if limit <= _RESTRICTED:
        return ["-evalue", repr(limit)]
    size = residues // _SMALLER
    return ["-evalue", repr(limit * size / residues * _ABOVE_ROUNDING), "-dbsize", str(size)]
