"""The tree of a view: the names in its folders and the version of each file, as first seen."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from millrace.replicas import shown
from millrace.storage import locations, urls
from millrace.storage.clients.base import LocationError, MissingError, UnreachableError
from millrace.storage.view.file import Downloads, File


@dataclass(frozen=True)
class Listed:
    """The names in a folder."""

    files: frozenset[str]
    folders: frozenset[str]


class Tree:
    """The files and folders below a URL; for any number of threads.

    A name or version stays as first seen, so that no program reads parts of two versions. A file that has changed since
    then cannot be read any more.

    Args:
        url: URL of a folder.
        cache: The folder in which the cache of the node is made.
    """

    def __init__(self, url: str, cache: Path) -> None:
        self._url = url if url.endswith("/") else url + "/"
        self._cache = cache
        self._downloads = Downloads()
        self._lock = threading.Lock()
        self._folders: dict[str, Listed | LocationError] = {}
        self._files: dict[str, File | LocationError] = {}

    def listed(self, path: str) -> Listed:
        """List a folder.

        Args:
            path: ``/``, or ``/name/...``.

        Raises:
            LocationError: It cannot be listed.
        """
        with self._lock:
            found = self._folders.get(path) or self._list(path)
            # After a passing failure the place is asked again.
            if not isinstance(found, UnreachableError):
                self._folders[path] = found
        if isinstance(found, LocationError):
            raise found
        return found

    def is_folder(self, path: str) -> bool:
        """Tell whether a folder of this name exists, by the list of the folder above it."""
        above, _, name = path.rpartition("/")
        try:
            return not name or name in self.listed(above or "/").folders
        except LocationError:
            return False

    def file(self, path: str) -> File:
        """Return a file.

        Raises:
            MissingError: It does not exist.
            MillraceError: Its place cannot be asked.
        """
        with self._lock:
            known = self._files.get(path)
        found = known or self._look(path)
        with self._lock:
            if isinstance(found, File | MissingError):
                found = self._files.setdefault(path, found)
        if isinstance(found, LocationError):
            raise found
        return found

    def _look(self, path: str) -> File | LocationError:
        above, _, name = path.rpartition("/")
        place = self._place(path)
        try:
            if name not in self.listed(above or "/").files:
                return MissingError(f"{shown(place)}: no such file")
        except LocationError:
            pass  # a server that cannot list is asked for each file
        try:
            return File(place, locations.about(place), self._cache, self._downloads)
        except LocationError as error:
            return error

    def _list(self, path: str) -> Listed | LocationError:
        try:
            with closing(locations.at(self._place(path).rstrip("/") + "/")) as folder:
                return Listed(frozenset(folder.names()), frozenset(folder.names(folders=True)))
        except LocationError as error:
            return error

    def _place(self, path: str) -> str:
        *folders, name = path[1:].split("/")
        url = self._url
        for folder in folders:
            url = urls.beside(url, folder) + "/"
        return urls.beside(url, name)
