"""What a one-liner of perl (``-n`` or ``-p``) carries from record to record. Perl cannot be read by rules: it is guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial

from millrace.tools.options import words
from millrace.tools.scripts import captures
from millrace.tools.scripts.arguments import Arguments
from millrace.tools.scripts.carried import Carried, Separator
from millrace.tools.scripts.quoted import behind

_PAIRS = {"{": "}", "(": ")", "[": "]", "<": ">"}

#: Operators on patterns and quoted text, whose text is no code.
_QUOTED = re.compile(
    r"""(?<![\w$@%&>-])(?:(?P<two>s|tr|y)|(?P<one>m|qr|qw|q))\s*(?P<end>[^\w\s;,=)])
    |(?P<regex>(?<![\w)\]}$@])\s*/)|'(?:\\.|[^'\\])*'|(?<!\S)\#[^\n]*$""",
    re.VERBOSE | re.MULTILINE,
)
_LIST = re.compile(r"(?<=[(\[,])\s*[-+\w$#@{}>]+\s*\.\.\s*[-+\w$#@{}>]+\s*(?=[)\],])")
_NAME = r"(?P<name>[A-Za-z_]\w*)"
_SUBSCRIPT = r"(?:->)?(?:\[[^\]]*\]|\{[^}]*\})"
_CHANGE = re.compile(
    rf"(?P<sigil>[$@%])(?:#|\{{?\s*\$)?{_NAME}(?:{_SUBSCRIPT})*\}}?(?:{_SUBSCRIPT})*"
    r"\s*(?:=(?![=~])|(?:\*\*|\|\||&&|//|<<|>>|[-+*/.|&^x%])=|\+\+|--|=~\s*(?:s|tr|y)\b)"
    r"|(?:\+\+|--)\s*\$#?(?P<counted>[A-Za-z_]\w*)|\b(?:push|unshift|splice|pop|shift)\b[\s(]*@\{?\s*\$*(?P<list>\w+)"
    r"|\b(?:undef|chop|chomp)\b[\s(]*[$@%](?P<undone>[A-Za-z_]\w*)|\bdelete\b[\s(]*[$@](?P<deleted>[A-Za-z_]\w*)"
)
#: A part in braces, with two more in each other, and what is given to a variable, up to the end of the statement.
_BLOCK = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_VALUE = rf"(?P<value>(?:[^;{{}}]|{_BLOCK})*)"
#: What stands on the left of ``($a, $b) = ...``.
_LEFT = re.compile(r"\((?P<names>[^()=]*)\)\s*=(?![=~])")
#: To ask for a part of an element makes the element.
_NESTED = re.compile(rf"\${_NAME}{_SUBSCRIPT}{_SUBSCRIPT}")
#: What is changed of ``$_`` in a loop is changed of the list.
_LOOPED = re.compile(rf"\b(?:for|foreach|map|grep)\b[^;{{}}@]*@{_NAME}")
_CHANGES_LOOPED = re.compile(r"\$_\s*(?:\+\+|--|[-+*/.|&x]?=(?![=~]))|\b(?:s|tr|y|chomp|chop)\b")
#: Perl's own variables that say how it writes, and what is written by each.
_HOW = {",": r"\b(?:print|say)\b", "\\": r"\b(?:print|say)\b", '"': '"', ";": r"[{\[]", "/": ""}
_HOW_SET = re.compile(r"(?<!\\)\$(?P<name>[,\\\";/])\s*\.?=(?![=~>])(?P<value>[^;{}]*)")
_OWN = frozenset(("_", "F"))
_IS_SOMETIMES = re.compile(r"\b(?:if|unless|for|foreach|while|and|or)\b")
_IS_SOMETIMES_BEHIND = re.compile(r"\b(?:if|unless|for|foreach|while|until)\b")
#: By these anything may be kept that no name shows: other handles, globs, names that are made, code that is text.
_UNSEEN = re.compile(
    r"\b(?:select|binmode|open|close)\b(?!\s*(?:\}|=>))|\beval\b(?!\s*\{)|(?<![\w)\]}*])\*\w+\s*=(?![=~])|\bundef\s*&|[$@%]\{\s*[\"']"
    r"|\$_\{[^}]*\}\s*[^\w\s;=]{0,3}=(?![=~])|\$(?:0|\^\w)\s*[^\w\s;=]{0,3}=(?![=~])"
)
#: What is changed is one of several, as in ``($a ? $b : $c) = 1``; in ``($d = $a ? $b : $c) =~ s/x/y/`` it is ``$d``.
_CHOSEN = re.compile(
    r"\((?P<test>(?:[^()]|\([^()]*\))*)\?[^()?]*:[^()]*\)\s*(?:[^\w\s;=<>!]{0,3}=(?![=~])|\+\+|--|=~\s*(?:s|tr|y)\b)"
)
_ASSIGNS = re.compile(r"(?<![=!<>])=(?![=~])")
#: Whether a line is the first, as a test by itself.
_TEST_OF_LINE_1 = re.compile(
    r"(?P<before>(?:^|[({;&|,]|\b(?:if|unless|and|or))\s*)\$\.\s*(?:(?:==|<=|!=|>)\s*1|(?:<|>=)\s*2)"
    r"(?=\s*(?:$|[)};&|?,]|(?:and|or)\b))"
)
#: Stands for ``m?...?``.
_ONCE = "FOUND_ONCE"
#: Words behind which a ``/`` begins a pattern.
_BEFORE_PATTERN = frozenset(
    words("if unless while until and or not xor x eq ne lt gt le ge cmp split grep map return print say when")
)
_STOPS = re.compile(
    r"\b(?:last|exit|eof|readline|getc|state|redo|each|pos|(?:sys)?read)\b|<(?:STDIN|ARGV|\$?\w*)>|(?:%F\b|\$F\{)|\$_\["
)
#: A pattern that runs code, or is the last one that was found.
_OF_PATTERNS = re.compile(
    r"\(\?\??\{|(?<![\w$@%&>-])s//|(?:(?<!split)\(|=~|\b(?:if|unless|and|or)|&&|\|\|)\s*//|\$\^N|\^CAPTURE|[@%][-+](?=[\s\\;,)\]\"'])"
)
#: The number of the line, by all its names.
_NUMBER = re.compile(r"(?<![\\$])\$\.|\$(?:NR|INPUT_LINE_NUMBER)\b|\binput_line_number\b|\btell\b")
#: What BEGIN may not do: read records of the input, or define what keeps its variables.
_IN_BEGIN = re.compile(r"<(?:STDIN|ARGV)?>|\breadline\s*(?:\(\s*\)|;|\}|\*?STDIN)|\b(?:getc|eof|sub)\b")


