"""The folder of a job in phases: its files, their meaning, and the working times of its phases.

Its log has one JSON line for each begin and end of a phase, for the report.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from millrace.core.errors import ExitCode
from millrace.core.tool_use import FrozenValue
from millrace.rundir import run_history
from millrace.rundir.checksummed_json import read_checksummed

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


VERSION = 2

#: Files in the folder. The last exists once all is done and the other files may be removed.
MANIFEST, LOG, DONE = "workflow.json", "phases.jsonl", "done"


class WorkflowManifest(FrozenValue, frozen=True):
    """The identity of a workflow: only an equal workflow resumes it."""

    version: int
    cwd: str
    #: See ``millrace.extensions.workflow.planned_phases.digest_phase_parts``.
    phases: dict[str, dict[str, str]]


class WorkStretch(msgspec.Struct):
    """One working time of a phase, from begin to end; times in seconds since 1970."""

    phase: str
    begun: float
    #: None: the phase is running, or was killed.
    ended: float | None = None
    code: int = 0
    #: Time of the end; of the last sign of life if it was killed; of the latest reading if it is running.
    last: float = 0.0
    #: Whether the log says that it was killed.
    killed: bool = False


def classify_exit_code(code: int) -> Literal["done", "quarantined", "interrupted", "stopped"]:
    """Return the state of a job or phase that ended with this exit code."""
    if code > 128:
        return "interrupted"
    if code == ExitCode.QUARANTINED:
        return "quarantined"
    return "stopped" if code else "done"


def is_workflow_folder(folder: Path) -> bool:
    """Tell whether a folder holds a job in phases."""
    return (folder / MANIFEST).exists()


def list_phase_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the phases, in their order.

    Raises:
        CorruptError: The manifest is damaged.
        FileNotFoundError: The manifest is gone.
    """
    return tuple(
        read_checksummed(folder / MANIFEST, WorkflowManifest, "the manifest of a job in phases", VERSION).phases
    )


def list_work_stretches(lines: Sequence[PhaseLogLine], now: float) -> list[WorkStretch]:
    """Return the working times of the phases from the log, in the order of their begins.

    Args:
        now: End of those that have none in the log: the present, or the ``read_last_sign_of_life`` of a killed job; seconds since
            1970.
    """
    found: list[WorkStretch] = []
    latest: dict[str, WorkStretch] = {}
    for line in lines:
        if line.what == "begun":
            if line.phase in latest and latest[line.phase].ended is None and not latest[line.phase].killed:
                latest[line.phase].last = line.time  # the time of the kill is not in the log
            latest[line.phase] = WorkStretch(line.phase, line.time)
            found.append(latest[line.phase])
        elif line.phase in latest and line.what == "killed":
            latest[line.phase].last, latest[line.phase].killed = max(line.time, latest[line.phase].begun), True
        elif line.phase in latest:
            latest[line.phase].ended, latest[line.phase].code = line.time, line.code
    for each in found:
        each.last = each.ended or each.last or max(now, each.begun)
    return found


def read_last_sign_of_life(folder: Path) -> float:
    """Return the last sign of life: when the job last wrote to its folder, in seconds since 1970.

    A running job writes the lock every few seconds, and the log of a phase about once a second.
    """
    found = 0.0
    for path in (folder / "lock", folder / LOG, *folder.glob(f"*/{run_history.EVENTS}"), *folder.glob("*/lock")):
        with suppress(OSError):
            found = max(found, path.stat().st_mtime)
    return found


def log_killed_phases(folder: Path, last: float) -> None:
    """Log as killed the phases that were running when the job was killed.

    Args:
        last: See ``read_last_sign_of_life``; read before this start of the job wrote to the folder.
    """
    if not is_workflow_folder(folder):
        return
    log = PhaseLog(folder / LOG)
    for each in list_work_stretches(list(read_phase_log(folder / LOG)), last):
        if each.ended is None and not each.killed:
            log.write(each.phase, "killed", at=each.last)
