"""Execution of a filter (a shell line from one file to another) or of a Python function over records.

Its output is one file, or a folder that gets one file after another.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from millrace import _core
from millrace.core.errors import CorruptError, RefusedError, ToolError
from millrace.extensions.workflow.phase_chain import BLOCK_BYTES, format_listing_line, write_all


class FileOutput:
    """An output file, truncated at the start."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb", buffering=0)

    def write(self, item: object, who: str) -> None:
        """Write one result, bytes or text, without buffering.

        Raises:
            ToolError: It is neither.
        """
        write_all(self._file.fileno(), _encode_item(item, who))

    def finish(self) -> None:
        """Fsync and close the file."""
        os.fsync(self._file.fileno())
        self._file.close()


class FolderOutput:
    """An output folder; each file is listed once it is complete.

    A file that already has the same bytes is not rewritten, as its readers may compare modification times.

    Args:
        listed: File that lists the complete files, one a line, for the phases that follow.
    """

    def __init__(self, folder: Path, listed: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._listed = folder, listed.open("wb", buffering=0)
        self._names: set[str] = set()

    def write(self, item: object, who: str) -> None:
        """Write one file from a pair of name and content.

        Raises:
            ToolError: It is no such pair, or the name is invalid or was used before.
        """
        match item:
            case (str(name), bytes() | str() as content):
                pass
            case _:
                raise ToolError(
                    f"{who}: gave {_shorten_repr(item)} for a folder", "yield (name, content), one for each file"
                )
        if not name or "/" in name or name.startswith(".") or "\n" in name or "\0" in name:
            raise ToolError(f"{who}: {name!r} is no name for a file", "use a name without / and without a dot in front")
        if name in self._names:
            raise ToolError(f"{who}: gave the file {name} twice", "give each its own name")
        self._names.add(name)
        self._write_file(name, _encode_item(content, who))
        self._listed.write(format_listing_line(self._folder / name))

    def _write_file(self, name: str, content: bytes) -> None:
        """Write a file atomically, unless it already has these bytes."""
        path = self._folder / name
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return
        fresh = self._folder / f".{name}.new"
        fresh.unlink(missing_ok=True)  # left by a killed start, or a link of another user
        with fresh.open("xb") as file:
            file.write(content)
        fresh.replace(path)

    def finish(self) -> None:
        """Remove unfinished files, sync the filesystem and close the list.

        Raises:
            CorruptError: The folder has files that the function did not write.
        """
        for name in os.listdir(self._folder):
            if name.startswith(".") and name.endswith(".new"):
                (self._folder / name).unlink()
            elif not name.startswith(".") and name not in self._names:
                raise CorruptError(
                    f"{self._folder / name}: was not written by this phase", "move it away, and start over with --fresh"
                )
        _core.sync_filesystem(self._folder)
        self._listed.close()


def _encode_item(item: object, who: str) -> bytes:
    """Return a result as bytes, text in UTF-8; refuse all other types."""
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return item
    raise ToolError(f"{who}: gave {_shorten_repr(item)} where bytes are expected", "yield bytes or text")


def _shorten_repr(item: object) -> str:
    """Return the ``repr`` of a value, cut to 60 letters."""
    text = repr(item)
    return text if len(text) <= 60 else text[:57] + "..."


class FilterSource(Iterator[bytes]):
    """The input of a filter or function; it keeps its own error, to tell it from errors of the user's code."""

    def __init__(self, source: Iterable[bytes]) -> None:
        self._source = iter(source)
        self.error: BaseException | None = None

    def __next__(self) -> bytes:
        try:
            return next(self._source)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise


def load_function(text: str, cwd: Path) -> Callable[..., Iterable[object]]:
    """Import and return the function that ``FILE.py:NAME`` or ``MODULE:NAME`` names. Runs the module's code.

    Raises:
        RefusedError: The module cannot be imported, or has no such function.
    """
    place, _, name = text.rpartition(":")
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # write no .pyc files into the user's folder
    try:
        if place.endswith(".py"):
            found = importlib.util.spec_from_file_location(Path(place).stem, cwd / place)
            assert found and found.loader  # always set for a name that ends in .py
            module = importlib.util.module_from_spec(found)
            sys.path.insert(0, str((cwd / place).parent))
            found.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise RefusedError(
            f"{place}: cannot be loaded: {_format_error_line(error)}", "see that python can run it"
        ) from error
    finally:
        sys.dont_write_bytecode = writes
    function = getattr(module, name, None)
    if not callable(function):
        raise RefusedError(f"{place}: has no function {name}", "say FILE.py:FUNCTION")
    return function  # type: ignore[no-any-return]


def apply_function(
    function: Callable[..., Iterable[object]], source: Iterable[bytes], options: Mapping[str, Any],
    output: FileOutput | FolderOutput, who: str,
) -> None:  # fmt: skip
    """Call ``function(records, **options)`` and write all that it yields.

    Args:
        who: Name of the phase and function, for messages.

    Raises:
        ToolError: The function raised an exception, or yielded a value that cannot be written.
        MillraceError, OSError: The input cannot be read, or the output cannot be written.
    """
    given = FilterSource(source)
    results = iter(_call_user_code(lambda: iter(function(given, **options)), given, who))
    missing = object()
    while (item := _call_user_code(lambda: next(results, missing), given, who)) is not missing:
        output.write(item, who)
    if given.error:
        raise given.error
    output.finish()


def _call_user_code(call: Callable[[], Any], given: FilterSource, who: str) -> Any:
    """Call the user's code; raise ``ToolError`` for its own exception, or the error of its input.

    SystemExit counts as an exception of the code.
    """
    try:
        return call()
    except BaseException as error:  # sys.exit, too
        if given.error:
            raise given.error from error
        raise ToolError(
            f"{who}: {_format_error_line(error)}\n{_format_user_frames(error)}",
            "the same command goes on where it was; a changed function starts over, with --fresh",
        ) from error


def _format_error_line(error: BaseException) -> str:
    """Return the last line of an exception's traceback: type and message."""
    return traceback.format_exception_only(error)[-1].strip()


def _format_user_frames(error: BaseException) -> str:
    """Return the part of a traceback that lies in the user's code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    return "".join(traceback.format_list(frames)).rstrip()


def run_shell_line(line: str, source: Iterable[bytes], output: FileOutput, cwd: Path, who: str) -> None:
    """Run a shell line with ``source`` as its standard input, and write its standard output.

    The output passes through this process, so that nothing is written after this process has died.

    Raises:
        ToolError: The exit status is not 0.
        MillraceError, OSError: The input cannot be read, or the output cannot be written.
    """
    given = FilterSource(source)
    with subprocess.Popen(
        ["/bin/sh", "-c", line], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0
    ) as tool:
        assert tool.stdin and tool.stdout  # both are pipes
        own = os.dup(tool.stdin.fileno())  # Popen closes tool.stdin at the end; the thread needs its own
        tool.stdin.close()
        threading.Thread(target=_feed_shell_line, args=(given, own, tool.pid), name="feed", daemon=True).start()
        while block := tool.stdout.read(BLOCK_BYTES):
            output.write(block, who)
        status = tool.wait()
        # A tool may end without reading all of its input.
    if given.error:
        raise given.error
    if status:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        raise ToolError(f"{who}: {how}: {line}", "its own words stand above, if it had any")
    output.finish()


def _feed_shell_line(given: FilterSource, descriptor: int, group: int) -> None:
    """Write the input into ``descriptor`` and close it; after a read error, kill the process group of the shell.

    Closing the pipe would look like the end of the input, and remaining processes would keep the output open.
    """
    try:
        for block in given:
            write_all(descriptor, block)
    except BrokenPipeError:
        pass  # the tool has closed its input
    except Exception:  # given.error has the reason
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    os.close(descriptor)
