"""Adapter of any other program: the user names its inputs and outputs.

*Exactness.* The program is unknown, so its outputs are concatenated in input order. That is the serial output of
every program that treats each record by itself and writes no header, footer, number or total; the user has to know
that (``docs/tools/filters.md`` has a test for it). Programs that are well known to need the whole input are refused
by name. In a task, the name of an input is its batch. So a second use of the name in the arguments is refused, and
one in a script is reported, as far as it can be seen.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import msgspec

from millrace.adapters.adapter_base import is_still_growing, parse_fd_path
from millrace.adapters.argument_paths import (
    find_path_beginnings,
    find_path_places,
    is_per_record_path,
    list_argument_files,
    list_data_files,
    list_unnamed_inputs,
    list_unwatched_folders,
    refuse_absolute_path,
    refuse_other_spelling,
    resolve_real_path,
)
from millrace.adapters.call_rules import QUOTED, ProgramCall, has_miller_output_header, has_quoted_fields
from millrace.adapters.joins import (
    CONCAT,
    UNBROKEN,
    apply_asked_joins,
    choose_default_join,
    combine_joins,
    describe_join,
    list_asked_ways,
)
from millrace.adapters.known_refusals import BINARY_FOUND, NOTHING_FOUND, can_detect_binary, find_refusal, is_in_census
from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.core.tool_use import (
    ArgumentToken,
    CostHint,
    InputArg,
    InputUse,
    OutputArg,
    OutputUse,
    ToolUse,
    UserCommand,
)

#: Option before a script in the arguments: ``sh -c``, ``bash -ec``, ``perl -ne``.
_SCRIPT = re.compile(r"-[A-Za-z]*[ce]")

#: Bytes of a script that are searched for names.
_SCRIPT_BYTES = 1 << 16


def refuse_whole_reads(path: str, form: str, command: UserCommand, tokens: Sequence[ArgumentToken], index: int) -> None:
    """Refuse a file that is cut and read whole under one name: Millrace cannot know which of both an argument means.

    Args:
        path: The file, as the user names it.
        form: Its format.
        tokens: The arguments, with the file marked as input.
        index: Its number among the inputs.

    Raises:
        RefusedError: The arguments or a shared folder name it a second time.
    """
    for place in _find_whole_reads(path, form, command, tokens, index):
        raise RefusedError(
            f"{place} is the file that --input {path} cuts into batches: it cannot be told where the tool is to see all of it",
            f"give the whole file a name of its own (ln -s {path} whole-{os.path.basename(path)}), and name that where it is read whole",
        )
    if folder := _find_shared_folder(path, form, command):
        raise RefusedError(
            f"--shared {folder} has in it what --input {path} cuts into batches: tools would see their part of it there",
            "name it by its whole path, in --input and in the arguments: then they see the folder as it is; or keep it elsewhere",
        )


def _find_whole_reads(
    path: str, form: str, command: UserCommand, tokens: Sequence[ArgumentToken], index: int
) -> Iterator[str]:
    named = [token for token in tokens if isinstance(token, InputArg) and token.index == index]
    if form != "files" and path not in command.outputs:  # an output of this name is refused elsewhere
        yield from (token.prefix + path for token in named[1:])
    cut = os.path.normpath(command.cwd / path)
    spelled = [token for token in tokens[1:] if isinstance(token, str) and token] if named else []
    others = [word for token in spelled for word in (token, token.partition("=")[2]) if word]
    for option, name in (*(("--shared ", name) for name in command.shared), *(("", word) for word in others)):
        if os.path.normpath(command.cwd / name) == cut:
            yield f"{option}{name}"
    if named:
        for before, text in pairwise(tokens):
            if (
                isinstance(before, str)
                and _SCRIPT.fullmatch(before)
                and isinstance(text, str)
                and _is_path_in_text(text, path)
            ):
                yield f"{path} in the script after {before}"


def _find_shared_folder(path: str, form: str, command: UserCommand) -> str:
    """Return the shared folder in which tools would see a batch in place of the file; empty: none."""
    if form == "files" or path == "-" or os.path.isabs(path):
        return ""  # batches lie elsewhere, and tools see the unchanged folder
    above = [str(folder) for folder in Path(os.path.normpath(command.cwd / path)).parents]
    return next((name for name in command.shared if os.path.normpath(command.cwd / name) in above), "")


def is_path_in_script(script: Path, path: str) -> bool:
    """Tell whether a file is a script that contains ``path`` in its first 64 KiB."""
    try:
        with script.open("rb") as file:
            text = file.read(_SCRIPT_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return False
    is_script = text.startswith("#!") or script.suffix in (".sh", ".bash", ".py", ".pl", ".rb", ".R", ".awk")
    return is_script and "\0" not in text and _is_path_in_text(text, path)


def _is_path_in_text(text: str, path: str) -> bool:
    """Tell whether a text contains a path as a separate word.

    >>> [_is_path_in_text(text, "q.faa") for text in ("x q.faa>y", "x ./q.faa", "x q.faa.gz", "x d/q.faa", "x=q.faa;")]
    [True, True, False, False, True]
    """
    return bool(re.search(rf"(?<![\w./-])(?:\./)?{re.escape(path.removeprefix('./'))}(?![\w/-]|\.\w)", text))


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
    if not is_in_census(program):
        notes.append(
            f"{program} is not in the census of programs: nobody has measured whether it treats each record by itself"
        )
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
        (found for name in files if (found := record_formats.detect_format(str(command.cwd / name)))),
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
    path, form = record_formats.parse_input(typed, command.cwd)
    if form:
        return path, form
    if command.format:
        return typed, command.format
    if typed != "-" and (command.cwd / typed).is_dir():
        return typed, "files"
    if is_still_growing(typed, command) and (named := record_formats.find_format_by_suffix(typed)):
        return typed, named
    if typed != "-" and (command.cwd / typed).exists() and not os.access(command.cwd / typed, os.R_OK):
        return typed, ""  # the plan reports that the file cannot be read
    found = record_formats.detect_format("-" if typed == "-" else str(command.cwd / typed))
    if found is None and (typed == "-" or (command.cwd / typed).exists()):
        name = "standard input" if typed == "-" else f"--input {typed}"
        if record_formats.strip_compressed_suffix(typed.lower()).endswith((".mzml", ".mzxml")):
            raise RefusedError(
                f"{name}: is one document with counts and an index of all its spectra, which are not true of a part",
                f"convert it to MGF, which is cut into spectra: msconvert --mgf {typed}",
            )
        raise RefusedError(
            f"{name}: its format cannot be told, so it is not known where a record begins",
            f"say it with --format NAME; formats are {', '.join(record_formats.FORMATS)}",
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
