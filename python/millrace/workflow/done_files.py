"""What a job in phases that is done has read and written: typed again, it is done if all of that is as it was."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from millrace.errors import CorruptError
from millrace.model import Frozen
from millrace.plan import surroundings
from millrace.rundir import RunDir, write_whole
from millrace.sealed import seal, unseal
from millrace.storage import past
from millrace.workflow.description import Workflow
from millrace.workflow.folder import MANIFEST, VERSION, Manifest
from millrace.workflow.planned import Here, Planned, parts

#: The file in the folder of a job, and in what is kept of it.
NAME = "files.json"


class DoneFiles(Frozen, frozen=True):
    """The files of a job at its end, and the environment in which it was done."""

    environ: dict[str, str]
    #: Size and time of change, by name; of a folder or a glob, those of each file.
    files: dict[str, Any]


def note(phases: Sequence[Planned], here: Here) -> None:
    """Note the files of a job that is done, in its folder.

    Raises:
        OSError: They cannot be noted.
    """
    names = {name for planned in phases for name in _names(planned, here)}
    if not names & {".", str(here.cwd)}:  # the files in the working folder are not the job's alone
        files = {name: _state(here.cwd, name) for name in sorted(names)}
        done = DoneFiles(environ=surroundings.digests(here.environ), files=files)
        write_whole(here.folder / NAME, seal(done))


def are_as_noted(flow: Workflow, here: Here) -> bool:
    """Whether this very job was done, and all files that it has read and written are as they were at its end."""
    for kept in reversed(past.kept(here.environ)):
        if kept.past.run_dir != str(here.folder) or kept.past.status != "done":
            continue
        try:
            job = unseal(kept.folder / MANIFEST, Manifest, "the manifest of a job in phases", VERSION)
            done = unseal(kept.folder / NAME, DoneFiles, "the files of a job in phases")
        except (OSError, CorruptError):
            continue  # it has printed something, or was kept by another release
        if (
            (job.cwd, job.phases) == (str(here.cwd), parts(flow, here.cwd))
            and not surroundings.changed(done.environ, here.environ)
            and all(_state(here.cwd, name) == was for name, was in done.files.items())
        ):
            return True
    return False


def _names(planned: Planned, here: Here) -> Iterator[str]:
    """Files, folders and globs that a phase has read or written, and its program."""
    phase = planned.phase
    yield from (word for word in (*phase.reads, *planned.outputs) if word and _state(here.cwd, word))
    if phase.kind != "command":
        return
    run = RunDir(here.folder / phase.name).read_manifest()
    yield run.exe
    yield from map(os.fspath, run.use.databases)
    for output in run.use.outputs:
        if output.path != "-":
            yield os.path.dirname(output.path) or "." if output.layout == "record" else output.path


def _state(cwd: Path, name: str) -> Any:
    """Size and time of change of a file, or of each file in a folder or a glob; None: nothing is there."""
    path = cwd / name
    if path.is_dir():
        return [[each, _of_file(path / each)] for each in sorted(os.listdir(path))]
    if glob.has_magic(name) and not path.exists():
        return [[each, _of_file(cwd / each)] for each in sorted(glob.glob(name, root_dir=cwd))] or None
    return _of_file(path)


def _of_file(path: Path) -> list[int] | None:
    if not path.is_file():
        return None
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]
