"""The folder of a job in phases, as whoever looks at it finds it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from millrace.errors import ExitCode
from millrace.model import Frozen
from millrace.sealed import unseal
from millrace.storage import past
from millrace.workflow.log import Line, Log, read

VERSION = 2

#: Files in it. The last says that all is done, and that the rest is to go.
MANIFEST, LOG, DONE = "workflow.json", "phases.jsonl", "done"


class Manifest(Frozen, frozen=True):
    """What a workflow is: an equal one resumes it."""

    version: int
    cwd: str
    #: `millrace.workflow.planned.parts`.
    phases: dict[str, dict[str, str]]


class Stretch(msgspec.Struct):
    """A phase at work, from its begin to its end; times in seconds since 1970."""

    phase: str
    begun: float
    #: None: it still is, or was killed.
    ended: float | None = None
    code: int = 0
    #: Time of its end, of its last sign of life if it was killed, or of the latest look at it.
    last: float = 0.0
    #: Whether the log says that it was killed.
    killed: bool = False


def ended_so(code: int) -> Literal["done", "quarantined", "interrupted", "stopped"]:
    """How a job or a phase has ended with this exit code."""
    if code > 128:
        return "interrupted"
    if code == ExitCode.QUARANTINED:
        return "quarantined"
    return "stopped" if code else "done"


def is_workflow(folder: Path) -> bool:
    """Whether a job in phases is there."""
    return (folder / MANIFEST).exists()


def names(folder: Path) -> tuple[str, ...]:
    """Its phases, in their order.

    Raises:
        CorruptError: The manifest cannot be understood.
        FileNotFoundError: It is gone.
    """
    return tuple(unseal(folder / MANIFEST, Manifest, "the manifest of a job in phases", VERSION).phases)


def stretches(lines: Sequence[Line], now: float) -> list[Stretch]:
    """When phases were at work, in the order of their begins.

    Args:
        now: Until when they are, if no end was written: the present, or the `last_sign` of a job that was killed; seconds
            since 1970.
    """
    found: list[Stretch] = []
    latest: dict[str, Stretch] = {}
    for line in lines:
        if line.what == "begun":
            if line.phase in latest and latest[line.phase].ended is None and not latest[line.phase].killed:
                latest[line.phase].last = line.time  # when it was killed nobody has written
            latest[line.phase] = Stretch(line.phase, line.time)
            found.append(latest[line.phase])
        elif line.phase in latest and line.what == "killed":
            latest[line.phase].last, latest[line.phase].killed = max(line.time, latest[line.phase].begun), True
        elif line.phase in latest:
            latest[line.phase].ended, latest[line.phase].code = line.time, line.code
    for each in found:
        each.last = each.ended or each.last or max(now, each.begun)
    return found


def last_sign(folder: Path) -> float:
    """Return when the processes of the job last wrote to its folder, in seconds since 1970: its last sign of life.

    The lock is written every few seconds while the job lasts, the log of a phase about once a second.
    """
    found = 0.0
    for path in (folder / "lock", folder / LOG, *folder.glob(f"*/{past.EVENTS}"), *folder.glob("*/lock")):
        with suppress(OSError):
            found = max(found, path.stat().st_mtime)
    return found


def note_killed(folder: Path, last: float) -> None:
    """Add to the log which phases were at work when the job was killed.

    Args:
        last: See `last_sign`; taken before this start of the job wrote to the folder.
    """
    if not is_workflow(folder):
        return
    log = Log(folder / LOG)
    for each in stretches(list(read(folder / LOG)), last):
        if each.ended is None and not each.killed:
            log.write(each.phase, "killed", at=each.last)
