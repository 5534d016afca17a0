"""Signals that stop a run: the first asks to stop, the second stops at once."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from types import FrameType
from typing import Any

from millrace.core.errors import MillraceError

#: Warnings of schedulers: at the end of the wall time, before ``qdel`` or a kill, at the end of the CPU time.
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *WARNINGS)

#: Interrupts received before a run handles signals.
_early: list[int] = []


def raise_keyboard_interrupt(number: int, _: FrameType | None) -> None:
    """Handle SIGINT until a run handles signals, as Python does; remember it in case the exception is dropped.

    Raises:
        KeyboardInterrupt: Always.
    """
    _early.append(number)
    raise KeyboardInterrupt


class StoppedBySignalError(MillraceError):
    """The run was asked to stop; exit code 128 + the signal."""

    def __init__(self, message: str, hint: str, number: int) -> None:
        super().__init__(message, hint)
        self.args = (message, hint, number)
        self.number = number

    @property
    def status(self) -> int:
        """See ``MillraceError``."""
        return 128 + self.number


class StopSignals:
    """A counter of the signals that ask to stop; use as a context.

    Within the context of another one, it passes on at its end that a signal has come: what was to be done next is not.

    Args:
        supervised: A supervisor handles the signals, and forwards requests. Signals received here come from a launcher
            that ends its job because it has lost a part of it: SIGTERM ends this process at once, the others are
            ignored.
    """

    def __init__(self, *, supervised: bool = False) -> None:
        self._supervised = supervised
        self.signal = 0
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in STOPPING:
            # A signal that the parent had us ignore (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._choose_handler(number))
        if _early and not self._supervised:  # an exception raised in a lookup hook of Python may be dropped
            self.count_signal(_early[0])
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        outer = getattr(self._before.get(signal.SIGTERM), "__self__", None)
        if self.count and isinstance(outer, StopSignals):
            outer.count_signal(self.signal)

    def _choose_handler(self, number: signal.Signals) -> Any:
        if not self._supervised:
            return self._on_signal
        return signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.count_signal(number)

    def count_signal(self, number: int) -> None:
        """Count a request to stop, as if by this signal."""
        self.signal = self.signal or number
        self.count += 1

    @property
    def name(self) -> str:
        return signal.Signals(self.signal).name

    def make_error(self, run_dir: Path) -> MillraceError:
        """Make the final error of an interrupted run."""
        return StoppedBySignalError(
            f"stopped by {self.name}; everything done so far is kept in {run_dir}",
            "type the same command again: it resumes",
            map_exit_signal(self.signal),
        )


def map_exit_signal(number: int) -> int:
    """Return the signal for the exit code: a scheduler's warning counts as SIGTERM."""
    return signal.SIGTERM if number in WARNINGS else number


def make_closed_output_error(run_dir: Path) -> StoppedBySignalError:
    """Make the error of a run whose standard output was closed, as by ``head``."""
    return StoppedBySignalError(
        f"nobody reads standard output any more; everything done so far is kept in {run_dir}",
        f"the same command resumes; to drop it: rm -r {shlex.quote(str(run_dir))}",
        signal.SIGPIPE,
    )
