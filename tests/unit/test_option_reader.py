"""How command lines are read: every option, its value and its place, in each form that a program takes."""

from __future__ import annotations

import pytest

from millrace.adapters.option_reader import CommandTokens, CommandWord, OptionTable, scan_options
from millrace.core.errors import RefusedError

#: As most programs with long options read them (getopt_long).
GETOPT = OptionTable(
    flags=frozenset({"all", "v"}), values=frozenset({"out", "size"}), optional=frozenset({"cs"}),
    aliases={"a": "all", "o": "out", "k": "size"}, dashes="tell", equals=True, shorten=True, together=True, ends=True,
)  # fmt: skip


def read(line: str, options: OptionTable = GETOPT) -> list[tuple[str, tuple[str, ...]]]:
    return [(word.name, word.values) for word in scan_options(line.split(), options, "tool")]


@pytest.mark.parametrize("typed", ["-o X", "-oX", "--out X", "--out=X", "--ou=X", "-va -oX", "-vaoX", "-vao X"])
def test_value_of_an_option_is_parsed_in_each_form(typed: str) -> None:
    argv = ["tool", *typed.split(), "in"]
    found = scan_options(argv, GETOPT, "tool")
    out = next(word for word in found if word.name == "out")
    assert out.value == "X"
    tokens = CommandTokens(argv)
    tokens.mark_output(out, 0)
    spelled = [token if isinstance(token, str) else token.prefix + "Y" for token in tokens.build_arguments()]
    assert "".join(spelled) == "".join(argv).replace("X", "Y")


@pytest.mark.parametrize("attached", [False, True])
def test_grouped_letters_are_refused_where_unsupported(attached: bool) -> None:
    options = OptionTable(flags=frozenset({"v", "all"}), values=frozenset({"0"}), dashes="tell", attached=attached)
    assert read("tool -v -0 X --all", options) == [("v", ()), ("0", ("X",)), ("all", ())]
    with pytest.raises(RefusedError):
        read("tool -all", options)


def test_operands_may_stand_anywhere() -> None:
    """Everything behind -- is an operand."""
    assert read("tool a -k 5 b -- -o --x") == [
        ("", ("a",)), ("size", ("5",)), ("", ("b",)), ("", ("-o",)), ("", ("--x",)),
    ]  # fmt: skip


def test_optional_value_needs_an_equals_sign() -> None:
    assert read("tool --cs x --cs=long") == [("cs", ()), ("", ("x",)), ("cs", ("long",))]


def test_first_operand_may_end_the_options() -> None:
    leading = OptionTable(flags=frozenset({"v"}), leading=True)
    assert read("tool -v a -v", leading) == [("v", ()), ("", ("a",)), ("", ("-v",))]


def test_unknown_names_may_be_left_to_the_program() -> None:
    """Each is read with one value."""
    blast = OptionTable(flags=frozenset({"html"}), dashes="one", equals=True, once=True, others=True)
    assert read("tool -html -new x -db=-y", blast) == [("html", ()), ("new", ("x",)), ("db", ("-y",))]
    for line, problem in (("-db x -db", "-db is given twice"), ("--db x", "option --db is not known"), ("-db", "needs a value")):  # fmt: skip
        with pytest.raises(RefusedError, match=problem):
            read(f"tool {line}", blast)


@pytest.mark.parametrize("typed", ["--nope", "-x", "-vx", "--o=3", "--a", "-o", "--out"])
def test_unknown_option_or_missing_value_is_refused(typed: str) -> None:
    options = OptionTable(flags=frozenset({"v"}), values=frozenset({"o", "out", "over"}), dashes="tell", together=True)
    with pytest.raises(RefusedError):
        read(f"tool {typed}", options)


def test_negative_numbers_are_values_of_list_options() -> None:
    many = OptionTable(many=frozenset({"at"}), attached=True, aliases={"a": "at"})
    assert read("tool --at 1 -2 -.5 -a3", many) == [("at", ("1", "-2", "-.5")), ("at", ("3",))]


def test_token_has_its_positions() -> None:
    assert scan_options(["tool", "-vk5"], GETOPT, "tool")[1] == CommandWord(
        name="size", typed="-vk5", at=1, values=("5",), value_at=1, prefix="-vk"
    )
