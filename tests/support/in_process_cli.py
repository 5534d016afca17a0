"""A verb in this process, where starting one would be most of what a test costs."""

from __future__ import annotations

import click
from click.testing import CliRunner

from millrace.core.errors import MillraceError


def told(verb: click.Command, *arguments: str) -> tuple[int, str]:
    """(exit code, words) of a verb in the folder of this process."""
    done = CliRunner().invoke(verb, arguments)
    if isinstance(done.exception, MillraceError):
        return int(done.exception.status), done.stderr + str(done.exception)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stderr
