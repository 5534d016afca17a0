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
from millrace.watch.view import WatchView
from millrace.workflow.folder import is_workflow_folder


class WatchTarget(Protocol):
    """A run or a job in phases whose state can be read repeatedly."""

    def read_view(self) -> WatchView:
        """Return the present state; do not block."""

    def close(self) -> None:
        """Close the files."""


def list_active_runs(cwd: Path) -> list[str]:
    """Return the names of the run directories in a folder whose runs are running."""
    return [path.name for path in run_place.list_run_dirs(cwd) if lock.has_live_owner(path / "lock")]


@contextmanager
def open_watch_targets(names: Sequence[str], environ: Mapping[str, str]) -> Iterator[list[WatchTarget]]:
    """Open these run directories, and close them when the context is left.

    Raises:
        RefusedError: One holds no run, or cannot be read.
        CorruptError: The manifest of one is damaged.
    """
    found: list[WatchTarget] = []
    try:
        for name in names:
            found.append(_open_target(name, environ))
        yield found
    finally:
        for each in found:
            each.close()


def _open_target(name: str, environ: Mapping[str, str]) -> WatchTarget:
    folder, ended = past.find_run_logs(name, environ)
    if is_workflow_folder(folder):
        return WatchedJob(folder, name, environ)
    if ended:
        return WatchedRun(folder, name, environ)
    if not lock.has_live_owner(folder / "lock"):
        RunDir(folder).read_manifest()  # a starting run may not have written its manifest
    elif not os.access(folder, os.R_OK | os.X_OK):
        raise RefusedError(f"{name}: cannot be read", "only who started a run may watch it")
    return WatchedRun(folder, name, environ)
