"""Runs started from Python: their options, with types, and processes whose output is read while they run.

The thread that reads the results also writes standard input, only as fast as the run reads it.
"""

from __future__ import annotations

import fcntl
import os
import select
import shlex
import subprocess
import tempfile
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal, Self, TypeAlias, TypedDict, Unpack

from millrace.api import notebook
from millrace.core.errors import ExitCode, MillraceError, split_hint
from millrace.core.job import split_command
from millrace.host import lock_owner
from millrace.host.python_launch import make_python_command

#: A path, as text or as an object.
StrPath: TypeAlias = str | os.PathLike[str]


class RunOptions(TypedDict, total=False):
    """Options of ``millrace run`` under their names there, with ``_`` for ``-``.

    An option that may be repeated takes one value or several.
    """

    slots: int
    run_dir: StrPath
    store: StrPath
    no_store: bool
    work_dir: StrPath
    fresh: bool
    as_: str
    input: StrPath | Sequence[StrPath]
    output: StrPath | Sequence[StrPath]
    join: str | Sequence[str]
    shared: StrPath | Sequence[StrPath]
    ok_status: int | Sequence[int]
    format: str
    records: bool
    warm: bool
    record_start: str
    record_end: str
    batch: str | int
    fragments: str | int
    retries: int
    record_timeout: float
    on_failure: Literal["quarantine", "stop"]
    max_quarantined: str | int
    retry_quarantined: bool
    keep_run_dir: bool
    atomic_output: bool
    grace: float
    profile_io: bool
    metrics: StrPath
    notify: str
    sync: float
    verify: float
    independent: bool
    progress: Literal["auto", "bar", "plain", "json", "none"]
    hosts: str
    dask: str
    patience: float
    partition_size: int
    stage: StrPath
    replicas: int
    write: Literal["merge", "individual", "collective", "coordinator"]
    nice: int
    quiet: bool
    verbose: bool
    pack_to: StrPath
    with_queries: bool
    verify_pack: float


def format_option(name: str, value: object) -> list[str]:
    """Return an option as the words of a command line.

    >>> format_option("run_dir", "r"), format_option("fresh", True), format_option("fresh", False)
    (['--run-dir', 'r'], ['--fresh'], [])
    >>> format_option("output", ["a", "b"]), format_option("as_", "blastp")
    (['--output', 'a', '--output', 'b'], ['--as', 'blastp'])
    """
    option = f"--{name.rstrip('_').replace('_', '-')}"
    if value is True:
        return [option]
    if value is False or value is None:
        return []
    several = value if isinstance(value, list | tuple) else [value]
    return [word for each in several for word in (option, str(each))]


#: Bytes written and read at once.
PIECE_BYTES = 1 << 16

#: Capacity of the pipe, in bytes: the run has work while its caller handles a result.
PIPE_BYTES = 1 << 20

#: Longest time to fill a piece, in seconds; then it is sent as it is.
MAX_PIECE_SECONDS = 0.05


