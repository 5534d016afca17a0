"""One-liners of awk, sed, perl and jq that certainly treat each line by itself.

*Exactness.* A small positive grammar: fields and conditions on them, substitutions, no assigned variable, no line
number, no second file. Every token of a script must be listed here; any other script needs ``--independent``.
``tests/unit/test_one_liners.py`` shows with the real programs that accepted scripts give the same bytes for each part
of the lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from millrace.adapters.known_refusals import AWKS, SCRIPTED
from millrace.adapters.option_reader import split_words


class ScriptArguments(NamedTuple):
    """Scripts, operands and variables in the arguments of a command."""

    #: Texts of the scripts, in order.
    texts: list[str]
    #: Files and other words behind the script.
    operands: list[str]
    #: Names of variables that options set.
    names: set[str]


def is_script_command(program: str, arguments: Sequence[str]) -> bool:
    """Tell whether a command runs a one-line script; ``perl FILE`` is a program of the user's own.

    >>> is_script_command("sed", ["p"]), is_script_command("perl", ["-lne", "print"]), is_script_command("perl", ["annotate.pl"])
    (True, True, False)
    """
    if program != "perl":
        return program in SCRIPTED
    options = list(_list_leading_options(arguments))
    return any(re.match("-[a-zA-Z0-9]*[npeE]", word) for word in options)


def is_certainly_by_line(
    program: str, arguments: Sequence[str], inputs: Iterable[str], read_text: Callable[[str], str]
) -> bool:
    """Tell whether the output of a script for a line certainly does not depend on the lines before and behind it.

    Args:
        inputs: Paths of the files that are cut, as typed.
        read_text: Reads a script file; empty if it cannot be read.

    >>> def by_line(program: str, *arguments: str) -> bool:
    ...     return is_certainly_by_line(program, [*arguments, "in"], ["in"], lambda name: "")
    >>> by_line("awk", "$2 > 5 {print $1, $NF}"), by_line("awk", "!seen[$1]++"), by_line("awk", "{n += $2; print n}")
    (True, False, False)
    >>> by_line("sed", "-n", "s/a/b/p"), by_line("sed", "1d"), by_line("sed", "/a/,/b/d"), by_line("sed", "s//x/")
    (True, False, False, False)
    >>> by_line("perl", "-pe", "s/a+$/b/g"), by_line("perl", "-ne", "print if $. > 2")
    (True, False)
    >>> by_line("jq", "-c", "select(.n > 2) | {id, n: .n}"), by_line("jq", "-c", "[., input]")
    (True, False)
    """
    kind = program if program == "bioawk" else "awk" if program in AWKS else program.removeprefix("g")
    script = _SCRIPTS[kind](arguments, read_text)
    if script is None or not script.texts or not all(script.texts) or not set(script.operands) <= {*inputs, "-"}:
        return False
    return len(script.operands) <= 1 and all(_GRAMMARS[kind](text, script.names) for text in script.texts)


# Arguments


def _list_leading_options(arguments: Sequence[str]) -> Iterator[str]:
    for word in arguments:
        if word == "--" or not word.startswith("-"):
            return
        yield word
        if re.fullmatch("-[a-zA-Z0-9]*[eE]", word):
            return


def _parse_awk_arguments(arguments: Sequence[str], read_text: Callable[[str], str]) -> ScriptArguments | None:
    """Read ``[-F X] [-v NAME=X] [-f FILE | SCRIPT] [FILE]``."""
    texts, names, rest, left = list[str](), set[str](), list[str](), iter(arguments)
    for word in left:
        letter, value = word[:2], word[2:]
        if letter not in ("-F", "-v", "-f") or word == "--":
            rest = [word, *left] if word != "--" else list(left)
            break
        value = value or next(left, "")
        if letter == "-f":
            texts.append(read_text(value))
        elif letter == "-v":
            name = value.partition("=")[0]
            if name in _AWK_SETTINGS_READ:
                return None
            names.add(name)
    if not texts:
        texts, rest = rest[:1], rest[1:]
    return (
        None
        if any(word.startswith("-") and word != "-" for word in [*texts[:1], *rest])
        else ScriptArguments(texts, rest, names)
    )


def _parse_bioawk_arguments(arguments: Sequence[str], read_text: Callable[[str], str]) -> ScriptArguments | None:
    """Read ``[-t] [-c FORMAT]``, which gives columns names, and the arguments of awk; not ``-c header``, which reads a line."""
    names, left = set[str](), list(arguments)
    while left and left[0] != "-" and (found := re.fullmatch("-t?(?:c(.*))?", left[0])):
        left.pop(0)
        if found[1] is not None:
            columns = _BIOAWK_COLUMNS.get(found[1] or (left.pop(0) if left else ""))
            if not columns:
                return None
            names |= columns | _BIOAWK_WORDS
    parsed = _parse_awk_arguments(left, read_text)
    return parsed and parsed._replace(names=parsed.names | names)


def _parse_sed_arguments(arguments: Sequence[str], read_text: Callable[[str], str]) -> ScriptArguments | None:
    """Read ``[-nEru] [-e SCRIPT | -f FILE | SCRIPT] [FILE]``, options also behind operands."""
    texts, rest, left = list[str](), list[str](), iter(arguments)
    for word in left:
        if found := re.fullmatch("-[nEru]*(?:(e|f)(.*))?", word, re.DOTALL):
            if found[1]:
                value = found[2] or next(left, "")
                texts.append(value if found[1] == "e" else read_text(value))
            elif word == "-":
                rest.append(word)
        elif word.startswith("-"):
            return None
        else:
            rest.append(word)
    return ScriptArguments(texts, rest, set()) if texts else ScriptArguments(rest[:1], rest[1:], set())


def _parse_perl_arguments(arguments: Sequence[str], read_text: Callable[[str], str]) -> ScriptArguments | None:
    """Read ``-ne SCRIPT [FILE]``, ``-pe``, and both with ``-l``."""
    first, script, files = arguments[:1], arguments[1:2], arguments[2:]
    is_plain = first and re.fullmatch("-l?[np]l?e", first[0]) and not any(word.startswith("-") for word in files)
    return ScriptArguments(list(script), list(files), set()) if is_plain else None


def _parse_jq_arguments(arguments: Sequence[str], read_text: Callable[[str], str]) -> ScriptArguments | None:
    """Read ``[-crSMCa] [--arg NAME X] [-f FILE | SCRIPT] [FILE]``."""
    texts, names, rest, left = list[str](), set[str](), list[str](), iter(arguments)
    is_file = False
    for word in left:
        if word in ("--arg", "--argjson"):
            names.add(next(left, ""))
            next(left, "")
        elif word in ("--compact-output", "--raw-output", "--sort-keys", "--tab") or re.fullmatch("-[crSMCa]+", word):
            continue
        elif re.fullmatch("-[crSMCa]*f|--from-file", word):
            is_file = True
        elif word.startswith("-"):
            return None
        else:
            rest.append(word)
    texts = [read_text(word) if is_file else word for word in rest[:1]]
    return ScriptArguments(texts, rest[1:], names)


# awk

#: Variables for the format of lines, which BEGIN and ``-v`` may set; and those that ``-v`` must not set.
_AWK_SETTINGS = frozenset(("FS", "OFS", "ORS", "OFMT", "CONVFMT"))
_AWK_SETTINGS_READ = frozenset(
    ("RS", "NR", "FNR", "NF", "RSTART", "RLENGTH", "SUBSEP", "IGNORECASE", "FIELDWIDTHS", "FPAT")
)
_AWK_WORDS = split_words(
    "print printf next if else NF length substr index sprintf tolower toupper int sqrt exp log sin cos atan2 match"
)
_BIOAWK_WORDS = split_words("gc meanqual reverse revcomp qualcount trimq and or xor")
#: Names of columns by format (manual of bioawk 1.0).
_BIOAWK_COLUMNS = {
    "fastx": split_words("name seq qual comment"),
    "bed": split_words("chrom start end name score strand thickstart thickend rgb blockcount blocksizes blockstarts"),
    "sam": split_words("qname flag rname pos mapq cigar rnext pnext tlen seq qual"),
    "vcf": split_words("chrom pos id ref alt qual filter info"),
    "gff": split_words("seqname source feature start end score filter strand group attribute"),
}
#: Functions that change their argument: a field or the line.
_AWK_CHANGES = frozenset(("sub", "gsub"))
_AWK_TOKEN = re.compile(
    r"""[ \t\r]*(?:\#[^\n]*)?(?:
        (?P<string> "(?:[^"\\\n]|\\.)*" )
      | (?P<number> \d+\.?\d* | \.\d+ )
      | (?P<name> [A-Za-z_]\w* )
      | (?P<op> == | != | <= | >= | && | \|\| | !~ | [-+*%^]= | [-+*%^$~<>!?:,(){};\n=] | / )
    )""",
    re.VERBOSE,
)
_AWK_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?[^]/\n]*\])+/")
_AWK_BEGIN = re.compile(r'\s*BEGIN\s*\{(?P<body>(?:[^{}"]|"(?:[^"\\\n]|\\.)*")*)\}\s*;?')
_AWK_SETTING = re.compile(r'\s*(?:(?P<name>\w+)\s*=\s*)+(?:"(?:[^"\\\n]|\\.)*"|FS|OFS)\s*')


def _is_awk_by_line(text: str, names: set[str]) -> bool:
    while begin := _AWK_BEGIN.match(text):
        if not all(_is_awk_setting(each) for each in re.split(r"[;\n]", begin["body"]) if each.strip()):
            return False
        text = text[begin.end() :]
    if not text.strip():
        return False
    tokens = _tokenize_awk(text)
    return tokens is not None and _has_only_known_words(tokens, names) and _has_plain_awk_structure(tokens)


def _is_awk_setting(statement: str) -> bool:
    return _AWK_SETTING.fullmatch(statement) is not None and all(
        name in _AWK_SETTINGS for name in re.findall(r"(\w+)\s*=", re.sub(r'"(?:[^"\\\n]|\\.)*"', "", statement))
    )


def _tokenize_awk(text: str) -> list[tuple[str, str]] | None:
    """Cut a script into tokens (kind, text); None: a token is unknown."""
    found, at = [("op", "\n")], 0
    text = re.sub(r"\\\n", " ", text) + "\n"
    while text[at:].strip(" \t\r"):
        token = _AWK_TOKEN.match(text, at)
        if not token or not token.lastgroup:
            return None
        kind, at = token.lastgroup, token.end()
        if token[kind] == "/" and not _is_awk_operand(*found[-1]):
            regex = _AWK_REGEX.match(text, at - 1)
            if not regex:
                return None
            kind, at = "regex", regex.end()
        found.append((kind, token[kind] if kind in token.groupdict() else "//"))
    return [*found, ("op", "\n")]


def _is_awk_operand(kind: str, text: str) -> bool:
    return (
        kind in ("string", "number", "regex")
        or (kind == "name" and text not in ("print", "printf", "next", "else"))
        or text == ")"
    )


def _has_only_known_words(tokens: Sequence[tuple[str, str]], names: set[str]) -> bool:
    used = {text for kind, text in tokens if kind == "name"}
    given = names - _AWK_SETTINGS
    # `sub` may change a variable, which would keep its value for the next line.
    known = _AWK_WORDS | (given if used.isdisjoint(_AWK_CHANGES) else set()) | _AWK_CHANGES
    return used <= known


def _has_plain_awk_structure(tokens: Sequence[tuple[str, str]]) -> bool:
    """Tell whether only fields are assigned, no other file is written, and no pattern is a range."""
    n_braces = n_brackets = 0
    is_printing = False
    for at, ((kind, text), (_, behind)) in enumerate(pairwise(tokens)):
        if kind in ("string", "regex"):
            continue
        n_braces += (text == "{") - (text == "}")
        n_brackets += (text == "(") - (text == ")")
        if text in ("print", "printf"):
            is_printing = True
        elif text in (";", "\n", "{", "}"):
            is_printing = False
        is_outside = n_brackets == 0
        if text == "," and is_outside and not (is_printing and n_braces):
            return False  # a range of lines
        if text == ">" and is_outside and is_printing:
            return False  # another file
        if text.endswith("=") and text not in ("==", "!=", "<=", ">=") and not _is_awk_field_before(tokens, at):
            return False
        if text in ("+", "-") and behind == text:
            return False  # ++ and --
        if text == "-" and behind == "-":
            return False
    return n_braces == n_brackets == 0


def _is_awk_field_before(tokens: Sequence[tuple[str, str]], at: int) -> bool:
    """Tell whether the tokens before this one are ``$N`` or ``$NF``."""
    return at >= 2 and tokens[at - 2][1] == "$" and (tokens[at - 1][0] == "number" or tokens[at - 1][1] == "NF")


# sed


def _make_sed_pattern(end: str) -> str:
    """Return a pattern for a regular expression that ends at ``end``; not empty, which means the last one again."""
    return rf"(?:[^\\\n\[{end}]|\\.|\[\^?\]?[^]\n{end}]*\])+"


def _make_sed_substitution(end: str) -> str:
    return rf"s{end}{_make_sed_pattern(end)}{end}(?:[^\\\n{end}]|\\.)*{end}[gpIi0-9]*"


_SED_ENDS = ("/", r"\|", ",", "#", ":", "@", "!", "%", "_")
_SED_COMMAND = re.compile(
    rf"""[\s;}}]*(?:/{_make_sed_pattern("/")}/I?\s*)?!?\s*(?:
        [dp{{] | {"|".join(_make_sed_substitution(end).replace("#", chr(92) + "#") for end in _SED_ENDS)}
      | y/(?:[^\\\n/]|\\.)+/(?:[^\\\n/]|\\.)+/
    )[ \t]*(?=[;\n}}]|$|(?<={{))""",
    re.VERBOSE,
)


def _is_sed_by_line(text: str, names: set[str]) -> bool:
    at = 0
    while text[at:].strip(" \t\n;}"):
        command = _SED_COMMAND.match(text, at)
        if not command:
            return False
        at = command.end()
    return bool(text.strip())


# perl

_PERL_REGEX = r"(?:[^\\\n/|$@(]|\\[^\n0-9GKEQULu]|\$(?=[/)|])|\((?!\?)|\(\?:|\|)"
_PERL_STATEMENT = re.compile(
    rf"""\s*(?:
        s/{_PERL_REGEX}+/(?:[^\\\n/$@]|\\[nt\\/"'.]|\$[1-9&])*/[gi]*
      | (?:tr|y)/(?:[^\\\n/]|\\.)+/(?:[^\\\n/]|\\.)*/[cdsr]{{0,3}}(?<!r)
      | print(?:\s+(?:if|unless)\s+/{_PERL_REGEX}+/i?)?
      | next\s+(?:if|unless)\s+/{_PERL_REGEX}+/i?
    )\s*(?:;|$)""",
    re.VERBOSE,
)


def _is_perl_by_line(text: str, names: set[str]) -> bool:
    at = 0
    while text[at:].strip():
        statement = _PERL_STATEMENT.match(text, at)
        if not statement:
            return False
        at = statement.end()
    return bool(text.strip())


# jq

_JQ_WORDS = split_words(
    """and or not if then elif else end as select map map_values length keys values has in contains inside startswith endswith
    test match capture split join ascii_downcase ascii_upcase tostring tonumber type add any all range floor ceil round sqrt
    pow log exp min max min_by max_by unique unique_by group_by sort sort_by reverse first last nth flatten to_entries
    from_entries with_entries del path paths getpath ltrimstr rtrimstr explode implode tojson fromjson empty error true false
    null recurse abs sub gsub ascii index indices rindex limit until isnan infinite nan arrays objects numbers strings booleans
    nulls scalars iterables"""
)
_JQ_STRING = re.compile(r'"(?:[^"\\]|\\[^(]|\\\((?P<code>[^()"]*)\))*"')
_JQ_TOKEN = re.compile(
    r"\.\w+|\.|\$(?!_)\w+|@(?:csv|tsv|json|text|html|uri|sh|base64d?)\b|\d+(?:\.\d+)?|[A-Za-z_]\w*|[][{}(),|:;?=<>!+*/%-]"
)
#: Names of fields: ``{name, name}``, ``{name, name:``, and ``, name:``.
_JQ_KEYS = re.compile(r"\{(?:\s*\w+\s*,)*\s*\w+\s*(?=[}:])|(?<=,)\s*\w+\s*:(?!:)")


def _is_jq_by_line(text: str, names: set[str]) -> bool:
    codes = [code for string in _JQ_STRING.finditer(text) for code in re.findall(r"\\\(([^()\"]*)\)", string.group())]
    rest = _JQ_KEYS.sub(" . ", re.sub(r"(?<=\.)\s*\"\"", "", _JQ_STRING.sub('""', text)))
    return all(_has_only_known_jq_tokens(part.replace('""', " ")) for part in (rest, *codes)) and bool(text.strip())


def _has_only_known_jq_tokens(code: str) -> bool:
    if _JQ_TOKEN.sub("", code).strip():
        return False
    return all(token in _JQ_WORDS for token in _JQ_TOKEN.findall(code) if token[0].isalpha() or token[0] == "_")


_SCRIPTS: dict[str, Callable[[Sequence[str], Callable[[str], str]], ScriptArguments | None]] = {
    "awk": _parse_awk_arguments, "bioawk": _parse_bioawk_arguments, "sed": _parse_sed_arguments, "perl": _parse_perl_arguments, "jq": _parse_jq_arguments,
}  # fmt: skip
_GRAMMARS: dict[str, Callable[[str, set[str]], bool]] = {
    "awk": _is_awk_by_line, "bioawk": _is_awk_by_line, "sed": _is_sed_by_line, "perl": _is_perl_by_line, "jq": _is_jq_by_line,
}  # fmt: skip
