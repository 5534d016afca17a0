"""A check that is told to stop: its processes end, and its folder goes, before it does."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from millrace.interrupt import STOPPING, StoppedBySignal


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise `StoppedBySignal` in what goes on inside when a signal asks to stop.

    Further ones change nothing any more, so that the first can be obeyed in order.
    """
    before = {number: signal.getsignal(number) for number in STOPPING}
    caught = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def stop(number: int, _: FrameType | None) -> None:
        for each in caught:
            signal.signal(each, signal.SIG_IGN)
        name = signal.Signals(number).name
        raise StoppedBySignal(f"stopped by {name}; nothing of the check is left", "", number)

    for number in caught:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number])


@contextmanager
def running(
    command: Sequence[str], cwd: Path, environ: Mapping[str, str], stdin: BinaryIO, stdout: BinaryIO, *, tidy: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` with its standard error in a pipe; it has ended when the context is left, whatever happens.

    Args:
        tidy: It ends its own processes when SIGTERM asks it to; otherwise all of its process group are killed.
    """
    # A signal that came while the process is made would leave it to nobody.
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
        _end(process)


#: Seconds after which a process that was told to end is told again.
AGAIN_SECONDS = 0.5


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process that ends its own when SIGTERM asks it to, and at once when it is asked again.

    What tools that run would still find is of no use to anybody.
    """
    while process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=AGAIN_SECONDS)
    if process.stderr and not process.stderr.closed:
        process.communicate()
