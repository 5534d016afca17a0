"""Reader of BLAST+ options: ``-name value`` or ``-name=value``, each once, without operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace.errors import RefusedError
from millrace.tools.options import CommandWord, OptionErrorTexts, OptionTable, scan_options_lazily, split_words

_PROBLEM, _HINT = "BLAST would not take these options: ", "see the program's own -help"

OPTIONS = OptionTable(
    dashes="one",
    equals=True,
    once=True,
    others=True,
    # Of all programs (``PROGRAM -xmlhelp`` of 2.12, and one known of later releases).
    flags=split_words(
        """h help version version-full version-full-xml version-full-json xmlhelp dryrun html ignore_msa_master
        lcase_masking no_greedy no_taxid_expansion parse_deflines remote save_each_pssm
        save_pssm_after_last_round show_domain_hits show_gis subject_besthit ungapped use_sw_tback"""
    ),
    complaints=OptionErrorTexts(
        unknown=(_PROBLEM + 'Unknown argument: "{name}"', _HINT),
        no_value=(_PROBLEM + 'Argument "{name}". Value is missing', _HINT),
        twice=(_PROBLEM + "Argument with this name is defined already: {name}", _HINT),
    ),
)


def make_usage_refusal(problem: str) -> RefusedError:
    """Make the error for options that BLAST itself would reject; ``problem`` is in BLAST's words."""
    return RefusedError(_PROBLEM + problem, _HINT)


def read_options(arguments: Sequence[str]) -> Iterator[CommandWord]:
    """Read the options of a command, whose first word is the program, one by one.

    Raises:
        RefusedError: BLAST itself would reject them; in its words.
    """
    for word in scan_options_lazily(arguments, OPTIONS, "BLAST"):
        if not word.name:
            raise make_usage_refusal(f"Too many positional arguments (1), the offending value: {word.typed}")
        yield word


def parse_options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the value of each option of a command, empty for a flag; see ``read_options``.

    An unknown option has a value if one follows.
    """
    return {word.name: word.value if word.values else "" for word in read_options(arguments)}
