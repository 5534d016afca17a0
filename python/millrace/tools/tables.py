"""Programs that read tables: use of the first line as a header, and quoted fields that contain line breaks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from millrace.tools.calls import ProgramCall, has_all, has_any, has_exact_word, has_not, has_option_value, has_pattern
from millrace.tools.options import split_words

#: Programs of csvkit, xsv and qsv; all read quotes.
_CSV = r"csv(?:clean|cut|format|grep|join|json|look|sort|sql|stack|stat)|xsv|qsv"

#: Formats of lines, and those that take their place where quoted fields may contain line breaks.
QUOTED = {"lines": "csv", "lines+header": "csv+header"}

#: Flags of Miller for CSV input (``csvlite`` reads quotes too).
_MILLER_CSV = r"-c|--c2\w|--i?csv(?:lite)?"

#: Verbs of Miller whose result depends on more than one record.
_MILLER_WHOLE = split_words("""
    bar bootstrap bottom count count-distinct count-similar decimate fill-down fraction group-by group-like head histogram
    join least-frequent most-frequent nothing regularize reshape sample seqgen shuffle sort split stats1 stats2 step
    summary tac tail top uniq unsparsify
""")
#: Flags that make a verb depend on more than one record, or read its expression from a file, which is not checked.
_MILLER_FLAGS = {"cat": ("-n", "-N", "-g"), "nest": ("--ivar", "--implode"), "put": ("-f",), "filter": ("-f",)}
_MILLER_WORDS = r"\b(?:F?NR|M_NR)\b|@\w|\b(?:begin|end)\s*\{|\burand"


def has_quoted_fields(program: str, arguments: Sequence[str]) -> bool:
    """Tell whether the program accepts line breaks in quoted fields.

    >>> has_quoted_fields("csvformat", ["-D", ";"]), has_quoted_fields("mlr", ["--icsv", "cat"]), has_quoted_fields("mlr", ["--itsv", "cat"])
    (True, True, False)
    """
    if program == "mlr":
        return any(re.fullmatch(_MILLER_CSV, word) for word in arguments)
    return re.fullmatch(_CSV, program) is not None


def has_miller_whole_verb(call: ProgramCall) -> bool:
    """Tell whether the result of a verb or expression of Miller depends on more than one record."""
    given = list(call.arguments)
    return any(
        (word in _MILLER_WHOLE and not re.fullmatch(r"-[^ctjnNpIx]", before)) or after in _MILLER_FLAGS.get(word, ())
        for before, word, after in zip(["", *given], given, [*given[1:], ""], strict=False)
    ) or _has_expression_pattern(call, _MILLER_WORDS, "put", "filter")


def _has_expression_pattern(call: ProgramCall, pattern: str, *verbs: str) -> bool:
    """Tell whether ``pattern`` is found in the expression of one of these verbs of Miller."""
    return any(before in (*verbs, "-q", "-S", "-x") and re.search(pattern, word) for before, word in call.pairs)


#: Matches calls in which Miller reads a header from the first line of its input.
has_miller_header = has_all(
    has_pattern(r"^(?:-[ct]|--[ct]2\w|--i?(?:csv|tsv)(?:lite)?|--i?asv|--i?usv|--i?pprint|--p2\w)$"),
    has_not(has_exact_word("-N", "--hi", "--implicit-csv-header", "--implicit-tsv-header", "--implicit-pprint-header")),
)

#: Matches calls with input formats in which a blank line ends a table, and another header follows.
has_miller_stacked_tables = has_pattern(r"^--(?:[ctp]2\w|i?)(?:csvlite|tsvlite|asv|usv|pprint)(?:lite)?$|^--p2\w$")

_has_table_output = has_pattern(r"^(?:-[ct]|--(?:\w2[ct]|o?(?:csv|tsv)(?:lite)?|o?[au]sv(?:lite)?))$")
_has_no_output_header = has_exact_word(
    "-N", "--ho", "--headerless-csv-output", "--headerless-tsv-output", "--headerless-pprint-output"
)
#: Expressions that may give one record other columns than another.
_MILLER_CHANGES = r"[{}]|\b(?:unset|absent|map\w*|split\w+|json_decode|unformat\w*|get_\w+)\b|\$[*\[]"
_MILLER_CHANGING = split_words("altkv json-parse nest sparsify split-ax split-lines splitax template utf8-to-latin1")


def _may_change_columns(call: ProgramCall) -> bool:
    return not _MILLER_CHANGING.isdisjoint(call.arguments) or _has_expression_pattern(call, _MILLER_CHANGES, "put")


#: Matches calls in which Miller writes a header; where the columns change, it writes a blank line and another header.
has_miller_output_header = has_all(_has_table_output, has_not(_has_no_output_header))

#: Matches calls in which Miller writes a table without header, in which records may have different columns.
has_hidden_miller_changes = has_all(_has_table_output, _has_no_output_header, _may_change_columns)

has_miller_list_output = has_all(
    has_pattern(r"^(?:--o?json|-j|--jsonx|--\w2j)$"), has_not(has_exact_word("--no-jlistwrap", "--ojsonl"))
)

_COLUMNS = ("-c", "-C")

#: Matches calls in which csvcut selects columns by the names in the header.
has_csvcut_column_names = has_any(
    has_not(has_option_value(_COLUMNS, ".*")), has_option_value(_COLUMNS, r"(?![\d,:-]+$).*")
)
