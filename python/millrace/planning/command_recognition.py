"""Choice of the adapter of a command: that of the tool with the program's name, if the program is that tool."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from millrace.adapters import registry
from millrace.adapters.adapter_base import ToolAdapter
from millrace.adapters.argument_paths import add_argument_files
from millrace.adapters.program_identity import is_binary_program, is_plain_wrapper, is_tool_script
from millrace.adapters.tool_environment import check_variables
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.tool_use import InputUse, OutputUse, ToolUse, UserCommand
from millrace.planning.wrapper_probe import WrapperObservation, observe_wrapper


class CommandRecognition(NamedTuple):
    """An adapter, and the command as it understood it."""

    adapter: ToolAdapter
    use: ToolUse
    #: Note on the program for the plan; empty: nothing is unusual.
    note: str = ""


def recognise_command(command: UserCommand) -> CommandRecognition:
    """Find the adapter of a command, and let it understand the command; all files that its arguments name are parts of it.

    Raises:
        RefusedError: The command cannot be computed exactly, or the program is not what ``--as`` says.
    """
    found = _find_adapter(command)
    return found._replace(use=add_argument_files(found.use, command))


def _find_adapter(command: UserCommand) -> CommandRecognition:
    """Find the adapter of a command, and let it understand the command.

    A script with the name of a known tool is run once, on an input without data, if its text passes its arguments on;
    see ``millrace.planning.wrapper_probe``.

    Raises:
        RefusedError: The command cannot be computed exactly, or the program is not what ``--as`` says.
    """
    name = command.tool
    if command.known_as:
        _check_known_as(command)
    if command.records or not registry.has_adapter(name):
        adapter = registry.find_adapter(name, records=command.records, cwd=command.cwd, environ=command.environ)
        return CommandRecognition(adapter, adapter.understand_command(command))
    adapter = registry.find_adapter(name)
    if is_binary_program(command.exe) or is_tool_script(command.exe, registry.MODULES[name]):
        return CommandRecognition(adapter, _understand_command(adapter, command))
    if command.known_as or is_plain_wrapper(command.exe, name):
        return _recognise_wrapper(adapter, command, name)
    return _recognise_unknown_program(adapter, command, f"{command.exe} is a script of your own")


def _check_known_as(command: UserCommand) -> None:
    name = command.known_as
    if command.records:
        raise RefusedError("--as and --records contradict each other", "give one of them")
    if not registry.has_adapter(name):
        raise RefusedError(
            f"--as {name}: not a tool that millrace knows by an adapter", f"these are: {', '.join(registry.MODULES)}"
        )


def _understand_command(adapter: ToolAdapter, command: UserCommand) -> ToolUse:
    use = adapter.understand_command(command)
    check_variables(use.adapter, command.environ)
    return use


def _recognise_wrapper(adapter: ToolAdapter, command: UserCommand, name: str) -> CommandRecognition:
    """Recognise a wrapper of the tool ``name``, according to its text or to ``--as``, by what it starts."""
    use = _understand_command(adapter, command)
    seen = observe_wrapper(use, command, name)
    if seen.outcome == "same" and (command.known_as or not seen.reader):
        note = f"program: {command.exe} passes its arguments on to {seen.words}, as was seen"
        is_plain = not seen.reader and (seen.is_replaced or is_plain_wrapper(command.exe, name))
        return CommandRecognition(adapter, use if is_plain else msgspec.structs.replace(use, is_doubtful=True), note)
    if not command.known_as:
        return _recognise_unknown_program(adapter, command, _explain_unknown_program(seen, command))
    if seen.outcome == "other":
        raise RefusedError(
            f"--as {name}: {command.exe} does not run {name} as it is told to: {seen.words}",
            "leave --as out, to run it as a program that millrace does not know; or name the tool itself",
        )
    note = f"program: {command.exe} is taken for {name}, as --as says; what it runs was not seen: {seen.words}"
    return CommandRecognition(adapter, msgspec.structs.replace(use, is_doubtful=True), note)


def _explain_unknown_program(seen: WrapperObservation, command: UserCommand) -> str:
    if seen.outcome == "same":
        return f"{command.exe} is a script of your own, in which {seen.reader} reads the input first"
    if seen.outcome == "other":
        return f"{command.exe} is a script of your own, and {seen.words}"
    return f"{command.exe} is a script of your own, and what it runs was not seen: {seen.words}"


def _recognise_unknown_program(adapter: ToolAdapter, command: UserCommand, why: str) -> CommandRecognition:
    """Treat a program as an unknown one, in spite of its name.

    Raises:
        RefusedError: Its inputs must be named then; the hint has the inputs and outputs of the tool of that name.
    """
    name = command.tool
    generic = registry.find_adapter("")
    note = f"program: {why}: it is treated as a program that millrace does not know, in spite of its name"
    try:
        return CommandRecognition(generic, generic.understand_command(command), note)
    except RefusedError as error:
        if command.inputs:
            raise
        proposal = _propose_options(adapter, command)
        raise RefusedError(
            f"{why}: millrace does not know it, in spite of its name, and no input is named",
            f"to have it treated as {name}, say so: --as {name}. To run it as a program of your own, say which file is cut "
            f"into records: millrace run {proposal or '--input FILE[:FORMAT]'} -- {command.argv[0]} ...",
        ) from error


def _propose_options(adapter: ToolAdapter, command: UserCommand) -> str:
    """Return options for the inputs and outputs of the tool of that name; empty: it does not understand the command."""
    with suppress(MillraceError, OSError):
        # A missing program, so that it is not started for this.
        use = adapter.understand_command(msgspec.structs.replace(command, exe=Path("/nonexistent")))
        return " ".join(
            [
                *map(_format_input_option, use.inputs),
                *(_format_output_option(each) for each in use.outputs if each.path != "-"),
            ]
        )
    return ""


def _format_input_option(item: InputUse) -> str:
    return f"--input {item.paths[0]}:{item.format}"


def _format_output_option(output: OutputUse) -> str:
    return f"--output {output.path}"
