"""The log of the begins and ends of phases: one JSON line each, for the report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from millrace.model import FrozenValue

#: ``killed``: the phase was running when the job was killed. The next start of the job writes it, with the time of the
#: last sign of life.
What: TypeAlias = Literal["begun", "ended", "killed"]


class PhaseLogLine(FrozenValue, frozen=True, omit_defaults=True):
    """A line of the log; ``time`` in seconds since 1970."""

    time: float
    phase: str
    what: What
    code: int = 0


class PhaseLog:
    """A writer of log lines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, phase: str, what: What, code: int = 0, at: float | None = None) -> None:
        """Append one line.

        Args:
            at: Time of the event, in seconds since 1970; default: now.
        """
        with self._path.open("ab") as file:
            line = PhaseLogLine(time=time.time() if at is None else at, phase=phase, what=what, code=code)
            file.write(msgspec.json.encode(line) + b"\n")


def read_phase_log(path: Path) -> Iterator[PhaseLogLine]:
    """Yield the lines of a log, without lines cut by a kill; none if there is no file."""
    if path.exists():
        for line in path.read_bytes().splitlines():
            try:
                yield msgspec.json.decode(line, type=PhaseLogLine)
            except msgspec.DecodeError:
                continue