def carried(code: str, below_header: bool = False) -> Carried | None:
    """What the code carries from line to line; None: nothing is seen.

    Args:
        below_header: Each part begins with the first line of the input.

    >>> carried('s/^(..)/$1 /; print if /x/')
    >>> carried('my $n = () = /a/g; print "$n\\n"')
    >>> carried('print if $. == 1 || /a/', below_header=True)
    >>> for code in ('print if /a/ .. /b/', '$n++; print if $n % 2', 'last if /x/; print'):
    ...     print(carried(code).why)
    has a range of conditions, which goes over lines
    keeps $n from one line to the next
    has last: what follows depends on the lines before
    """
    if below_header:
        code = _first_line_known(code)
    if found := counted(code):
        return found
    if pattern := _OF_PATTERNS.search(code):
        return Carried(f"has {pattern.group()}, which depends on what was found before")
    code = _bare(re.sub(r"(?<=\w)::(?=\w)", "_", re.sub(r"(?<=[$@%])(?:main)?::(?=\w)", "", code)))
    while begun := re.search(r"\bBEGIN\s*\{", code):
        end = _behind(code, begun.end(), "{")
        if kept := _IN_BEGIN.search(code[begun.start() : end]):
            return Carried(f"has {kept.group()} in BEGIN, by which anything may be kept from one line to the next")
        code = code[: begun.start()] + code[end:]
    unquoted = re.sub(r'"[^"]*"', '""', code)
    if ".." in _LIST.sub("", unquoted):
        return Carried("has a range of conditions, which goes over lines")
    if stops := _STOPS.search(code):
        return Carried(
            f"has {stops.group()}: what follows depends on the lines before", stops.group() not in ("last", "exit")
        )
    if re.search(r"\brand\b", code):
        return Carried("has rand: what it draws depends on the lines before", is_local=False)
    if unseen := _UNSEEN.search(unquoted):
        return Carried(f"has {unseen.group().rstrip(' =')}, by which anything may be kept from one line to the next")
    if any(not _ASSIGNS.search(chosen["test"]) for chosen in _CHOSEN.finditer(unquoted)):
        return Carried("changes one of several variables, which may be kept from one line to the next")
    if _ONCE in code:
        return Carried("has m?...?, which is found once", is_local=False)
    if captured := captures.kept(code):
        return Carried(f"keeps {captured} from one line to the next")
    for name in _how_changed(code):
        return Carried(f"keeps ${name} from one line to the next")
    is_fresh = cache(partial(_is_fresh, code))
    for sigil, name, is_counted in _changed(code):
        is_read = is_counted or len(re.findall(_use_of(name), code)) > 1
        if name not in _OWN and is_read and not is_fresh(name):
            return Carried(f"keeps {sigil}{name} from one line to the next")
    return None


