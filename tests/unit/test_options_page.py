"""The documentation and the command line name the same options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from millrace.cli import VERBS, group

DOCS = Path(__file__).parents[2] / "docs"


def options(name: str, command: click.Command) -> Iterator[tuple[str, str]]:
    """(verb, longest name) of each option, also of the verbs below a verb."""
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        yield from options(f"{name} {each.name}", each)
    for option in command.params:
        if isinstance(option, click.Option):
            yield name, max(option.opts, key=len)


def test_each_option_of_each_verb_is_in_the_docs() -> None:
    text = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    commands = {verb: group.get_command(click.Context(group), verb) for verb in VERBS}
    found = {each for verb, command in commands.items() if command for each in options(verb, command)}
    assert len(found) > 100
    assert sorted(each for each in found if not re.search(rf"{each[1]}(?![\w-])", text)) == []


def test_each_verb_is_on_the_page_of_the_command_line() -> None:
    page = (DOCS / "cli.md").read_text()
    assert [
        verb for verb in VERBS if not re.search(rf"millrace {verb}\b|^`{verb}\b|^#+ .*\b{verb}\b", page, re.MULTILINE)
    ] == []


#: Commands of Millrace in blocks of code: at the begin of a line, or behind another command.
BLOCK, COMMAND = (
    re.compile(r"^```.*?\n(.*?)^```", re.M | re.S),
    re.compile(r"(?:\$ |.*(?:&&|\||;) *)?millrace ([a-z].*)$"),
)


def commands() -> Iterator[tuple[str, str]]:
    """(page, words after ``millrace``) of all that readers are shown."""
    for page in (DOCS.parent / "README.md", *DOCS.rglob("*.md")):
        for block in BLOCK.findall(page.read_text()):
            found = map(COMMAND.match, block.replace("\\\n", " ").splitlines())
            yield from ((page.name, each[1]) for each in found if each and "VERB" not in each[1])


def parse(text: str) -> None:
    """Let click take the options apart, as far as a shell would see one command.

    Raises:
        click.UsageError: There is no such verb or option.
    """
    words = shlex.shlex(text, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    left = list(words)
    ends = [number for number, word in enumerate(left) if re.fullmatch(r"[|&;<>()]+", word)]
    left = left[: ends[0]] if ends else left
    command: click.Command = group
    context = click.Context(group)
    while isinstance(command, click.Group):
        name, *left = left
        below = command.get_command(context, name)
        if below is None:
            raise click.UsageError(f"no verb {name}")
        command, context = below, click.Context(below, parent=context, info_name=name)
    command.make_parser(context).parse_args(left)


def test_documented_commands_have_known_verbs_and_options() -> None:
    shown = list(commands())
    assert len(shown) > 80
    wrong = []
    for page, text in shown:
        try:
            parse(text)
        except click.UsageError as error:
            wrong.append(f"{page}: {text}: {error.format_message()}")
    assert wrong == []


def test_unknown_verb_or_option_is_detected() -> None:
    for text in ("db split -n 32 nr", "walk -- cat", "pack --nothing | cat"):
        with pytest.raises(click.UsageError):
            parse(text)
