"""Rules for calls of programs that depend on the whole input, for ``known_refusals``.

Among them (``millrace.adapters.known_refusals`` has all): records of Primer3's input (Boulder-IO) that set more than
their own sequence (manual of 2.6.1), and programs that read tables and use the first line as a header, or read quoted
fields that contain line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from millrace.adapters.option_reader import split_words


class ProgramCall(NamedTuple):
    """A program with its arguments, joins and inputs."""

    program: str
    arguments: Sequence[str]
    #: Names of the joins that the user names.
    joins: Collection[str]
    #: Finds the record formats of its inputs; may read files.
    formats: Callable[[], Collection[str]] = frozenset
    #: Reads a file that an argument names; empty if it cannot be read.
    read: Callable[[str], str] = lambda name: ""

    @property
    def verbs(self) -> list[str]:
        """Words that may be the sub-command: the first one that is no option, and the next where it may be an option's value."""
        found = list[str]()
        for before, word in self.pairs:
            if not word.startswith("-") and not word.isdigit():
                found.append(word)
                if not before.startswith("-"):
                    break
        return found

    @property
    def pairs(self) -> Iterator[tuple[str, str]]:
        """Each argument with the one before it: (before, argument); empty before the first."""
        return pairwise(["", *self.arguments])


class CallRule(NamedTuple):
    """A way to call a program that depends on the whole input."""

    #: Completes "PROGRAM ...".
    why: str
    #: The alternative that works.
    instead: str
    when: Callable[[ProgramCall], bool] = lambda call: True
    #: With these joins, and an input of one of these formats, the call is exact; both empty: it never is.
    joins: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()

    def should_refuse(self, call: ProgramCall) -> bool:
        """Tell whether the rule refuses ``call``, as it depends on the whole input."""
        return self.when(call) and not ((self.joins or self.formats) and self._has_joins_and_formats(call))

    def _has_joins_and_formats(self, call: ProgramCall) -> bool:
        return self.joins.issubset(call.joins) and not (self.formats and self.formats.isdisjoint(call.formats()))


# Conditions of rules: each function makes a predicate of calls


def has_verb(*names: str) -> Callable[[ProgramCall], bool]:
    """Match calls with one of these sub-commands."""
    return lambda call: not frozenset(names).isdisjoint(call.verbs)


def has_option(*names: str, others: Sequence[str] = ()) -> Callable[[ProgramCall], bool]:
    """Match calls with one of these options: a letter also in a group (``-xvf``), a long one also abbreviated.

    Args:
        others: Other long options of the program that would look like abbreviations of these.
    """
    letters = "".join(name[1] for name in names if len(name) == 2)
    attached = f"-[A-Za-z]*[{letters}]" if letters else None

    def given(call: ProgramCall) -> bool:
        return any(
            word.partition("=")[0] in names
            or (word.partition("=")[0] not in others and is_abbreviated_option(word.partition("=")[0], names))
            or (attached is not None and re.match(attached, word) is not None)
            for word in call.arguments
        )

    return given


def is_abbreviated_option(word: str, names: Sequence[str]) -> bool:
    """Tell whether GNU programs take ``word`` as an abbreviation of one of the long options.

    >>> is_abbreviated_option("--max", ("-m", "--max-count")), is_abbreviated_option("--m", ("--max-count",)), is_abbreviated_option("--", ("--x",))
    (True, True, False)
    """
    return word != "--" and word.startswith("--") and any(name.startswith(word) for name in names)


def has_exact_word(*names: str) -> Callable[[ProgramCall], bool]:
    """Match calls with one of these words, alone or before ``=``."""
    return lambda call: any(word in names or word.partition("=")[0] in names for word in call.arguments)


def has_operand(*takes_a_word: str) -> Callable[[ProgramCall], bool]:
    """Match calls with an argument that is neither an option nor the value of one of these options."""
    return lambda call: any(not word.startswith("-") and before not in takes_a_word for before, word in call.pairs)


def has_pattern(pattern: str) -> Callable[[ProgramCall], bool]:
    """Match calls with an argument in which ``pattern`` is found."""
    return lambda call: any(re.search(pattern, word) for word in call.arguments)


def has_pattern_of_pair(pattern: str) -> Callable[[ProgramCall], bool]:
    """Match calls with an argument, or an option and the argument behind it with a blank between, in which ``pattern`` is found."""
    return lambda call: any(
        re.search(pattern, word) or re.search(pattern, f"{before} {word}") for before, word in call.pairs
    )


def has_all(*conditions: Callable[[ProgramCall], bool]) -> Callable[[ProgramCall], bool]:
    return lambda call: all(condition(call) for condition in conditions)


def has_any(*conditions: Callable[[ProgramCall], bool]) -> Callable[[ProgramCall], bool]:
    return lambda call: any(condition(call) for condition in conditions)


def has_not(condition: Callable[[ProgramCall], bool]) -> Callable[[ProgramCall], bool]:
    return lambda call: not condition(call)


def has_option_value(names: tuple[str, ...], pattern: str) -> Callable[[ProgramCall], bool]:
    """Match calls in which the word behind one of these options matches ``pattern`` as a whole."""
    return lambda call: any(before in names and re.fullmatch(pattern, word) is not None for before, word in call.pairs)


#: Options whose value is the next word.
_WITH_VALUE = re.compile(r"--?(default_version|format_output|io_version|p3_settings_file|output|error)$")

#: Lines without effect on other records: a tag of the sequence, a comment, the end of the record, an empty line.
_OF_RECORD = re.compile(r"SEQUENCE_\w+=|P3_COMMENT=|=?\s*$")


def has_global_settings(call: ProgramCall) -> bool:
    """Tell whether a record may set global tags, which hold for later records too; true if the input is unreadable.

    >>> def of(text: str, *arguments: str) -> bool:
    ...     return has_global_settings(ProgramCall("primer3_core", arguments, (), read=lambda name: text))
    >>> of("SEQUENCE_ID=a\\nSEQUENCE_TEMPLATE=ACGT\\n=\\n"), of("SEQUENCE_ID=a\\nPRIMER_NUM_RETURN=1\\n=\\n", "in.txt"), of("")
    (False, True, True)
    """
    names = [
        word for before, word in call.pairs
        if not word.startswith("-") and not _WITH_VALUE.match(before)
    ]  # fmt: skip
    texts = [call.read(name) for name in names or ["-"]]
    return not all(texts) or any(not _OF_RECORD.match(line) for text in texts for line in text.splitlines())


#: Programs of csvkit, xsv and qsv; all read quotes.
_CSV = r"csv(?:clean|cut|format|grep|join|json|look|sort|sql|stack|stat)|xsv|qsv"

#: Formats of lines, and those that take their place where quoted fields may contain line breaks.
QUOTED = {"lines": "csv", "lines+header": "csv+header"}

#: Flags of Miller for CSV input (``csvlite`` reads quotes too).
_MILLER_CSV = r"-c|--c2\w|--i?csv(?:lite)?"

#: Verbs of Miller whose result depends on more than one record.
_MILLER_WHOLE = split_words("""
    bar bootstrap bottom count count-distinct count-similar decimate fill-down fraction gap group-by group-like head histogram
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
