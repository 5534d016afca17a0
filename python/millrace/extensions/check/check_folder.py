"""The private folder of a round of a check: its links, its sample, and the processes that run in it.

It has links to the files of the user's working folder, and receives the outputs. The sample is the first records of
an input, and its records in reverse order. On a signal the processes end, and the folder is removed, before the check
itself ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from millrace import _core
from millrace.adapters.adapter_base import is_stream_path
from millrace.core.errors import RefusedError
from millrace.core.tool_use import ToolUse
from millrace.host.signals import STOPPING, StoppedBySignalError

#: Records of each input at most: in batches of one, each record starts the tool, in several rounds.
MAX_RECORDS = 100


def open_record_reader(path: Path, form: str, patterns: tuple[str, str]) -> _core.Reader:
    """Open a reader of the records of one file.

    Args:
        patterns: Of the first and of the last line of a record, where ``form`` is ``regex``.
    """
    start, end = patterns
    return _core.Reader([str(path)], form, record_start=start or None, record_end=end or None)


def write_first_records(path: Path, form: str, patterns: tuple[str, str], dest: Path) -> bool:
    """Write the first ``MAX_RECORDS`` records of an input to ``dest``; return whether the input has more."""
    found = open_record_reader(path, form, patterns)
    if not found.cut(str(dest), MAX_RECORDS, 0, 0):
        return False
    is_large = found.cut(str(dest.with_name(f"{dest.name}.more")), 1, 0, 0) is not None
    _compress_like_input(dest, found.compression)
    return is_large


def write_reversed_records(path: Path, form: str, patterns: tuple[str, str], dest: Path) -> None:
    """Write the records of an input to ``dest``, from the last to the first."""
    found, records = open_record_reader(path, form, patterns), list[bytes]()
    header = found.header
    while found.cut(str(dest), 1, 0, 0):
        records.append(dest.read_bytes()[len(header) :])
    # The last record of a file may lack an end of line, but in the middle it needs one.
    whole = (text if text.endswith((b"\n", b"\0")) else text + b"\n" for text in reversed(records))
    dest.write_bytes(header + b"".join(whole))
    _compress_like_input(dest, found.compression)


def _compress_like_input(path: Path, compression: str) -> None:
    """Compress a file as the input was: the serial tool unpacks it itself."""
    if compression:
        plain = path.rename(path.with_name(f"{path.name}.plain"))
        _core.compress_file(plain, path, compression)
        plain.unlink()


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Raise ``StoppedBySignalError`` within the context when a signal asks to stop.

    Further signals are ignored, so that the clean-up after the first is not interrupted.
    """
    before = {number: signal.getsignal(number) for number in STOPPING}
    caught = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def stop(number: int, _: FrameType | None) -> None:
        for each in caught:
            signal.signal(each, signal.SIG_IGN)
        name = signal.Signals(number).name
        raise StoppedBySignalError(f"stopped by {name}; nothing of the check is left", "", number)

    for number in caught:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number])


@contextmanager
def run_process(
    command: Sequence[str], cwd: Path, environ: Mapping[str, str], stdin: BinaryIO, stdout: BinaryIO, *, tidy: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` with its standard error in a pipe; end it, if it still runs, when the context is left.

    Args:
        tidy: Whether it ends its own children on SIGTERM; otherwise its process group is killed.
    """
    # A signal during the start of the process would leave it an orphan.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        process = subprocess.Popen(
            command, cwd=cwd, env=environ, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
        )  # fmt: skip
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield process
    finally:
        if process.poll() is None and not tidy:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.stderr is not None  # a pipe was asked for
        _end_process(process)


#: Interval at which SIGTERM is repeated.
AGAIN_SECONDS = 0.5


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM until the process ends: the first makes it end its children, the second ends it at once.

    The results of its running tools are not needed.
    """
    while process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=AGAIN_SECONDS)
    if process.stderr and not process.stderr.closed:
        process.communicate()


def is_file_path(path: str) -> bool:
    """Tell whether the path of an input or output is a file, so neither a standard stream nor a device."""
    return path != "-" and not is_stream_path(path)


def refuse_uncheckable(use: ToolUse) -> None:
    """Refuse a command that cannot be checked, before anything runs.

    Raises:
        RefusedError: An input or output is outside the working folder, or each file is a record.
    """
    for item in (each for each in use.inputs if each.format == "files"):
        words = " ".join(item.paths)[:60]
        raise RefusedError(
            f"each file of {words} is a record, and no batch cuts it: there is nothing to compare",
            "millrace run -- ... does what a shell loop over the files does",
        )
    for output in use.outputs:
        if output.layout != "file":
            raise RefusedError(f"{output.path} is more than one file, which is not compared", "check a single output")
    for path in [*(each.path for each in use.inputs), *(each.path for each in use.outputs)]:
        if is_file_path(path) and (os.path.isabs(path) or os.path.normpath(path).startswith("..")):
            raise RefusedError(
                f"{path} is outside the working folder, and a check writes its own version of it",
                "go to a folder that has the sample in it, and name inputs and outputs from there",
            )


def link_user_folder(folder: Path, work: Path, outputs: Set[str], inputs: Set[str]) -> None:
    """Make ``work`` with links to the entries of ``folder``, but real folders on the way to each input and output.

    Args:
        outputs: Normalized paths below ``folder`` that get no link; their parent folders are made.
        inputs: Normalized paths below ``folder`` whose links can be replaced in ``work``.
    """
    work.mkdir(parents=True)
    for entry in os.scandir(folder):
        written, read = _select_paths_below(entry.name, outputs), _select_paths_below(entry.name, inputs)
        if (written or read) and entry.is_dir():
            link_user_folder(Path(entry.path), work / entry.name, written, read)
        elif entry.name not in outputs and not entry.name.endswith((".millrace", ".millrace-failed")):
            (work / entry.name).symlink_to(entry.path)
    for path in outputs:
        (work / path).parent.mkdir(parents=True, exist_ok=True)


def _select_paths_below(name: str, paths: Set[str]) -> set[str]:
    return {path[len(name) + 1 :] for path in paths if path.startswith(f"{name}/")}
