"""The command ``millrace completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    millrace completion bash > ~/.local/share/bash-completion/completions/millrace
    """
    from millrace.cli import group

    made = get_completion_class(shell)
    assert made is not None  # click knows the three shells of the choice
    click.echo(made(group, {}, "millrace", "_MILLRACE_COMPLETE").source())