def _first_line_known(code: str) -> str:
    """The code with 1 in the place of each test of the first line, if the line's number is in nothing else."""
    tests = _TEST_OF_LINE_1.findall(re.sub(r'"[^"]*"', '""', _bare(code)))
    is_told = len(tests) == len(_NUMBER.findall(code)) and not re.search(r"\bqq\b|<<", code)
    return _TEST_OF_LINE_1.sub(r"\g<before>1", code) if is_told else code


def _changed(code: str) -> Iterator[tuple[str, str, bool]]:
    """Variables that are given a value, and whether it comes from the one before."""
    for change in _CHANGE.finditer(code):
        name = next(filter(None, map(change.group, ("name", "counted", "list", "undone", "deleted"))))
        sigil = change["sigil"] or ("@" if change["list"] else "$")
        yield sigil, name, _is_told(change, code[: change.start()])
    for left in _LEFT.finditer(code):
        for sigil, name in re.findall(r"([$@%])([A-Za-z_]\w*)", left["names"]):
            yield sigil, name, False
    for nested in _NESTED.finditer(code):
        yield "%", nested["name"], False
    if _CHANGES_LOOPED.search(code):
        for looped in _LOOPED.finditer(code):
            yield "@", looped["name"], False


def _is_told(change: re.Match[str], before: str) -> bool:
    """Whether something reads a variable where it is changed, or under another name."""
    text = change.group()
    is_compound = re.search(r"[^\w\s\]}]=$", text) and before.rstrip()[-1:] not in ("", ";", "{", "}")
    return (
        "++" in text
        or "--" in text
        or bool(change["deleted"])
        or bool(is_compound)
        or re.match(r"[$@%]\{?\s*\$", text) is not None
    )


def _how_changed(code: str) -> Iterator[str]:
    """Variables of perl's own that are set for some records only, or behind what is written."""
    code = re.sub(r'(?<!\$)"[^"]*(?<!\$)"', '""', code)
    for found in _HOW_SET.finditer(code):
        before = code[: found.start()]
        if re.search(r"\blocal\s*$", before):
            continue
        is_first = before.rstrip()[-1:] in ("", ";", "=") and not re.search(_HOW[found["name"]], before)
        if not is_first or before.count("{") != before.count("}") or _IS_SOMETIMES.search(found["value"]):
            yield found["name"]


def counted(code: str) -> Carried | None:
    """What the code, with or without ``-n``, counts or sums up; None: nothing is seen.

    >>> [counted(code).why for code in ('print "$. $_"', 'END { print $n }')], counted("s/x$/./")
    (['counts lines with $.', 'has END, which is for the whole input'], None)
    """
    if found := _NUMBER.search(code):
        return Carried(f"counts lines with {found.group()}", is_local=False, is_counted=True)
    if re.search(r"\bEND\s*\{", code):
        return Carried("has END, which is for the whole input", is_local=False, is_counted=True)
    return None


def separators(code: str) -> Iterator[Separator]:
    r"""What BEGIN gives to ``$/``, but for the end of a line.

    >>> list(separators(r'BEGIN { $/ = "\0" } print')), list(separators(r'BEGIN { $/ = "\n" } print'))
    ([Separator(word='$/ = "\\0"', is_nul=True)], [])
    """
    for found in re.finditer(r"\bBEGIN\s*\{[^}]*?(?:\$/\s*=(?!~)\s*(?P<value>[^;}]*)|\bundef[\s(]*\$/)", code):
        value = (found["value"] or "undef").strip()
        if value not in (r'"\n"', r'"\012"'):
            yield Separator(f"$/ = {value}", value in (r'"\0"', r'"\000"', r'"\x00"'))


def separators_of_options(given: Arguments) -> Iterator[Separator]:
    """What ``-0`` says, but for the end of a line."""
    for letter, value in given.options:
        if letter == "g":
            yield Separator("-g")
        elif letter == "0":
            is_hex = value[:1] in ("x", "X")
            number = int(value[1:] or "0", 16) if is_hex else int(value or "0", 8)
            if number != ord("\n"):
                yield Separator(f"-0{value}", not number and (is_hex or not value))  # -00: paragraphs


