"""Checks of the inputs of a run: their files, formats, and whether they can be read."""

from __future__ import annotations

import errno
import fcntl
import os
import stat

import msgspec

from millrace import _core, formats
from millrace.errors import RefusedError
from millrace.job import JobSpec
from millrace.model import InputUse, ToolUse, UserCommand
from millrace.tools.base import NUL, OPENED, expand_file_records, is_still_growing, join_names, parse_fd_path


def resolve_record_files(use: ToolUse, command: UserCommand) -> ToolUse:
    """List the files of inputs in which each file is a record; a folder is listed once, at the start.

    Raises:
        RefusedError: There are no files, or they are behind URLs.
    """
    inputs = []
    for item in use.inputs:
        if item.format == "files":
            names = expand_file_records(item.path.split(NUL), command)
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
                found = formats.find_format_by_suffix(item.path)
            else:
                found = formats.detect_format(item.path if item.path == "-" else str(command.cwd / item.path))
            if found is None:
                name = "standard input" if item.path == "-" else item.path
                raise RefusedError(
                    f"{name}: its record format cannot be told", f"name it with --format: {', '.join(formats.FORMATS)}"
                )
            item = msgspec.structs.replace(item, format=found)
        formats.check_format_name(item.format)
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
        for name in item.path.split("\0") if item.format == "files" else [item.path]:
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
