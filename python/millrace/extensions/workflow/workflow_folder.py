"""The folder of a job in phases: its files, the working times of its phases, and its end.

Its log has one JSON line for each begin and end of a phase, for the report. If no file has changed since the end, the
same command has nothing to do. An entry in the history of runs serves ``status`` and ``report`` after the folder of the
job is gone.
"""

from __future__ import annotations

import glob
import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from millrace.core.errors import CorruptError, ExitCode
from millrace.core.tool_use import FrozenValue
from millrace.extensions.workflow.planned_phases import PlannedPhase, WorkflowContext, digest_phase_parts
from millrace.extensions.workflow.workflow_description import WorkflowDescription
from millrace.planning import result_fingerprint
from millrace.report.events import read_events
from millrace.report.summary import summarise_events
from millrace.rundir import run_history
from millrace.rundir.checksummed_json import encode_checksummed, read_checksummed
from millrace.rundir.paths import RunDir, write_atomically

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


#: Name of the file in the folder of a job, and in the history.
NAME = "files.json"


class DoneFiles(FrozenValue, frozen=True):
    """The states of a job's files at its end, and digests of its environment."""

    environ: dict[str, str]
    #: Size and modification time by name; for a folder or a glob, those of each file.
    files: dict[str, Any]


def save_done_files(phases: Sequence[PlannedPhase], here: WorkflowContext) -> None:
    """Write the states of the files of a finished job into its folder.

    Raises:
        OSError: They cannot be read or written.
    """
    names = {name for planned in phases for name in _list_phase_files(planned, here)}
    if not names & {".", str(here.cwd)}:  # other programs also write in the working folder
        files = {name: _read_path_state(here.cwd, name) for name in sorted(names)}
        done = DoneFiles(environ=result_fingerprint.digest_environment(here.environ), files=files)
        write_atomically(here.folder / NAME, encode_checksummed(done))


def is_still_done(flow: WorkflowDescription, here: WorkflowContext) -> bool:
    """Tell whether an equal job was done and all files that it read or wrote are unchanged since."""
    for kept in reversed(run_history.list_archived_runs(here.environ)):
        if kept.past.run_dir != str(here.folder) or kept.past.status != "done":
            continue
        try:
            job = read_checksummed(kept.folder / MANIFEST, WorkflowManifest, "the manifest of a job in phases", VERSION)
            done = read_checksummed(kept.folder / NAME, DoneFiles, "the files of a job in phases")
        except (OSError, CorruptError):
            continue  # it has printed to standard output, or was kept by another release
        if (
            (job.cwd, job.phases) == (str(here.cwd), digest_phase_parts(flow, here.cwd))
            and not result_fingerprint.describe_changed_variables(done.environ, here.environ)
            and all(_read_path_state(here.cwd, name) == was for name, was in done.files.items())
        ):
            return True
    return False


def _list_phase_files(planned: PlannedPhase, here: WorkflowContext) -> Iterator[str]:
    """Yield the files, folders and globs that a phase has read or written, and its program."""
    phase = planned.phase
    yield from (word for word in (*phase.reads, *planned.outputs) if word and _read_path_state(here.cwd, word))
    if phase.kind != "command":
        return
    run = RunDir(here.folder / phase.name).read_manifest()
    yield run.exe
    yield from map(os.fspath, run.use.databases)
    for output in run.use.outputs:
        if output.path != "-":
            yield os.path.dirname(output.path) or "." if output.layout == "record" else output.path


def _read_path_state(cwd: Path, name: str) -> Any:
    """Return size and modification time of a file, or of each file in a folder or glob; None: there is none."""
    path = cwd / name
    if path.is_dir():
        return [[each, _read_file_state(path / each)] for each in sorted(os.listdir(path))]
    if glob.has_magic(name) and not path.exists():
        return [[each, _read_file_state(cwd / each)] for each in sorted(glob.glob(name, root_dir=cwd))] or None
    return _read_file_state(path)


def _read_file_state(path: Path) -> list[int] | None:
    """Return size (bytes) and modification time (ns) of a regular file; None: it is no such file."""
    if not path.is_file():
        return None
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def save_job_history(file: Path, here: WorkflowContext, code: int) -> None:
    """Copy the logs of the job and its phases into the history, laid out as in its folder.

    Args:
        file: The job file.
        code: The exit code of this start.
    """
    lines = list(read_phase_log(here.folder / LOG))
    if not lines:
        return
    logs = {name: RunDir(here.folder / name).events for name in list_phase_names(here.folder)}
    found = {name: path for name, path in logs.items() if path.exists()}
    counted = [summarise_events(read_events(path)) for path in found.values()]
    at_work = list_work_stretches(lines, lines[-1].time)
    run_history.archive_run(
        run_history.EndedRun(
            run_id=_derive_run_id(here.folder, lines[0].time), ended=datetime.now().astimezone().isoformat(timespec="seconds"),
            argv=("millrace", "run", str(file)), host=os.uname().nodename, cwd=str(here.cwd), run_dir=str(here.folder),
            status=classify_exit_code(code), exit_code=code, message="", records_done=sum(each.records_done for each in counted),
            quarantined=sum(len(each.quarantined) for each in counted), n_starts=max(Counter(each.phase for each in at_work).values()), wall=_sum_work_seconds(at_work),
        ),
        {name: here.folder / name for name in (MANIFEST, LOG, NAME) if (here.folder / name).exists()} | {f"{name}/{path.name}": path for name, path in found.items()},
        here.environ,
    )  # fmt: skip


def _derive_run_id(folder: Path, begun: float) -> str:
    """Return an id that is the same for all starts of a job."""
    return hashlib.blake2b(f"{folder}\0{begun}".encode(errors="surrogateescape"), digest_size=16).hexdigest()


def _sum_work_seconds(at_work: Sequence[WorkStretch]) -> float:
    """Return the seconds in which at least one phase was working.

    Args:
        at_work: Stretches in the order of their begins.
    """
    seconds, reached = 0.0, 0.0
    for each in at_work:
        seconds += max(each.last - max(each.begun, reached), 0.0)
        reached = max(reached, each.last)
    return seconds
