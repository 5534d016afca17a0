"""What stands between two phases: a shell command from one file to another, or a Python function over records."""

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
from typing import Any

from millrace.errors import RefusedError, ToolError
from millrace.workflow.filter_output import FileOutput, FolderOutput
from millrace.workflow.follow import BLOCK_BYTES, write_all


class Given(Iterator[bytes]):
    """What a function reads, which remembers what went wrong in it: that is not the function's fault."""

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


def load(text: str, cwd: Path) -> Callable[..., Iterable[object]]:
    """The function that ``FILE.py:NAME`` or ``MODULE:NAME`` names.

    Raises:
        RefusedError: It is not there, or the file cannot be loaded.
    """
    place, _, name = text.rpartition(":")
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing of ours in the user's folder
    try:
        if place.endswith(".py"):
            found = importlib.util.spec_from_file_location(Path(place).stem, cwd / place)
            assert found and found.loader  # both are there for a name that ends so
            module = importlib.util.module_from_spec(found)
            sys.path.insert(0, str((cwd / place).parent))
            found.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise RefusedError(f"{place}: cannot be loaded: {_last_line(error)}", "see that python can run it") from error
    finally:
        sys.dont_write_bytecode = writes
    function = getattr(module, name, None)
    if not callable(function):
        raise RefusedError(f"{place}: has no function {name}", "say FILE.py:FUNCTION")
    return function  # type: ignore[no-any-return]


def apply(
    function: Callable[..., Iterable[object]], source: Iterable[bytes], options: Mapping[str, Any],
    output: FileOutput | FolderOutput, who: str,
) -> None:  # fmt: skip
    """Call ``function(records, **options)`` and write what it yields.

    Args:
        who: The function, for messages.

    Raises:
        ToolError: It raised something, or yields what cannot be written.
        MillraceError, OSError: Its input could not be read, or its output not be written.
    """
    given = Given(source)
    results = iter(_called(lambda: iter(function(given, **options)), given, who))
    missing = object()
    while (item := _called(lambda: next(results, missing), given, who)) is not missing:
        output.write(item, who)
    if given.error:
        raise given.error
    output.finish()


def _called(call: Callable[[], Any], given: Given, who: str) -> Any:
    """What the user's code gives; an error of its own is told from one of its input."""
    try:
        return call()
    except BaseException as error:  # sys.exit, too
        if given.error:
            raise given.error from error
        raise ToolError(
            f"{who}: {_last_line(error)}\n{_where(error)}",
            "the same command goes on where it was; a changed function starts over, with --fresh",
        ) from error


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def _where(error: BaseException) -> str:
    """The lines of the user's code in which an error was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    return "".join(traceback.format_list(frames)).rstrip()


def shell(line: str, source: Iterable[bytes], output: FileOutput, cwd: Path, who: str) -> None:
    """Run a shell line over ``source`` and write what it gives.

    What it writes goes through this process, so that nothing is written any more when that is dead.

    Raises:
        ToolError: It ends with another exit status than 0.
        MillraceError, OSError: Its input could not be read, or its output not be written.
    """
    given = Given(source)
    with subprocess.Popen(
        ["/bin/sh", "-c", line], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0
    ) as tool:
        assert tool.stdin and tool.stdout  # both are pipes
        own = os.dup(tool.stdin.fileno())  # that of the tool is closed once it has ended
        tool.stdin.close()
        threading.Thread(target=_feed, args=(given, own, tool.pid), name="feed", daemon=True).start()
        while block := tool.stdout.read(BLOCK_BYTES):
            output.write(block, who)
        status = tool.wait()
        # One that needs no more of its input ends before that.
    if given.error:
        raise given.error
    if status:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        raise ToolError(f"{who}: {how}: {line}", "its own words stand above, if it had any")
    output.finish()


def _feed(given: Given, descriptor: int, group: int) -> None:
    """Write what is given into ``descriptor``; if that goes wrong, end all that the line has started.

    An end of its input would look like that of the file, and who is left would keep its output open for ever.
    """
    try:
        for block in given:
            write_all(descriptor, block)
    except BrokenPipeError:
        pass  # it needs no more
    except Exception:  # given.error says why
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    os.close(descriptor)
