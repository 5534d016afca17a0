"""Notes of `millrace plan` on an unknown program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.model import ArgumentToken, InputArg, InputUse, OutputArg, OutputUse, UserCommand
from millrace.tools.arguments import list_argument_files, list_unnamed_inputs, list_unwatched_folders
from millrace.tools.joins import describe_join
from millrace.tools.read_whole import is_path_in_script


def collect_generic_notes(
    command: UserCommand,
    tokens: Sequence[ArgumentToken],
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
        *_describe_joins(Path(command.argv[0]).name, inputs, outputs, tokens),
        *_describe_folders(tokens, command),
        *_describe_scripts(inputs, tokens, command),
        *_describe_statuses(statuses),
    )


def _describe_joins(
    program: str, inputs: Sequence[InputUse], outputs: Sequence[OutputUse], tokens: Sequence[ArgumentToken]
) -> tuple[str, ...]:
    notes = [f"{program} is not known to millrace: its outputs are put one after another in input order"]
    for output in outputs:
        if output.join != "concat":
            name = "standard output" if output.stdout else output.path
            notes.append(f"{name} is joined by {describe_join(output.join)}, which must be the same in all batches")
    for each in list_unnamed_inputs(inputs, tokens):
        notes.append(f"{each.path} is not in the arguments: each task finds its part at that relative path")
    for index, output in enumerate(outputs):
        if not output.stdout and not any(isinstance(token, OutputArg) and token.index == index for token in tokens):
            notes.append(f"{output.path} is not in the arguments: {program} is expected to write it by itself")
    if len(inputs) > 1:
        notes.append(f"{len(inputs)} inputs advance together, record by record")
    return tuple(notes)


def _describe_folders(tokens: Sequence[ArgumentToken], command: UserCommand) -> tuple[str, ...]:
    return tuple(
        f"{word} is a folder: if {Path(command.argv[0]).name} reads files in it, --shared {word} has millrace notice when they change"
        for word in list_unwatched_folders(tokens, command)
    )


def _describe_scripts(
    inputs: Sequence[InputUse], tokens: Sequence[ArgumentToken], command: UserCommand
) -> tuple[str, ...]:
    return tuple(
        f"warning: {script.name} speaks of {each.path}: by that name tools see their part of it, not all of it"
        for index, each in enumerate(inputs)
        if any(isinstance(token, InputArg) and token.index == index for token in tokens)
        for script in list_argument_files(tokens, command)
        if is_path_in_script(script, each.path)
    )


def _describe_statuses(statuses: Sequence[int]) -> tuple[str, ...]:
    return tuple(
        f"exit status {status} is a result, as 0 is; the exit code of the run does not show it" for status in statuses
    )
