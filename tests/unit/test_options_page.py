"""The documentation and the command line name the same options."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import click

from millrace.cli import VERBS

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
    found = {each for verb in VERBS for each in options(verb, importlib.import_module(f"millrace.cli.{verb}").command)}
    assert len(found) > 100
    assert sorted(each for each in found if not re.search(rf"{each[1]}(?![\w-])", text)) == []


def test_each_verb_is_on_the_page_of_the_command_line() -> None:
    page = (DOCS / "cli.md").read_text()
    assert [
        verb for verb in VERBS if not re.search(rf"millrace {verb}\b|^`{verb}\b|^#+ .*\b{verb}\b", page, re.MULTILINE)
    ] == []
