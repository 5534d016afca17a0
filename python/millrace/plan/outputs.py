"""Checks of the outputs of a run: they can be written, and no file that is read is overwritten."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from millrace.errors import RefusedError
from millrace.model import OutputUse, ToolUse, UserCommand
from millrace.tools.base import NUL, expand_record_path, is_stream_path


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


def list_record_files(use: ToolUse) -> list[str]:
    """List the input files that are one record each."""
    return [name for item in use.inputs if item.format == "files" for name in item.path.split(NUL)]


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
        found |= {_identify_file(name if name == "-" else cwd / name, 0): "input" for name in item.path.split(NUL)}
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
