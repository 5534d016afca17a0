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
def test_a_value_is_found_and_marked_in_each_form(typed: str) -> None:
    argv = ["tool", *typed.split(), "in"]
    found = scan_options(argv, GETOPT, "tool")
    out = next(word for word in found if word.name == "out")
    assert out.value == "X"
    tokens = CommandTokens(argv)
    tokens.mark_output(out, 0)
    spelled = [token if isinstance(token, str) else token.prefix + "Y" for token in tokens.build_arguments()]
    assert "".join(spelled) == "".join(argv).replace("X", "Y")


@pytest.mark.parametrize("attached", [False, True])
def test_letters_need_not_stand_together(attached: bool) -> None:
    options = OptionTable(flags=frozenset({"v", "all"}), values=frozenset({"0"}), dashes="tell", attached=attached)
    assert read("tool -v -0 X --all", options) == [("v", ()), ("0", ("X",)), ("all", ())]
    with pytest.raises(RefusedError):
        read("tool -all", options)


def test_operands_stand_anywhere_and_all_is_one_behind_two_dashes() -> None:
    assert read("tool a -k 5 b -- -o --x") == [
        ("", ("a",)), ("size", ("5",)), ("", ("b",)), ("", ("-o",)), ("", ("--x",)),
    ]  # fmt: skip


def test_an_optional_value_stands_behind_an_equals_sign_alone() -> None:
    assert read("tool --cs x --cs=long") == [("cs", ()), ("", ("x",)), ("cs", ("long",))]


def test_the_first_operand_may_end_the_options() -> None:
    leading = OptionTable(flags=frozenset({"v"}), leading=True)
    assert read("tool -v a -v", leading) == [("v", ()), ("", ("a",)), ("", ("-v",))]


def test_a_program_may_judge_other_names_itself_and_take_each_once() -> None:
    blast = OptionTable(flags=frozenset({"html"}), dashes="one", equals=True, once=True, others=True)
    assert read("tool -html -new x -db=-y", blast) == [("html", ()), ("new", ("x",)), ("db", ("-y",))]
    for line, problem in (("-db x -db", "-db is given twice"), ("--db x", "option --db is not known"), ("-db", "needs a value")):  # fmt: skip
        with pytest.raises(RefusedError, match=problem):
            read(f"tool {line}", blast)


@pytest.mark.parametrize("typed", ["--nope", "-x", "-vx", "--o=3", "--a", "-o", "--out"])
def test_what_is_not_known_or_has_no_value_is_refused(typed: str) -> None:
    options = OptionTable(flags=frozenset({"v"}), values=frozenset({"o", "out", "over"}), dashes="tell", together=True)
    with pytest.raises(RefusedError):
        read(f"tool {typed}", options)


def test_numbers_below_zero_are_values_of_options_that_take_many() -> None:
    many = OptionTable(many=frozenset({"at"}), attached=True, aliases={"a": "at"})
    assert read("tool --at 1 -2 -.5 -a3", many) == [("at", ("1", "-2", "-.5")), ("at", ("3",))]


def test_a_word_knows_its_places() -> None:
    assert scan_options(["tool", "-vk5"], GETOPT, "tool")[1] == CommandWord(
        name="size", typed="-vk5", at=1, values=("5",), value_at=1, prefix="-vk"
    )
