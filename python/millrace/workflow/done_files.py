"""States of the files of a finished job in phases: if none has changed, the same command has nothing to do."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from millrace.errors import CorruptError
from millrace.model import FrozenValue
from millrace.plan import surroundings
from millrace.rundir import RunDir, write_atomically
from millrace.sealed import encode_checksummed, read_checksummed
from millrace.storage import past
from millrace.workflow.description import WorkflowDescription
from millrace.workflow.folder import MANIFEST, VERSION, WorkflowManifest
from millrace.workflow.planned import PlannedPhase, WorkflowContext, digest_phase_parts

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
        done = DoneFiles(environ=surroundings.digest_environment(here.environ), files=files)
        write_atomically(here.folder / NAME, encode_checksummed(done))


def is_still_done(flow: WorkflowDescription, here: WorkflowContext) -> bool:
    """Tell whether an equal job was done and all files that it read or wrote are unchanged since."""
    for kept in reversed(past.list_archived_runs(here.environ)):
        if kept.past.run_dir != str(here.folder) or kept.past.status != "done":
            continue
        try:
            job = read_checksummed(kept.folder / MANIFEST, WorkflowManifest, "the manifest of a job in phases", VERSION)
            done = read_checksummed(kept.folder / NAME, DoneFiles, "the files of a job in phases")
        except (OSError, CorruptError):
            continue  # it has printed to standard output, or was kept by another release
        if (
            (job.cwd, job.phases) == (str(here.cwd), digest_phase_parts(flow, here.cwd))
            and not surroundings.describe_changed_variables(done.environ, here.environ)
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
