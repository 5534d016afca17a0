"""E-value thresholds of fragment searches, so that no hit is missing that the whole search would rank."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.tools.blast.database import NotInFragmentsError

#: Default E-values of tasks; 10 for all others.
_EVALUES = {"blastp-short": 20000.0, "blastn-short": 1000.0}

#: Multiple of the user's E-value at which a fragment is searched. A preliminary E-value may be 5 times the final one
#: with composition-based statistics (``EVALUE_STRETCH``); ambiguous bases and sums of hits change it further.
_STRETCH = {"blastp": 10.0, "psiblast": 10.0}
_STRETCH_MOVED = 100.0

#: Up to this E-value blastp first aligns with gaps in restricted places only (``RESTRICTED_ALIGNMENT_WORST_EVALUE``),
#: and the hits then depend on the limit; above, it aligns fully, and a subject's score is never lower.
_RESTRICTED = 10.0
_MIN_EVALUE = 20.0

#: Multiple of the user's E-value that the preliminary stage of blastp allows in composition modes 2 and 3; and the
#: divisor of the size that a fragment's search is given for the database where that multiple is above ``_RESTRICTED``.
_PRELIMINARY, _SMALLER = 5, 6

#: First letters of values that mean these modes; any other than these and 1 means none
#: (``s_SetCompositionBasedStats``).
_ADJUSTED = frozenset("23DdTt")

#: Factor that raises a limit by less than any difference of E-values, and by more than the rounding error.
_ABOVE_ROUNDING = 1 + 1e-12

#: Options with which E-values do not depend on the size of the database as usual.
_OTHER_STATISTICS = frozenset(("dbsize", "searchsp", "ungapped"))


def parse_evalue(options: dict[str, str]) -> float:
    """Return the user's E-value, or the task's default.

    Raises:
        NotInFragments: It is not a number.
    """
    text = options.get("evalue", str(_EVALUES.get(options.get("task", ""), 10.0)))
    try:
        return float(text)
    except ValueError:
        raise NotInFragmentsError(f"-evalue {text} is not a number") from None


def choose_threshold(program: str, options: dict[str, str], residues: int, environ: Mapping[str, str]) -> list[str]:
    """Choose the options that limit the E-values of a fragment's hits, without composition-based statistics.

    Where blastp aligns with restricted gaps, a fragment gets exactly the limit of the preliminary stage of the user's
    search, so that this stage finds the same. Mostly the limit is 5 times 10, above ``_RESTRICTED``: the fragment is
    then given a sixth of the database's size, with which E-values are a sixth (``BLAST_SpougeStoE``).

    Args:
        residues: Residues of the whole database.
        environ: The user's environment, in which BLAST reads ``OLD_FSC``.

    Raises:
        NotInFragments: The user's E-value is not a number.
    """
    evalue = parse_evalue(options)
    if (
        program != "blastp" or not 0 < evalue <= _RESTRICTED or not _OTHER_STATISTICS.isdisjoint(options)
        or "OLD_FSC" in environ or residues < _SMALLER
    ):  # fmt: skip
        return ["-evalue", repr(max(evalue * _STRETCH.get(program, _STRETCH_MOVED), _MIN_EVALUE))]
    limit = _PRELIMINARY * evalue if options.get("comp_based_stats", "2")[:1] in _ADJUSTED else evalue
    if limit <= _RESTRICTED:
        return ["-evalue", repr(limit)]
    size = residues // _SMALLER
    return ["-evalue", repr(limit * size / residues * _ABOVE_ROUNDING), "-dbsize", str(size)]
