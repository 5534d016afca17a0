"""Checks of files: inputs can be read and cut, outputs written, and nothing read is overwritten."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
from pathlib import Path

import msgspec

from millrace import _core
from millrace.adapters.adapter_base import (
    OPENED,
    expand_file_records,
    expand_record_path,
    is_still_growing,
    is_stream_path,
    join_names,
    parse_fd_path,
)
from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec
from millrace.core.tool_use import InputUse, OutputUse, ToolUse, UserCommand


def resolve_record_files(use: ToolUse, command: UserCommand) -> ToolUse:
    """List the files of inputs in which each file is a record; a folder is listed once, at the start.

    Raises:
        RefusedError: There are no files, or they are behind URLs.
    """
    inputs = []
    for item in use.inputs:
        if item.format == "files":
            names = expand_file_records(item.paths, command)
            if not names:
                raise RefusedError(
                    f"{item.path}: no files there", "give a folder with the files, a glob in quotes, or a list of names"
                )
            if command.view and any(command.view.find_file(command.cwd / name) for name in names):
                raise RefusedError(
                    f"{item.path}: files that are one record each cannot be behind URLs", "fetch them first"
                )
            item = msgspec.structs.replace(item, path=join_names(names))
        inputs.append(item)
    return msgspec.structs.replace(use, inputs=tuple(inputs))


def detect_input_formats(use: ToolUse, command: UserCommand) -> ToolUse:
    """Detect the record format of inputs without one, check those that were named, and mark pipes.

    Raises:
        RefusedError: A format cannot be detected, or does not exist.
    """
    inputs = []
    for item in use.inputs:
        if not item.format:
            if is_still_growing(item.path, command):
                found = record_formats.find_format_by_suffix(item.path)
            else:
                found = record_formats.detect_format(item.path if item.path == "-" else str(command.cwd / item.path))
            if found is None:
                name = "standard input" if item.path == "-" else item.path
                raise RefusedError(
                    f"{name}: its record format cannot be told",
                    f"name it with --format: {', '.join(record_formats.FORMATS)}",
                )
            item = msgspec.structs.replace(item, format=found)
        record_formats.check_format_name(item.format)
        inputs.append(msgspec.structs.replace(item, piped=_is_piped_input(item, command)))
    return msgspec.structs.replace(use, inputs=tuple(inputs))


def _is_piped_input(item: InputUse, command: UserCommand) -> bool:
    if item.format == "files" or is_still_growing(item.path, command):
        return False
    return _is_pipe_mode((os.fstat(0) if item.path == "-" else os.stat(os.path.join(command.cwd, item.path))).st_mode)


def _is_pipe_mode(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def check_record_boundaries(job: JobSpec, use: ToolUse) -> None:
    """Refuse record boundaries that are missing, that no input uses, or that are not regular expressions."""
    given = job.record_start or job.record_end
    by_regex = any(item.format == "regex" for item in use.inputs)
    if given and not by_regex:
        named = ", ".join(dict.fromkeys(item.format for item in use.inputs))
        raise RefusedError(
            f"--record-start and --record-end belong to format regex, not to {named}",
            "leave out either these or --format",
        )
    if by_regex and not given:
        raise RefusedError("format regex needs --record-start or --record-end", "as in: --record-start '^>'")
    if not by_regex:
        return
    try:
        _core.Reader([], "regex", record_start=job.record_start or None, record_end=job.record_end or None)
    except UnicodeEncodeError as error:
        raise RefusedError(
            "--record-start and --record-end: not UTF-8", "write other bytes as in: (?-u:\\xe9)"
        ) from error
    except ValueError as error:
        text = str(error).replace("record_start", "--record-start").replace("record_end", "--record-end")
        raise RefusedError(text, "write a regular expression, in single quotes") from error


def check_inputs(use: ToolUse, command: UserCommand) -> None:
    """Refuse inputs that cannot be read, before anything starts."""
    for item in use.inputs:
        for name in item.paths:
            if name == "-" or is_still_growing(name, command):
                continue
            path = os.path.join(command.cwd, name)
            try:
                mode = os.stat(path).st_mode
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise
                raise RefusedError(f"{name}: no such file", "check the path of the input") from error
            if stat.S_ISDIR(mode):
                raise RefusedError(
                    f"{name}: is a folder, not a file of records",
                    "name a file in it, or the folder without a format: each file is a record then",
                )
            if not os.access(path, os.R_OK):
                raise RefusedError(f"{name}: permission denied", "make it readable with chmod, or ask its owner")


def check_pipes(use: ToolUse, command: UserCommand) -> None:
    """Refuse a pipe that every task would read, such as ``<(...)``: the first would empty it for all others."""
    words = [word for word in use.argv[1:] if isinstance(word, str)]
    names = [
        name
        for word in words
        for name in (word, word.partition("=")[2], *(match[0] for match in OPENED.finditer(word)))
    ]
    for name in (*names, *map(str, use.databases)):
        if name and _is_readable_pipe(os.path.join(command.cwd, name)):
            raise RefusedError(
                f"{name}: is a pipe, and every task would read it: the first would leave nothing to the others",
                "write what comes through it into a file, and name that",
            )


def _is_readable_pipe(path: str) -> bool:
    try:
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            return False
        number = parse_fd_path(path)
        return number is None or fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY
    except (OSError, ValueError):  # no such file: a word that is no path
        return False


def can_bring_data(descriptor: int, *, pipes: bool = True) -> bool:
    """Tell whether a descriptor is a file or pipe that may bring records: no terminal, not ``/dev/null``, not closed.

    Args:
        pipes: Whether pipes and sockets count.
    """
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or (pipes and _is_pipe_mode(mode))


def check_outputs(use: ToolUse, command: UserCommand) -> None:
    """Refuse outputs that cannot be written, that are named twice, or that would overwrite a file that is read."""
    if not use.outputs:
        return
    cwd, read = command.cwd, identify_read_files(use, command.resolved_command.cwd, command.exe)
    seen: dict[object, OutputUse] = {}
    for output in use.outputs:
        for place in _list_output_paths(output, use, cwd):
            if what := read.get(_identify_file(place)):
                name = "standard output" if output.path == "-" else os.path.relpath(place, cwd)
                raise RefusedError(f"{name}: is both {what} and output", "write the output elsewhere")
        if output.path == "-":
            continue
        if command.view and (file := command.view.find_file(command.view.folder / output.path)):
            raise RefusedError(
                f"{output.path}: has the name of {file.place}, which is read", "give the output another name"
            )
        path = cwd / output.path
        if output.layout == "record":
            _check_record_outputs(output, use, cwd)
            _check_writable((path if "{" not in path.parent.name else path.parent).parent, output)
            continue
        if path.is_dir() and output.layout == "file":
            raise RefusedError(f"{output.path}: is a folder, but the output is a file", "name a file in it")
        real = _identify_file(path)
        if real in seen and (path.is_file() or not path.exists()):
            raise RefusedError(
                f"{output.path}: is named for two outputs, {seen[real].name} and {output.name}",
                "give each a file of its own",
            )
        seen[real] = output
        if output.layout == "directory" or not _is_already_open(path):
            _check_writable(_follow_link(path, output).parent, output)
        if not path.is_dir() and path.exists() and not os.access(path, os.W_OK):
            raise RefusedError(f"{output.path}: permission denied", "make it writable with chmod, or write elsewhere")


def check_own_file(path: Path, option: str, use: ToolUse, command: UserCommand) -> None:
    """Refuse a file of Millrace's own that the command reads or writes.

    Args:
        option: The option that names it.
    """
    taken = identify_read_files(use, command.resolved_command.cwd, command.exe)
    for output in use.outputs:
        taken |= {_identify_file(place): "output" for place in _list_output_paths(output, use, command.cwd)}
    if what := taken.get(_identify_file(path)):
        raise RefusedError(f"{option} {path}: is {what} of the command, too", "name another file")


def list_record_files(use: ToolUse) -> list[str]:
    """List the input files that are one record each."""
    return [name for item in use.inputs if item.format == "files" for name in item.paths]


def is_existing_output(output: OutputUse, path: str) -> bool:
    """Tell whether an output of one file exists, is readable and not empty, as after a run."""
    is_file = output.layout == "file" and not output.stdout and os.path.isfile(path) and os.access(path, os.R_OK)
    return is_file and os.path.getsize(path) > 0


def list_existing_outputs(use: ToolUse, cwd: Path) -> list[str]:
    """List the paths of outputs of one file each that exist already."""
    return [output.path for output in use.outputs if is_existing_output(output, os.path.join(cwd, output.path))]


def _check_record_outputs(output: OutputUse, use: ToolUse, cwd: Path) -> None:
    """Refuse outputs by record if two input files share one, or if a folder has its name."""
    names: dict[str, str] = {}
    for name in list_record_files(use):
        place = expand_record_path(output.path, name)
        if place in names:
            raise RefusedError(f"{names[place]} and {name} would both be written to {place}", "rename one of them")
        if (cwd / place).is_dir():
            raise RefusedError(f"{place}: is a folder, but the output of {name} is a file", "move it away")
        names[place] = name


def _is_already_open(path: Path) -> bool:
    """Tell whether an output needs no new file: a device, a pipe, or what a shell has opened (``/dev/stdout``)."""
    return path.exists() and (not path.is_file() or (is_stream_path(str(path)) and not path.is_relative_to("/dev/shm")))


def identify_read_files(use: ToolUse, cwd: Path, exe: Path) -> dict[object, str]:
    """Return the roles ("input", "a database", "the program") of the files that a run reads, by file identity."""
    found: dict[object, str] = {_identify_file(exe): "the program"}
    found |= {_identify_file(cwd / path): "a database" for path in use.databases}
    for item in use.inputs:
        found |= {_identify_file(name if name == "-" else cwd / name, 0): "input" for name in item.paths}
    found.pop(None, None)
    return found


def _list_output_paths(output: OutputUse, use: ToolUse, cwd: Path) -> list[str | Path]:
    """List the files of an output, as far as they are known before the run."""
    if output.path == "-":
        return ["-"]
    if output.layout == "record":
        return [cwd / expand_record_path(output.path, name) for name in list_record_files(use)]
    return [cwd / output.path]


def _identify_file(path: str | Path, descriptor: int = 1) -> object:
    """Return the identity of a file, the same for all its names: (device, inode), or its real path if it is missing.

    Args:
        path: Its path; ``-``: the open ``descriptor``, for which the result is None unless it is a regular file.
    """
    try:
        about = os.fstat(descriptor) if path == "-" else os.stat(path)
    except OSError:
        return None if path == "-" else os.path.realpath(path)
    if path == "-" and not stat.S_ISREG(about.st_mode):
        return None
    return about.st_dev, about.st_ino


def _follow_link(path: Path, output: OutputUse) -> Path:
    """Return the path to which an output is written: the target, if it is a link.

    Raises:
        RefusedError: The link leads back to itself.
    """
    if not path.is_symlink():
        return path
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise RefusedError(f"{output.path}: is a link that leads back to itself", "remove it, or write elsewhere")
    return real


def _check_writable(folder: Path, output: OutputUse) -> None:
    if not folder.is_dir():
        missing = folder if output.layout == "file" else folder.parent
        if output.layout == "file" or not missing.is_dir():
            if folder.exists():
                raise RefusedError(f"{output.path}: {folder} is a file, not a folder", "write the output elsewhere")
            raise RefusedError(
                f"{output.path}: no such folder {folder}", f"make it with: mkdir -p {shlex.quote(str(folder))}"
            )
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise RefusedError(
            f"{output.path}: the folder {folder} cannot be written", "make it writable with chmod, or write elsewhere"
        )
