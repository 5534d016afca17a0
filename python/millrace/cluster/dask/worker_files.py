"""The files of a command on a Dask worker, which shares no folder with the coordinator: compared, made, or fetched."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.cluster import messages as say
from millrace.core.errors import RefusedError
from millrace.core.tool_use import RemoteFileView
from millrace.planning import result_fingerprint

if TYPE_CHECKING:
    from millrace.storage.cache.copy_cache import NodeCache


def check_same_contents(setup: say.SetUpWorker, exe: Path) -> None:
    """Check that program and databases have the contents that they have at the coordinator.

    Raises:
        RefusedError: One is missing here, or differs.
    """
    if os.uname().machine != setup.machine:
        raise RefusedError(
            f"is of architecture {os.uname().machine}, the coordinator of {setup.machine}",
            "results may differ in their last digits: use workers of one architecture",
        )
    for path, there in setup.contents.items():
        file = Path(setup.cwd, path) if path else exe
        if not file.exists():
            raise RefusedError(
                f"{file}: is not here",
                "bring the same file to this path on all workers, or use a folder that they share",
            )
        if result_fingerprint.fingerprint_content(file) != there:
            kind = "database" if path else "program"
            raise RefusedError(
                f"{file}: is not the {kind} that the coordinator has",
                "results would not be those of one command: bring the same one to all workers",
            )


class PlacedFiles:
    """Folders and files of the command that this machine lacks: they are made for a time, and nothing else is touched."""

    def __init__(self) -> None:
        self._folders: list[Path] = []
        #: Files that are made here, with the number of tasks that read each.
        self._readers: dict[Path, int] = {}

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, as far as they are missing.

        Raises:
            RefusedError: It cannot be made.
        """
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RefusedError(
                f"{folder}: is not here, and cannot be made: {error.strerror}",
                "type the command in a folder that the workers have too, or may make",
            ) from error
        self._folders = [*missing, *self._folders]

    def place_file(self, path: Path, content: bytes) -> None:
        """Make a file for a task, unless it is there.

        Raises:
            RefusedError: Another one is there.
        """
        if path in self._readers:
            self._readers[path] += 1
        elif not path.exists():
            self.make_folder(path.parent)
            with path.open("xb") as file:
                file.write(content)
            self._readers[path] = 1
        elif path.stat().st_size != len(content) or path.read_bytes() != content:
            raise RefusedError(f"{path}: is not the file that the coordinator has", "remove it from the workers")

    def release_file(self, path: Path) -> None:
        """Remove a file that was made here once no task reads it any more."""
        if path in self._readers:
            self._readers[path] -= 1
            if not self._readers[path]:
                del self._readers[path]
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove all that was made, folders if they are empty."""
        for path in self._readers:
            path.unlink(missing_ok=True)
        for folder in self._folders:
            with suppress(OSError):
                folder.rmdir()


def fetch_url_files(view: RemoteFileView, cwd: Path) -> tuple[dict[str, str], NodeCache]:
    """Fetch the files behind the URLs of a command into this machine's cache, and make the view of them.

    Returns:
        Their paths, by name, and the cache, which holds them until it is closed.

    Raises:
        MillraceError: One cannot be read here, has changed, or does not fit.
    """
    from millrace.node import url_view  # few commands have URLs
    from millrace.storage import url_files
    from millrace.storage.cache import cache_download, cache_location
    from millrace.storage.cache.copy_cache import NodeCache
    from millrace.storage.clients.base import FileStatus

    cache = NodeCache(url_files.choose_cache_folder(view.stage, sum(file.size for file in view.files)), fetched=True)
    budget = cache_location.compute_budget_bytes(cache)
    copies = {}
    for file in view.files:
        wanted = FileStatus(file.size, file.version, file.mtime_ns)
        path = cache_download.fetch_to_cache(file.place, cache, budget, wanted=wanted)
        if path.name != file.key:
            raise RefusedError(
                f"{file.place}: {file.name} is a part of it", "unpack it, and name the URL of the file itself"
            )
        copies[file.name] = str(path)
    url_view.build_view(view, cwd, copies)
    return copies, cache
