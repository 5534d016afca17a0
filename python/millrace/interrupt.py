"""Signals: the first asks to stop, the second means now."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from types import FrameType
from typing import Any

from millrace.errors import MillraceError

#: What schedulers send before they kill: at the end of the wall time, before ``qdel`` or a kill, at the end of the CPU time.
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *WARNINGS)

#: The first interrupt that came before a run takes signals over.
_early: list[int] = []


def end_quietly(number: int, _: FrameType | None) -> None:
    """The handler of SIGINT until a run takes signals over, as Python's own; what drops the exception is not the end of it.

    Raises:
        KeyboardInterrupt: Always.
    """
    _early.append(number)
    raise KeyboardInterrupt


class StoppedBySignal(MillraceError):
    """The run was asked to stop; exit code 128 + the signal."""

    def __init__(self, message: str, hint: str, number: int) -> None:
        super().__init__(message, hint)
        self.args = (message, hint, number)
        self.number = number

    @property
    def status(self) -> int:
        """See `MillraceError`."""
        return 128 + self.number


class Interrupt:
    """Counts the signals that ask to stop; use as a context.

    Args:
        supervised: A supervisor takes the signals, and tells. What comes here comes from a launcher that ends its job
            because it has lost a part of it: SIGTERM ends this process at once, the others mean nothing.
    """

    def __init__(self, *, supervised: bool = False) -> None:
        self._supervised = supervised
        self.signal = 0
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in STOPPING:
            # A signal that the parent had us ignore (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handler(number))
        if _early and not self._supervised:  # code that Python calls while it looks something up may drop an exception
            self.note(_early[0])
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handler(self, number: signal.Signals) -> Any:
        if not self._supervised:
            return self._note
        return signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN

    def _note(self, number: int, _: FrameType | None) -> None:
        self.note(number)

    def note(self, number: int) -> None:
        """Somebody asks to stop, as if by this signal."""
        self.signal = self.signal or number
        self.count += 1

    @property
    def name(self) -> str:
        return signal.Signals(self.signal).name

    def error(self, run_dir: Path) -> MillraceError:
        """What to say at the end of an interrupted run."""
        return StoppedBySignal(
            f"stopped by {self.name}; everything done so far is kept in {run_dir}",
            "type the same command again: it resumes",
            number_told(self.signal),
        )


def number_told(number: int) -> int:
    """The signal of which the exit code tells: a scheduler's warning ends a run as SIGTERM does."""
    return signal.SIGTERM if number in WARNINGS else number


def nobody_reads(run_dir: Path) -> StoppedBySignal:
    """The end of a run whose standard output was closed, as by ``head``."""
    return StoppedBySignal(
        f"nobody reads standard output any more; everything done so far is kept in {run_dir}",
        f"the same command resumes; to drop it: rm -r {shlex.quote(str(run_dir))}",
        signal.SIGPIPE,
    )