def _is_fresh(code: str, name: str) -> bool:
    """Whether a variable is declared for the record, or first given a value by a statement that runs for each."""
    uses = [use.start() for use in re.finditer(_use_of(name), code)]
    if not uses:
        return False
    first = uses[0]
    declared = re.search(rf"\bmy\b\s*(?:\([^)]*)?[$@%]{name}\b|\b(?:for|foreach)\s+(?:my\s+)?\${name}\b\s*\(", code)
    if declared and declared.start() < first:
        if _is_sometimes(code, declared) and sum(name == each for _, each, _ in _changed(code)) > 1:
            return False
        if "}" not in code[declared.end() : uses[-1]]:
            return True  # all of them in one block
        rest = code[_scope_end(code, declared) :]  # where the name is another variable's
        return not re.search(_use_of(name), rest) or _is_fresh(rest, name)
    statement = re.match(rf"[$@%]{name}\s*=(?![=~]){_VALUE}", code[first:])
    before = code[:first]
    if left := next((left for left in _LEFT.finditer(code) if left.start() < first < left.end()), None):
        before, statement = code[: left.start()], re.compile(_VALUE).match(code, left.end())
    return bool(
        statement
        and before.rstrip()[-1:] in ("", ";")
        and before.count("{") == before.count("}")
        and not _IS_SOMETIMES.search(re.sub(_BLOCK, "", statement["value"]))
        and not re.search(_use_of(name), statement["value"])
    )


def _use_of(name: str) -> str:
    """A pattern for a variable, its last index, or what it refers to."""
    return rf"[$@%]#?{{?\s*\$*{name}\b"


def _scope_end(code: str, declared: re.Match[str]) -> int:
    """Where a variable declared by ``my`` ends: with its block, or with the one behind the condition or loop that declares it."""
    head = re.search(r"\b(?:if|elsif|unless|while|until|for|foreach)\s*\((?=[^{}]*$)", code[: declared.start()])
    if head or declared.group().startswith("for"):
        closed = _behind(code, head.end() if head else declared.end(), "(")
        while block := re.compile(r"\s*(?:else\s*|elsif\s*\([^{}]*\)\s*)?\{").match(code, closed):
            closed = _behind(code, block.end(), "{")
        if closed > declared.end() and code[closed - 1 : closed] == "}":
            return closed
    return _behind(code, declared.end(), "{")


def _is_sometimes(code: str, declared: re.Match[str]) -> bool:
    """Whether ``my`` is run for some records only: for the others, what is given to the variable elsewhere stays."""
    before = re.split(r"[;{}]", code[: declared.start()])[-1]
    behind_it = code[declared.end() :].partition(";")[0]
    return bool(re.search(r"\b(?:and|or)\b|&&|\|\||//|\?", before) or _IS_SOMETIMES_BEHIND.search(behind_it))


def _bare(code: str) -> str:
    """The code with a word in the place of each pattern and quoted text; of what is put in, variables stay."""
    found, at = "", 0
    while match := _QUOTED.search(code, at):
        found += code[at : match.start()]
        if match["regex"] and _is_operand(found):
            at = match.end() + code.startswith("/", match.end())  # a division, or //
            found += code[match.start() : at]
            continue
        end = match["end"] or ("/" if match["regex"] else "")
        at = match.end()
        if end:
            middle = at = _behind(code, at, end)
            if match["two"]:
                if end in _PAIRS:
                    middle += len(code[at:]) - len(code[at:].lstrip()) + 1
                at = _behind(code, middle, code[middle - 1 : middle])  # nothing stands there in code that is cut short
            flags = at
            while at < len(code) and code[at].isalpha():
                at += 1
            is_code = match["two"] == "s" and "e" in code[flags:at]
            inner = re.sub(r"\$[1-9&]", "$_", code[middle : flags - 1]) if is_code else ""
            is_match = (match["regex"] or match["one"] == "m") and not re.search(r"\bsplit[\s(]*$", found)
            is_once = match["one"] == "m" and end == "?" and not found.count('"') % 2
            word = _ONCE if is_once else captures.MATCH if is_match else "Q"
            found += f" {match['two'] or ''} {captures.MATCH if match['two'] == 's' else word} {inner} "
    return re.sub(r"(?<!\$)\\.", "", found + code[at:])


def _is_operand(before: str) -> bool:
    """Whether what stands before a ``/`` can be divided."""
    word = re.search(r"([$@%&]?)(\w+|[)\]}])\s*$", before)
    return word is not None and (bool(word[1]) or word[2] not in _BEFORE_PATTERN)


def _behind(code: str, at: int, first: str) -> int:
    """The place behind what closes a part that began with ``first``."""
    return behind(code, at, _PAIRS.get(first, first), first)
