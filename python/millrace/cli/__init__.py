"""The command line: one file a verb, imported when it is used, so that ``millrace run`` starts at once."""

from __future__ import annotations

import importlib
import signal
import sys

import click

from millrace import __version__
from millrace.errors import ExitCode, MillraceError

VERBS = ("run", "plan", "status", "gather", "report", "doctor", "demo", "completion")


class Verbs(click.Group):
    """Imports the module of a verb when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"millrace.cli.{cmd_name}").command
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="millrace")
def group() -> None:
    """Any serial tool on every core you have: the same bytes, sooner, crash-safe.

    \b
    millrace run -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    """


def main() -> None:
    """Entry point: turns errors into words on standard error and an exit code."""
    # Until a run takes signals over, an interrupt is a quiet end.
    try:
        group.main(prog_name="millrace", auto_envvar_prefix="MILLRACE", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(128 + signal.SIGINT)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.REFUSED)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except MillraceError as error:
        if str(error):
            click.echo(f"millrace: {error}", err=True)
        number = getattr(error, "number", 0)
        sys.exit(128 + number if number else error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(128 + signal.SIGPIPE)
