"""Any other program: the user says what goes in and what comes out.

*Exactness.* Nothing is known of the program, so its outputs are put one after another in input order. That
is the serial output of every program that treats each record by itself and writes no header, footer, number
or total; it is for the user to know that (``docs/tools/filters.md`` has a test anyone can run). Programs
that are well known to need the whole input are refused by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from millrace import formats
from millrace.errors import RefusedError
from millrace.model import Command, CostHint, InputArg, InputUse, OutputArg, OutputUse, Token, ToolUse
from millrace.tools.base import grows, opened
from millrace.tools.everyday import BINARY_FOUND, CARRIES, NOTHING_FOUND, Call, refusal, takes_for_binary
from millrace.tools.joins import joined, ways, words
from millrace.tools.read_whole import refuse_read_whole, speaks_of


class Generic:
    """``millrace run --input q.fa --output out.txt -- mytool -i q.fa -o out.txt``."""

    def understand(self, command: Command) -> ToolUse:
        """See `Adapter.understand`."""
        program = Path(command.argv[0]).name
        _refuse_whole_input(program, command)
        tokens: list[Token] = list(command.argv)
        inputs = tuple(
            _input(typed, index, command, tokens) for index, typed in enumerate(_inputs_named(command, program))
        )
        _refuse_standard_input(program, inputs, command, tokens)
        outputs = joined(_outputs(command, tokens, inputs), command.joins)
        failures: tuple[str, ...] = ()
        if takes_for_binary(program, command.argv[1:]) and not any(_is_one_each(path) for path in command.outputs):
            inputs = tuple(msgspec.structs.replace(item, text=item.format != "files") for item in inputs)
            failures = (BINARY_FOUND,)
        statuses = tuple(dict.fromkeys((*command.ok_statuses, *NOTHING_FOUND.get(program, ()))))
        shared = [path for name in command.shared for path in _shared(name, command)]
        one_each = any(output.layout == "record" for output in outputs)
        return ToolUse(
            adapter="generic",
            argv=tuple(tokens),
            inputs=inputs,
            outputs=outputs,
            databases=tuple(dict.fromkeys((*shared, *files_in_arguments(tokens, command)))),
            cost=CostHint(max_records=1 if one_each else 0),
            failures_said=failures,
            ok_statuses=statuses,
            notes=(
                *_notes(program, inputs, outputs, tokens),
                *_of_folders(tokens, command),
                *_of_scripts(inputs, tokens, command),
                *_said_of(statuses),
            ),
        )


def _refuse_whole_input(program: str, command: Command) -> None:
    if any(_is_one_each(path) for path in command.outputs):
        return  # each task has a whole input of its own
    known = refusal(Call(program, command.argv[1:], ways(command.joins)))
    if known:
        why, instead = known
        raise RefusedError(f"{program} {why}: its results on parts do not make its result on the whole", instead)


def _refuse_standard_input(program: str, inputs: Sequence[InputUse], command: Command, tokens: Sequence[Token]) -> None:
    """What every task would have to read there, such as patterns, none of them has."""
    if (
        command.stdin_is_data
        and not any(item.path == "-" for item in inputs)
        and any(word == "-" or (isinstance(word, str) and opened(word) == 0) for word in tokens[1:])
    ):
        raise RefusedError(
            f"{program}: - in its arguments may be standard input, on which data comes in, and tasks have none of it",
            "if it is read, write it into a file and name that; if not, add < /dev/null",
        )


def _is_one_each(path: str) -> bool:
    return "{name}" in path or "{stem}" in path


def _inputs_named(command: Command, program: str) -> tuple[str, ...]:
    if sum(typed == "-" or typed.startswith("-:") for typed in command.inputs) > 1:
        raise RefusedError("--input - is given twice", "standard input can be read once; name a file for the other")
    if command.inputs:
        return command.inputs
    if command.stdin_is_data:
        return ("-",)
    raise RefusedError(
        f"{program} is not a tool that millrace knows, and no input is named",
        f"say which file is cut into records: "
        f"millrace run --input FILE[:FORMAT] --output FILE -- {program} ... "
        f"or pipe it in: millrace run --format fasta -- {program} ... < FILE",
    )


def _input(typed: str, index: int, command: Command, tokens: list[Token]) -> InputUse:
    path, form = path_and_format(typed, command)
    if path == "-":
        if not command.stdin_is_data:
            raise RefusedError("--input -: nothing comes in on standard input", "redirect a file: < FILE")
        return InputUse(path="-", format=form, stdin=True)
    if form != "files" and not (command.cwd / path).exists():
        raise RefusedError(f"--input {path}: no such file", "check the path of the input")
    places = _places(path, tokens)
    for at, prefix in places:
        tokens[at] = InputArg(index=index, prefix=prefix)
    refuse_read_whole(path, form, command, tokens, is_argument=bool(places))
    if not places:
        if command.stdin_is_data and not any(each == "-" or each.startswith("-:") for each in command.inputs):
            raise RefusedError(
                f"--input {path} is not in the arguments, and data comes in on standard input",
                "to cut standard input, leave --input out and say its --format; if not, add < /dev/null",
            )
        _refuse_other_spelling(path, command, tokens, "--input")
        _refuse_absolute(path, "--input")
    return InputUse(path=path, format=form)


def path_and_format(typed: str, command: Command) -> tuple[str, str]:
    """Split ``FILE[:FORMAT]``; without a format, take ``--format``, then what name and bytes tell."""
    path, form = formats.parse_input(typed, command.cwd)
    if form:
        return path, form
    if command.format:
        return typed, command.format
    if typed != "-" and (command.cwd / typed).is_dir():
        return typed, "files"
    if grows(typed, command) and (named := formats.by_suffix(typed)):
        return typed, named
    if typed != "-" and (command.cwd / typed).exists() and not os.access(command.cwd / typed, os.R_OK):
        return typed, ""  # the plan tells what is wrong with a file that cannot be read
    found = formats.detect("-" if typed == "-" else str(command.cwd / typed))
    if found is None and (typed == "-" or (command.cwd / typed).exists()):
        name = "standard input" if typed == "-" else f"--input {typed}"
        raise RefusedError(
            f"{name}: its format cannot be told, so it is not known where a record begins",
            f"say it with --format NAME; formats are {', '.join(formats.FORMATS)}",
        )
    return typed, found or ""


def _places(path: str, tokens: Sequence[Token]) -> list[tuple[int, str]]:
    """Where ``path`` stands in the arguments, alone or behind ``--option=``."""
    found = []
    for at, token in enumerate(tokens):
        if at == 0 or not isinstance(token, str):
            continue
        before, equal, after = token.partition("=")
        if token == path:
            found.append((at, ""))
        elif equal and after == path:
            found.append((at, before + equal))
    return found


def _beginnings(path: str, tokens: Sequence[Token]) -> Iterator[tuple[int, str, str]]:
    """Where the name of a file for each record begins in the arguments, and the tool adds its end by itself.

    >>> list(_beginnings("out/{stem}.treefile", ["iqtree2", "--prefix=out/{stem}", "{stem}", "out"]))
    [(1, '--prefix=', '.treefile')]
    """
    for at, token in enumerate(tokens[1:], start=1):
        if not isinstance(token, str):
            continue
        before, equal, after = token.partition("=")
        for prefix, word in (("", token), (before + equal, after)):
            cut = path.removeprefix(word) if word and path.startswith(word) else ""
            # A place holder by itself may be a word of the tool's own, as in jq '{name}'.
            if cut and _is_one_each(word) and word not in ("{name}", "{stem}") and not _is_one_each(cut):
                yield at, prefix, cut


def _refuse_other_spelling(path: str, command: Command, tokens: Sequence[Token], option: str) -> None:
    wanted = _real(command, path)
    for token in tokens[1:]:
        if isinstance(token, str) and token and _real(command, token.rpartition("=")[2]) == wanted:
            raise RefusedError(
                f"{option} {path}: the arguments spell it '{token}'", "spell it the same way in both places"
            )


def _real(command: Command, path: str) -> str:
    """Where ``path`` leads to in the end; unlike ``Path.resolve``, does not fail on circles of links."""
    return os.path.realpath(command.cwd / path)


def _refuse_absolute(path: str, option: str) -> None:
    # A relative name means the same in the private directory of each task; an absolute one is the user's
    # own file.
    if Path(path).is_absolute():
        raise RefusedError(
            f"{option} {path} is not in the arguments, so the tool cannot be told of a part of it",
            "name it by a relative path, or put it into the arguments",
        )


def _outputs(command: Command, tokens: list[Token], inputs: Sequence[InputUse]) -> tuple[OutputUse, ...]:
    outputs: list[OutputUse] = []
    names = {"stdout"}
    for path in command.outputs:
        if path in ("-", "/dev/stdout"):
            continue
        if any(path == output.path for output in outputs):
            raise RefusedError(f"--output {path} is given twice", "give it once")
        if any(_real(command, path) == _real(command, each.path) for each in inputs):
            raise RefusedError(f"{path} is both input and output", "write to another file")
        places = _places(path, tokens)
        for at, prefix in places:
            tokens[at] = OutputArg(index=len(outputs), prefix=prefix)
        for at, prefix, cut in _beginnings(path, tokens):
            tokens[at] = OutputArg(index=len(outputs), prefix=prefix, cut=cut)
            places.append((at, prefix))
        if not places:
            _refuse_other_spelling(path, command, tokens, "--output")
            _refuse_absolute(path, "--output")
        outputs.append(OutputUse(name=_stream_name(path, names), path=path, layout=_layout(path, command, inputs)))
    outputs.append(OutputUse(name="stdout", path="-", stdout=True))
    return tuple(outputs)


def _layout(path: str, command: Command, inputs: Sequence[InputUse]) -> str:
    if _is_one_each(path):
        if not any(each.format == "files" for each in inputs):
            raise RefusedError(
                f"--output {path}: {{name}} and {{stem}} are the input's, and no input is a set of files",
                "give the input as a folder, or as NAMES:files",
            )
        return "record"
    return "directory" if path.endswith("/") or (command.cwd / path).is_dir() else "file"


def _stream_name(path: str, taken: set[str]) -> str:
    """A short name for a stream: the file's own, with what tells it from others of that name."""
    parts = [re.sub(r"[^A-Za-z0-9._-]+", "_", part) for part in Path(path).parts if part not in ("/", ".", "..")]
    for n_parts in range(1, len(parts) + 1):
        name = "-".join(parts[-n_parts:])
        if name not in taken:
            break
    else:
        name = next(f"{name}-{n}" for n in range(2, len(taken) + 3) if f"{name}-{n}" not in taken)
    taken.add(name)
    return name


