"""Notes of `millrace plan` on an unknown program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.model import Command, InputArg, InputUse, OutputArg, OutputUse, Token
from millrace.tools.arguments import files_in_arguments, folders_not_watched, inputs_not_named
from millrace.tools.joins import words
from millrace.tools.read_whole import speaks_of


def notes(
    command: Command,
    tokens: Sequence[Token],
    inputs: Sequence[InputUse],
    outputs: Sequence[OutputUse],
    statuses: Sequence[int],
) -> tuple[str, ...]:
    """Collect the notes, in the order in which they are printed.

    Args:
        tokens: The arguments as tasks get them.
        statuses: Exit statuses that are results, not failures.
    """
    return (
        *_of_joining(Path(command.argv[0]).name, inputs, outputs, tokens),
        *_of_folders(tokens, command),
        *_of_scripts(inputs, tokens, command),
        *_of_statuses(statuses),
    )


def _of_joining(
    program: str, inputs: Sequence[InputUse], outputs: Sequence[OutputUse], tokens: Sequence[Token]
) -> tuple[str, ...]:
    notes = [f"{program} is not known to millrace: its outputs are put one after another in input order"]
    for output in outputs:
        if output.join != "concat":
            name = "standard output" if output.stdout else output.path
            notes.append(f"{name} is joined by {words(output.join)}, which must be the same in all batches")
    for each in inputs_not_named(inputs, tokens):
        notes.append(f"{each.path} is not in the arguments: each task finds its part at that relative path")
    for index, output in enumerate(outputs):
        if not output.stdout and not any(isinstance(token, OutputArg) and token.index == index for token in tokens):
            notes.append(f"{output.path} is not in the arguments: {program} is expected to write it by itself")
    if len(inputs) > 1:
        notes.append(f"{len(inputs)} inputs advance together, record by record")
    return tuple(notes)


def _of_folders(tokens: Sequence[Token], command: Command) -> tuple[str, ...]:
    return tuple(
        f"{word} is a folder: if {Path(command.argv[0]).name} reads files in it, --shared {word} has millrace notice when they change"
        for word in folders_not_watched(tokens, command)
    )


def _of_scripts(inputs: Sequence[InputUse], tokens: Sequence[Token], command: Command) -> tuple[str, ...]:
    return tuple(
        f"warning: {script.name} speaks of {each.path}: by that name tools see their part of it, not all of it"
        for index, each in enumerate(inputs)
        if any(isinstance(token, InputArg) and token.index == index for token in tokens)
        for script in files_in_arguments(tokens, command)
        if speaks_of(script, each.path)
    )


def _of_statuses(statuses: Sequence[int]) -> tuple[str, ...]:
    return tuple(
        f"exit status {status} is a result, as 0 is; the exit code of the run does not show it" for status in statuses
    )
