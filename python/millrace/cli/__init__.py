"""The command line: a module for each verb, imported on use, so that ``millrace run`` starts fast."""

from __future__ import annotations

import errno
import importlib
import io
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from itertools import pairwise
from types import FrameType
from typing import Any, NoReturn

import click

from millrace import __version__
from millrace.core.errors import ExitCode, MillraceError, RefusedError
from millrace.core.text_format import EscapingStream, escape_standard_output
from millrace.host.signals import raise_keyboard_interrupt

VERBS = (
    "run",
    "plan",
    "status",
    "gather",
    "pack",
    "unpack",
    "send",
    "receive",
    "report",
    "verify",
    "profile",
    "runs",
    "watch",
    "why",
    "slurm",
    "pbs",
    "workers",
    "store",
    "data",
    "db",
    "tool",
    "simulate",
    "doctor",
    "demo",
    "completion",
)

#: Module and name of the commands that are not ``VERB.command``.
VERB_COMMANDS = {
    "runs": "status.runs_command",
    "slurm": "queued_job.slurm_command",
    "pbs": "queued_job.pbs_command",
    "receive": "send.receive_command",
}


class VerbGroup(click.Group):
    """A click group that imports the module of a verb on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, _, name = VERB_COMMANDS.get(cmd_name, f"{cmd_name}.command").partition(".")
        command: click.Command = getattr(importlib.import_module(f"millrace.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name == "help":
            args = [*args[1:2], "--help"]
            name = args[0]
        if name in VERBS or name.startswith("-"):
            found, command, rest = super().resolve_command(ctx, args)
            if command and not isinstance(command, click.Group):
                _check_variables(f"{ctx.auto_envvar_prefix}_{name.upper()}_", command)
                _check_paths(rest, command)
            return found, command, rest
        import difflib  # only for the refusal

        if near := difflib.get_close_matches(name, VERBS, n=1):
            hint = f"did you mean '{near[0]}'?"
        elif shutil.which(name):
            hint = f"to run a tool, write: millrace run -- {shlex.join(args)}"
        else:
            hint = f"commands are {', '.join(VERBS)}"
        raise RefusedError(f"no such command '{name}'", hint)

    # click itself would end a broken pipe with exit code 1, as if something had failed.

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **more)
        except BrokenPipeError:
            exit_as_by_sigpipe()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            exit_as_by_sigpipe()


def _check_variables(prefix: str, command: click.Command) -> None:
    """Refuse an environment variable that begins with ``prefix`` and sets no option of a command."""
    known = [option.name.upper() for option in command.params if isinstance(option, click.Option) and option.name]
    for variable in os.environ:
        if variable.startswith(prefix) and (name := variable.removeprefix(prefix)) not in known:
            import difflib  # only for the refusal

            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"millrace {command.name} --help names the options"
            raise RefusedError(f"{variable}: sets no option of millrace {command.name}", hint)


def _check_paths(words: list[str], command: click.Command) -> None:
    """Refuse an option with an empty file name, which would count as not given."""
    paths = {
        name for each in command.params if isinstance(each, click.Option) and _takes_path(each) for name in each.opts
    }
    ours = words[: words.index("--")] if "--" in words else words
    for word, value in pairwise([*ours, "-"]):
        if (word in paths and not value) or (word.endswith("=") and word[:-1] in paths):
            raise RefusedError(
                f"{word.rstrip('=')}: an empty file name", "an unset variable in the command line, perhaps"
            )


def _takes_path(option: click.Option) -> bool:
    return isinstance(option.type, click.Path) or bool(
        {"FILE", "DIR"} & set(re.findall("[A-Z]+", option.metavar or ""))
    )


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="millrace")
def group() -> None:
    """Any serial tool on every core you have: the same bytes, sooner, crash-safe.

    \b
    millrace run -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    """


def main() -> None:
    """Run the command line; report errors on standard error and exit with a code of ``ExitCode``."""
    prepare_streams()
    # Until a run installs its own signal handlers, an interrupt ends the process without a message.
    sys.unraisablehook = repeat_interrupt
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, raise_keyboard_interrupt)
        group.main(prog_name="millrace", auto_envvar_prefix="MILLRACE", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(128 + signal.SIGINT)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(ExitCode.REFUSED)
    except click.ClickException as error:
        print_message(format_usage_error(error))
        sys.exit(ExitCode.REFUSED)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except MillraceError as error:
        if str(error):
            print_message(str(error))
        sys.exit(error.status)
    except BrokenPipeError:
        exit_as_by_sigpipe()
    except OSError as error:
        words = f"{os.fsdecode(error.filename or 'standard output')}: {error.strerror}" if error.errno else str(error)
        hint = "a file may not become so large here: raise the limit (ulimit -f)" if error.errno == errno.EFBIG else ""
        print_message(str(MillraceError(words, hint)))
        discard_output()
        sys.exit(ExitCode.STOPPED)
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        hint = "raise the limit of memory (ulimit -v) or of processes (ulimit -u)"
        print_message(str(MillraceError(f"no thread more may be started here: {error}", hint)))
        discard_output()
        sys.exit(ExitCode.STOPPED)
    finally:
        # During its own shutdown Python would show a traceback.
        if signal.getsignal(signal.SIGINT) is raise_keyboard_interrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def repeat_interrupt(lost: sys.UnraisableHookArgs) -> None:
    """Send SIGINT again that came while Python ran a callback, as in an import: Python drops errors of callbacks."""
    if lost.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(lost)
        return
    # Not at once: this function is a callback too.
    threading.Thread(target=_interrupt_after_callback, args=(threading.get_ident(),), daemon=True).start()


def _interrupt_after_callback(thread: int) -> None:
    """Send SIGINT to ``thread`` as soon as it has left ``repeat_interrupt``."""
    while _is_repeating(sys._current_frames()[thread]):
        time.sleep(0.001)
    signal.pthread_kill(thread, signal.SIGINT)


def _is_repeating(frame: FrameType | None) -> bool:
    """Tell whether ``repeat_interrupt`` is on the stack of a frame."""
    return frame is not None and (frame.f_code is repeat_interrupt.__code__ or _is_repeating(frame.f_back))


def print_message(text: str) -> None:
    """Print a line on standard error, with ``millrace:`` before it."""
    click.echo(f"millrace: {text}", err=True)


#: Options of other programs for the number of parallel tasks.
PARALLEL = frozenset(
    {"-j", "-p", "-t", "-n", "-P", "--jobs", "--threads", "--cpus", "--cores", "--procs", "--num-threads"}
)


def format_usage_error(error: click.ClickException) -> str:
    """Return the message of a click error in our form: lower case, no full stop, with a hint."""
    text = error.format_message().rstrip(".")
    context: click.Context | None = getattr(error, "ctx", None)
    hint = f"see {context.command_path if context else 'millrace'} --help"
    if (
        isinstance(error, click.NoSuchOption)
        and error.option_name in PARALLEL
        and context
        and _has_slots(context.command)
    ):
        text, hint = f"no such option '{error.option_name}'", "all cores are used; fewer tasks side by side: --slots N"
    return f"{text[:1].lower()}{text[1:]}\n\nhint: {hint}"


def _has_slots(command: click.Command) -> bool:
    return any("--slots" in parameter.opts for parameter in command.params)


def exit_as_by_sigpipe() -> NoReturn:
    """Exit without a message after a broken pipe, with the exit code of SIGPIPE."""
    discard_output()
    sys.exit(128 + signal.SIGPIPE)


def discard_output() -> None:
    """Redirect standard output to ``/dev/null``, so that a failing flush at exit cannot change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class ErrorIgnoringFile(io.FileIO):
    """A file that ignores write errors: a closed standard error must not end a run."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def prepare_streams() -> None:
    """Open descriptors 0 to 2 if they are closed, ignore errors of standard error, and escape control characters.

    Without this, a journal or lock could get the number of a closed descriptor (``>&-``) and then the bytes meant
    for the output. A descriptor opened here reads as an empty file, and writing to it fails.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The kernel gives the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDONLY)
            os.set_inheritable(descriptor, True)
    words = io.BufferedWriter(ErrorIgnoringFile(2, "w", closefd=False))
    sys.stderr = EscapingStream(words, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 (for as long as the process lives)
    sys.stdout = escape_standard_output()