def _shared(name: str, command: Command) -> list[Path]:
    """The file, or all files in the folder and below that are not the run's own."""
    path = command.cwd / name
    if not path.exists():
        raise RefusedError(f"--shared {name}: no such file or folder", "check the path")
    if not path.is_dir():
        return [path]
    written = {_real(command, each) for each in command.outputs}
    files = (Path(folder, file) for folder, _, names in os.walk(path) for file in names)
    own = (file for file in files if not any(part.endswith(".millrace") for part in file.relative_to(path).parts))
    return sorted(file for file in own if os.path.realpath(file) not in written)


def files_in_arguments(tokens: Sequence[Token], command: Command) -> list[Path]:
    """Files that the arguments name, such as a script: as much a part of the command as the program."""
    own = {_real(command, path) for path in (*command.outputs, *(each.partition(":")[0] for each in command.inputs))}
    found = (command.cwd / word for word in _words(tokens))
    return [path for path in found if os.path.isfile(path) and os.path.realpath(path) not in own]


def _unwatched(tokens: Sequence[Token], command: Command) -> list[str]:
    """Folders that the arguments name, and of which nobody has said whether tools read or write there."""
    said = {_real(command, path) for path in (*command.shared, *command.outputs)}
    folders = [word for word in _words(tokens) if os.path.isdir(command.cwd / word)]
    return [word for word in dict.fromkeys(folders) if os.path.realpath(command.cwd / word) not in said]


