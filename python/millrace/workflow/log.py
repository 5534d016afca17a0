"""When phases began and ended: one line each, for the report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from millrace.model import Frozen


class Line(Frozen, frozen=True, omit_defaults=True):
    """What has happened to a phase; ``time`` in seconds since 1970."""

    time: float
    phase: str
    what: Literal["begun", "ended"]
    code: int = 0


class Log:
    """Writes lines to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, phase: str, what: Literal["begun", "ended"], code: int = 0) -> None:
        """Write one line."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(Line(time.time(), phase, what, code)) + b"\n")


def read(path: Path) -> Iterator[Line]:
    """The lines of a log; one that a kill has cut is left out."""
    if path.exists():
        for line in path.read_bytes().splitlines():
            try:
                yield msgspec.json.decode(line, type=Line)
            except msgspec.DecodeError:
                continue