def feed_and_read_lines(results: int, into: int, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Write ``lines`` into a pipe as its reader takes them, in this thread, and yield the lines of the results.

    An error of ``lines`` is raised after the results of all lines before it.

    Args:
        results: The reading end of the results; the caller closes it.
        into: The writing end of the pipe; closed at the end of ``lines``, or when the iteration ends.
    """
    with suppress(OSError):  # above this user's limit
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    feed = _LineFeed(into, lines)
    poll = select.poll()
    poll.register(results, select.POLLIN)
    poll.register(into, select.POLLOUT)
    rest = b""
    try:
        while True:
            ready = dict(poll.poll())
            if results in ready:  # results first
                if not (block := os.read(results, PIECE_BYTES)):
                    break
                *whole, rest = (rest + block).split(b"\n")
                yield from (line + b"\n" for line in whole)
            if into in ready and not feed.write():
                poll.unregister(into)
                feed.close()
    finally:
        feed.close()
    if feed.error:
        raise feed.error


class _LineFeed:
    """The writing end of the pipe, and the lines still to be written."""

    def __init__(self, into: int, lines: Iterable[bytes]) -> None:
        self._into, self._lines = into, iter(lines)
        self._left = memoryview(b"")
        self._is_over = False
        #: The error that the lines have raised.
        self.error: Exception | None = None
        os.set_blocking(into, False)

    def write(self) -> bool:
        """Write as much as the pipe takes without blocking, and return whether more may follow."""
        if not self._left:
            self._left = memoryview(self._build_piece())
        if not self._left:
            return False
        try:
            self._left = self._left[os.write(self._into, self._left) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False  # the run has ended, and reports why
        return True

    def close(self) -> None:
        """Close the pipe, which ends the input. May be called twice."""
        if self._into >= 0:
            os.close(self._into)
            self._into = -1

    def _build_piece(self) -> bytes:
        """Return the next lines, up to ``PIECE_BYTES`` bytes or ``MAX_PIECE_SECONDS``; empty at the end."""
        pieces, size, begun = list[bytes](), 0, time.monotonic()
        while not self._is_over and size < PIECE_BYTES and (not pieces or time.monotonic() - begun < MAX_PIECE_SECONDS):
            try:
                line = next(self._lines, None)
            except Exception as error:
                self.error, line = error, None
            if line is None:
                self._is_over = True
                break
            pieces.append(line)
            size += len(line)
        return b"".join(pieces)


class RunError(MillraceError):
    """A failed or refused run; ``code`` is the exit code of ``millrace run``."""

    def __init__(self, message: str, hint: str = "", code: int = ExitCode.STOPPED) -> None:
        # All fields, in order: pickle rebuilds an exception from its args.
        super().__init__(message, hint)
        self.args = (message, hint, code)
        self.code = code

    @property
    def status(self) -> int:
        return self.code


class Run:
    """A run: an iterator over the lines of its standard output, in the order of the input, while it runs.

    Args:
        command: The serial command: words or paths, or a text that is split as by a shell.
        options: Options of ``millrace run``.
        stdin: Standard input of the command.
        cwd: The working folder; default: that of this process.
        left: The warning if the run is dropped before its end; default: a text that names the command.
        bar: Whether to show a bar below the cell of a notebook; default: in a notebook.
        feed: Lines of standard input, in place of ``stdin``: read as the run takes them, while its results are read.
    """

    def __init__(
        self, command: StrPath | Sequence[StrPath], options: Sequence[str] = (), *, stdin: int | IO[bytes] = subprocess.DEVNULL,
        cwd: StrPath | None = None, left: str = "", bar: bool | None = None,
        feed: Iterable[bytes] | None = None,
    ) -> None:  # fmt: skip
        self.command = split_command(command)
        self._words = left or (
            f"{shlex.join(self.command)}: the run was left before its end, and told to stop; the same call goes on with it: "
            "read all lines, or say with millrace.run(...) as run:"
        )
        #: After the end: its standard error, with warnings, the summary, or the error.
        self.said = ""
        # A file, not a pipe: it may be long, and is read only at the end.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the run lasts
        #: Stops the run when it is dropped while it is read.
        self._left: weakref.finalize[..., Run] | None = None
        has_bar = notebook.is_notebook_kernel() if bar is None else bar
        progress = "json" if has_bar else "none"
        self._feed, self._into = feed, -1
        if feed is not None:
            stdin, self._into = os.pipe2(os.O_CLOEXEC)
        self._process = subprocess.Popen(
            make_python_command("-m", "millrace", "run", "--progress", progress, *options, "--", *self.command),
            stdin=stdin, stdout=subprocess.PIPE, stderr=self._said, cwd=cwd, bufsize=PIECE_BYTES,
            env={**os.environ, lock_owner.VARIABLE: lock_owner.identify_caller()},
        )  # fmt: skip
        if feed is not None:
            assert isinstance(stdin, int)
            os.close(stdin)
        self._bar = notebook.NotebookBar(self._said.fileno()) if has_bar else None

    def __iter__(self) -> Iterator[bytes]:
        """Yield each line with its end. A run whose last reference is gone is stopped, with a warning.

        Raises:
            RunError: The run failed; all lines before are right.
        """
        assert self._process.stdout is not None  # a pipe was asked for
        self._left = self._left or weakref.finalize(self, _stop_left_run, self._words, self._process)
        if self._feed is None:
            yield from self._process.stdout
        else:
            into, self._into = self._into, -1
            yield from feed_and_read_lines(self._process.stdout.fileno(), into, self._feed)
        self.wait()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield each line for ``async for``, waiting in a thread, so that other tasks go on.

        Raises:
            RunError: The run failed; all lines before are right.
        """
        import asyncio  # few programs need it

        lines = iter(self)
        while line := await asyncio.to_thread(next, lines, b""):
            yield line

    def wait(self) -> Self:
        """Wait for the end and drop unread lines.

        Raises:
            RunError: The run failed.
        """
        assert self._process.stdout is not None
        while not self._process.stdout.closed and self._process.stdout.read(PIECE_BYTES):
            pass
        self._process.stdout.close()
        self._process.wait()
        if code := self._finish_process():
            message, hint = split_hint(self.said.removeprefix("millrace: "))
            raise RunError(message.strip() or f"the run ended with exit code {code}", hint.strip(), code)
        return self

    def _finish_process(self) -> int:
        """Store the standard error of the ended process, close files, and return the exit code."""
        if self._left:
            self._left.detach()
        if self._bar:
            self._bar.close()
        if not self._said.closed:
            self._said.seek(0)
            said = self._said.read().decode(errors="replace")
            self.said = notebook.strip_progress(said) if self._bar else said
            self._said.close()
        if self._into >= 0:
            os.close(self._into)
            self._into = -1
        return self._process.returncode

    def stop(self) -> None:
        """Terminate the run if it has not ended, and wait for it. The same command resumes it."""
        if self._process.poll() is None:
            self._process.terminate()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()
        self._finish_process()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def _stop_left_run(words: str, process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to a run that was not read to its end, and warn; do not wait, as its tasks may take long."""
    if process.poll() is None:
        process.terminate()
        warnings.warn(words, RuntimeWarning, stacklevel=2)


def run(
    command: StrPath | Sequence[StrPath], *, cwd: StrPath | None = None, stdin: StrPath | None = None, bar: bool | None = None,
    **options: Unpack[RunOptions],
) -> Run:  # fmt: skip
    """Run a serial command on every core, as ``millrace run`` does.

    Output files are complete at the end. Standard output is read from the result line by line, in the order of the
    input, while the run lasts.

    Args:
        command: Program and arguments: words or path objects, or a text that is split as by a shell, without pipes and
            globs.
        cwd: The working folder; default: that of this process.
        stdin: The file for standard input; default: none.
        bar: Whether to show a bar below the cell of a notebook; default: in a notebook.
        options: Options of ``millrace run``: ``slots=4``, ``run_dir="r"``, ``input="q.fa"``, ``fresh=True``,
            ``output=["a", "b"]``, ``as_="blastp"``.

    Returns:
        The run, already started: iterate over it, or call ``Run.wait``.

    Raises:
        RefusedError: The text has an unclosed quotation.
        RunError: From the iteration and from ``Run.wait``: the run was refused, or failed.

        for line in run(["grep", "-v", "x", "in.txt"], input="in.txt"):
            print(line)
    """
    words = [word for name, value in options.items() for word in format_option(name, value)]
    if stdin is None:
        return Run(command, words, cwd=cwd, bar=bar)
    with Path(cwd or ".", stdin).open("rb") as file:
        return Run(command, words, stdin=file, cwd=cwd, bar=bar)