def _words(tokens: Sequence[Token]) -> list[str]:
    """What may be a path in the arguments."""
    texts = (token for token in tokens[1:] if isinstance(token, str) and "\0" not in token)
    return [word for text in texts for word in (text, text.partition("=")[2]) if word]


def _notes(
    program: str, inputs: Sequence[InputUse], outputs: Sequence[OutputUse], tokens: Sequence[Token]
) -> tuple[str, ...]:
    notes = [f"{program} is not known to millrace: its outputs are put one after another in input order"]
    for output in outputs:
        if output.join != "concat":
            name = "standard output" if output.stdout else output.path
            notes.append(f"{name} is joined by {words(output.join)}, which must be the same in all batches")
    if program in CARRIES:
        notes.append(f"warning: {program} may carry something from record to record: watch for {CARRIES[program]}")
    for index, each in enumerate(inputs):
        if not each.stdin and not any(isinstance(token, InputArg) and token.index == index for token in tokens):
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
        for word in _unwatched(tokens, command)
    )


def _of_scripts(inputs: Sequence[InputUse], tokens: Sequence[Token], command: Command) -> tuple[str, ...]:
    return tuple(
        f"warning: {script.name} speaks of {each.path}: by that name tools see their part of it, not all of it"
        for index, each in enumerate(inputs)
        if any(isinstance(token, InputArg) and token.index == index for token in tokens)
        for script in files_in_arguments(tokens, command)
        if speaks_of(script, each.path)
    )


def _said_of(statuses: Sequence[int]) -> tuple[str, ...]:
    """What `millrace plan` says of exit statuses that are results."""
    return tuple(
        f"exit status {status} is a result, as 0 is; the exit code of the run does not show it" for status in statuses
    )


ADAPTER = Generic()
