"""Adapter of any other program: the user names its inputs and outputs.

*Exactness.* The program is unknown, so its outputs are concatenated in input order. That is the serial output of every
program that treats each record by itself and writes no header, footer, number or total; the user has to know that
(``docs/tools/filters.md`` has a test for it). Programs that are well known to need the whole input are refused by name.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace import formats
from millrace.errors import RefusedError
from millrace.model import ArgumentToken, CostHint, InputArg, InputUse, OutputArg, OutputUse, ToolUse, UserCommand
from millrace.tools.arguments import (
    find_path_beginnings,
    find_path_places,
    is_per_record_path,
    list_argument_files,
    list_data_files,
    refuse_absolute_path,
    refuse_other_spelling,
    resolve_real_path,
)
from millrace.tools.base import is_still_growing, parse_fd_path
from millrace.tools.calls import ProgramCall
from millrace.tools.everyday import BINARY_FOUND, NOTHING_FOUND, can_detect_binary, find_refusal
from millrace.tools.generic_notes import collect_generic_notes
from millrace.tools.joins import (
    CONCAT,
    UNBROKEN,
    apply_asked_joins,
    choose_default_join,
    combine_joins,
    list_asked_ways,
)
from millrace.tools.read_whole import refuse_whole_reads
from millrace.tools.tables import QUOTED, has_miller_output_header, has_quoted_fields


class GenericAdapter:
    """``millrace run --input q.fa --output out.txt -- mytool -i q.fa -o out.txt``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``."""
        program = Path(command.argv[0]).name
        _refuse_whole_input(program, command)
        tokens: list[ArgumentToken] = list(command.argv)
        inputs = tuple(
            _build_input(typed, index, command, tokens)
            for index, typed in enumerate(_list_named_inputs(command, program))
        )
        _refuse_standard_input(program, inputs, command, tokens)
        outputs = apply_asked_joins(_build_outputs(command, tokens, inputs), command.joins)
        if program == "mlr" and has_miller_output_header(ProgramCall(program, command.argv[1:], ())):
            outputs = tuple(_refuse_column_changes(output) for output in outputs)
        failures: tuple[str, ...] = ()
        if can_detect_binary(program, command.argv[1:]) and not any(
            is_per_record_path(path) for path in command.outputs
        ):
            inputs = tuple(msgspec.structs.replace(item, text=item.format != "files") for item in inputs)
            failures = (BINARY_FOUND,)
        if has_quoted_fields(program, command.argv[1:]):
            inputs = tuple(
                msgspec.structs.replace(item, format=QUOTED.get(item.format, item.format)) for item in inputs
            )
        statuses = tuple(dict.fromkeys((*command.ok_statuses, *NOTHING_FOUND.get(program, ()))))
        shared = [path for name in command.shared for path in _list_shared_files(name, command)]
        named = [path for path in list_argument_files(tokens, command) if path not in shared]
        one_each = any(output.layout == "record" for output in outputs)
        return ToolUse(
            adapter="generic",
            argv=tuple(tokens),
            inputs=inputs,
            outputs=outputs,
            databases=tuple(dict.fromkeys((*shared, *named))),
            named=tuple(named),
            cost=CostHint(max_records=1 if one_each else 0),
            failures_said=failures,
            ok_statuses=statuses,
            notes=collect_generic_notes(command, tokens, inputs, outputs, statuses),
        )


def _refuse_whole_input(program: str, command: UserCommand) -> None:
    if any(is_per_record_path(path) for path in command.outputs):
        return  # each task has a whole input file

    def read(name: str) -> str:
        with suppress(OSError):
            # Opening standard input anew leaves its offset unchanged; the content of a pipe stays unknown.
            path = Path("/dev/stdin") if name == "-" else command.cwd / name
            return path.read_text(errors="replace") if path.is_file() else ""
        return ""

    known = find_refusal(
        ProgramCall(
            program, command.argv[1:], list_asked_ways(command.joins), lambda: set(_detect_formats(command)), read
        )
    )
    if known:
        why, instead = known
        raise RefusedError(f"{program} {why}: its results on parts do not make its result on the whole", instead)


def _detect_formats(command: UserCommand) -> Iterator[str]:
    """Yield the formats of the inputs, as far as they are known."""
    for typed in command.inputs or ("-",):
        with suppress(RefusedError, OSError):
            yield resolve_path_and_format(typed, command)[1]


def _refuse_standard_input(
    program: str, inputs: Sequence[InputUse], command: UserCommand, tokens: Sequence[ArgumentToken]
) -> None:
    """Refuse ``-`` in the arguments if data comes in on standard input and is no input: tasks would not have it.

    Raises:
        RefusedError: It is so, as with patterns for grep.
    """
    if (
        command.stdin_is_data
        and not any(item.path == "-" for item in inputs)
        and any(word == "-" or (isinstance(word, str) and parse_fd_path(word) == 0) for word in tokens[1:])
    ):
        raise RefusedError(
            f"{program}: - in its arguments may be standard input, on which data comes in, and tasks have none of it",
            "if it is read, write it into a file and name that; if not, add < /dev/null",
        )


def _list_named_inputs(command: UserCommand, program: str) -> tuple[str, ...]:
    if sum(typed == "-" or typed.startswith("-:") for typed in command.inputs) > 1:
        raise RefusedError("--input - is given twice", "standard input can be read once; name a file for the other")
    if command.inputs:
        return command.inputs
    if command.stdin_is_data:
        return ("-",)
    files = list_data_files(command)
    how = f"--input FILE[:FORMAT] --output FILE -- {program} ..."
    form = next(
        (found for name in files if (found := formats.detect_format(str(command.cwd / name)))),
        "lines" if files else "fasta",
    )
    if len(files) == 1:
        how = f"--input {shlex.quote(files[0])} -- {shlex.join(command.argv)} (with --output FILE for a file that it writes)"
    raise RefusedError(
        f"{program} is not a tool that millrace knows, and no input is named",
        f"say which file is cut into records: millrace run {how}, or pipe it in: "
        f"millrace run --format {form} -- {program} ... < FILE",
    )


def _build_input(typed: str, index: int, command: UserCommand, tokens: list[ArgumentToken]) -> InputUse:
    path, form = resolve_path_and_format(typed, command)
    if path == "-":
        if not command.stdin_is_data:
            raise RefusedError("--input -: nothing comes in on standard input", "redirect a file: < FILE")
        return InputUse(path="-", format=form, stdin=True)
    if form != "files" and not (command.cwd / path).exists():
        raise RefusedError(f"--input {path}: no such file", "check the path of the input")
    places = find_path_places(path, tokens)
    for at, prefix in places:
        tokens[at] = InputArg(index=index, prefix=prefix)
    refuse_whole_reads(path, form, command, tokens, index)
    if not places:
        if command.stdin_is_data and not any(each == "-" or each.startswith("-:") for each in command.inputs):
            raise RefusedError(
                f"--input {path} is not in the arguments, and data comes in on standard input",
                "to cut standard input, leave --input out and say its --format; if not, add < /dev/null",
            )
        refuse_other_spelling(path, command, tokens, "--input")
        refuse_absolute_path(path, "--input")
    return InputUse(path=path, format=form)


def resolve_path_and_format(typed: str, command: UserCommand) -> tuple[str, str]:
    """Split ``FILE[:FORMAT]``; without a format, use ``--format``, else detect it from name and content.

    Raises:
        RefusedError: The format cannot be detected.
    """
    path, form = formats.parse_input(typed, command.cwd)
    if form:
        return path, form
    if command.format:
        return typed, command.format
    if typed != "-" and (command.cwd / typed).is_dir():
        return typed, "files"
    if is_still_growing(typed, command) and (named := formats.find_format_by_suffix(typed)):
        return typed, named
    if typed != "-" and (command.cwd / typed).exists() and not os.access(command.cwd / typed, os.R_OK):
        return typed, ""  # the plan reports that the file cannot be read
    found = formats.detect_format("-" if typed == "-" else str(command.cwd / typed))
    if found is None and (typed == "-" or (command.cwd / typed).exists()):
        name = "standard input" if typed == "-" else f"--input {typed}"
        raise RefusedError(
            f"{name}: its format cannot be told, so it is not known where a record begins",
            f"say it with --format NAME; formats are {', '.join(formats.FORMATS)}",
        )
    return typed, found or ""


def _build_outputs(
    command: UserCommand, tokens: list[ArgumentToken], inputs: Sequence[InputUse]
) -> tuple[OutputUse, ...]:
    outputs: list[OutputUse] = []
    names = {"stdout"}
    join = choose_default_join(inputs)
    for path in command.outputs:
        if path in ("-", "/dev/stdout"):
            continue
        if any(path == output.path for output in outputs):
            raise RefusedError(f"--output {path} is given twice", "give it once")
        if any(resolve_real_path(command, path) == resolve_real_path(command, each.path) for each in inputs):
            raise RefusedError(f"{path} is both input and output", "write to another file")
        places = find_path_places(path, tokens)
        for at, prefix in places:
            tokens[at] = OutputArg(index=len(outputs), prefix=prefix)
        for at, prefix, cut in find_path_beginnings(path, tokens):
            tokens[at] = OutputArg(index=len(outputs), prefix=prefix, cut=cut)
            places.append((at, prefix))
        if not places:
            refuse_other_spelling(path, command, tokens, "--output")
            refuse_absolute_path(path, "--output")
        layout = _choose_layout(path, command, inputs)
        how = join if layout == "file" else CONCAT
        outputs.append(OutputUse(name=_choose_stream_name(path, names), path=path, layout=layout, join=how))
    outputs.append(OutputUse(name="stdout", path="-", stdout=True, join=join))
    return tuple(outputs)


def _refuse_column_changes(output: OutputUse) -> OutputUse:
    """Refuse blank lines in a joined table: with one header, only a blank line shows that the columns change."""
    join = output.join if output.join == CONCAT else combine_joins(output.join, UNBROKEN)
    return msgspec.structs.replace(output, join=join)


def _choose_layout(path: str, command: UserCommand, inputs: Sequence[InputUse]) -> str:
    if is_per_record_path(path):
        if not any(each.format == "files" for each in inputs):
            raise RefusedError(
                f"--output {path}: {{name}} and {{stem}} are the input's, and no input is a set of files",
                "give the input as a folder, or as NAMES:files",
            )
        return "record"
    return "directory" if path.endswith("/") or (command.cwd / path).is_dir() else "file"


def _choose_stream_name(path: str, taken: set[str]) -> str:
    """Return a short, unique name for a stream: the file's name, with parent folders or a number if it is taken."""
    parts = [re.sub(r"[^A-Za-z0-9._-]+", "_", part) for part in Path(path).parts if part not in ("/", ".", "..")]
    for n_parts in range(1, len(parts) + 1):
        name = "-".join(parts[-n_parts:])
        if name not in taken:
            break
    else:
        name = next(f"{name}-{n}" for n in range(2, len(taken) + 3) if f"{name}-{n}" not in taken)
    taken.add(name)
    return name


def _list_shared_files(name: str, command: UserCommand) -> list[Path]:
    """List the file, or all files in and below the folder except those of runs and outputs."""
    path = command.cwd / name
    if not path.exists():
        raise RefusedError(f"--shared {name}: no such file or folder", "check the path")
    if not path.is_dir():
        return [path]
    written = {resolve_real_path(command, each) for each in command.outputs}
    files = (Path(folder, file) for folder, _, names in os.walk(path) for file in names)
    own = (file for file in files if not any(part.endswith(".millrace") for part in file.relative_to(path).parts))
    return sorted(file for file in own if os.path.realpath(file) not in written)


ADAPTER = GenericAdapter()
