"""Opening of the runs and jobs to watch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from millrace import lock
from millrace.errors import RefusedError
from millrace.plan import run_place
from millrace.rundir import RunDir
from millrace.storage import past
from millrace.watch.job import WatchedJob
from millrace.watch.run import WatchedRun
from millrace.watch.view import View
from millrace.workflow.folder import is_workflow


class Watched(Protocol):
    """A run or a job in phases whose state can be read repeatedly."""

    def look(self) -> View:
        """Return the present state; do not block."""

    def close(self) -> None:
        """Close the files."""


def going_on(cwd: Path) -> list[str]:
    """Return the names of the run directories in a folder whose runs are running."""
    return [path.name for path in run_place.inside(cwd) if lock.shows_life(path / "lock")]


@contextmanager
def opened(names: Sequence[str], environ: Mapping[str, str]) -> Iterator[list[Watched]]:
    """Open these run directories, and close them when the context is left.

    Raises:
        RefusedError: One holds no run, or cannot be read.
        CorruptError: The manifest of one is damaged.
    """
    found: list[Watched] = []
    try:
        for name in names:
            found.append(_open(name, environ))
        yield found
    finally:
        for each in found:
            each.close()


def _open(name: str, environ: Mapping[str, str]) -> Watched:
    folder, ended = past.logs_of(name, environ)
    if is_workflow(folder):
        return WatchedJob(folder, name, environ)
    if ended:
        return WatchedRun(folder, name, environ)
    if not lock.shows_life(folder / "lock"):
        RunDir(folder).read_manifest()  # a starting run may not have written its manifest
    elif not os.access(folder, os.R_OK | os.X_OK):
        raise RefusedError(f"{name}: cannot be read", "only who started a run may watch it")
    return WatchedRun(folder, name, environ)
