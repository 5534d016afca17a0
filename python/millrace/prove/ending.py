"""Processes of a check: on a signal they end, and the folder of the check is removed, before the check itself ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from millrace.interrupt import STOPPING, StoppedBySignalError


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
