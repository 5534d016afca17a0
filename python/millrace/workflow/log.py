"""When phases began and ended: one line each, for the report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from millrace.model import Frozen

#: ``killed``: it had not ended when the job was killed; the next start of the job writes so, with the last sign of life.
What: TypeAlias = Literal["begun", "ended", "killed"]


class Line(Frozen, frozen=True, omit_defaults=True):
    """What has happened to a phase; ``time`` in seconds since 1970."""

    time: float
    phase: str
    what: What
    code: int = 0


class Log:
    """Writes lines to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, phase: str, what: What, code: int = 0, at: float | None = None) -> None:
        """Write one line.

        Args:
            at: When it happened; default: now.
        """
        with self._path.open("ab") as file:
            line = Line(time=time.time() if at is None else at, phase=phase, what=what, code=code)
            file.write(msgspec.json.encode(line) + b"\n")


def read(path: Path) -> Iterator[Line]:
    """The lines of a log; one that a kill has cut is left out."""
    if path.exists():
        for line in path.read_bytes().splitlines():
            try:
                yield msgspec.json.decode(line, type=Line)
            except msgspec.DecodeError:
                continue
