"""The tree of a view: the names in its folders and the version of each file, as first seen."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from millrace.replicas import redact_place
from millrace.storage import locations, urls
from millrace.storage.clients.base import LocationError, MissingError, UnreachableError
from millrace.storage.view.file import DownloadPool, ViewFile


@dataclass(frozen=True)
class FolderListing:
    """The names in a folder."""

    files: frozenset[str]
    folders: frozenset[str]


class ViewTree:
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
        self._downloads = DownloadPool()
        self._lock = threading.Lock()
        self._folders: dict[str, FolderListing | LocationError] = {}
        self._files: dict[str, ViewFile | LocationError] = {}

    def list_folder(self, path: str) -> FolderListing:
        """List a folder.

        Args:
            path: ``/``, or ``/name/...``.

        Raises:
            LocationError: It cannot be listed.
        """
        with self._lock:
            found = self._folders.get(path) or self._query_folder(path)
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
            return not name or name in self.list_folder(above or "/").folders
        except LocationError:
            return False

    def find_file(self, path: str) -> ViewFile:
        """Return a file.

        Raises:
            MissingError: It does not exist.
            MillraceError: Its place cannot be asked.
        """
        with self._lock:
            known = self._files.get(path)
        found = known or self._query_file(path)
        with self._lock:
            if isinstance(found, ViewFile | MissingError):
                found = self._files.setdefault(path, found)
        if isinstance(found, LocationError):
            raise found
        return found

    def _query_file(self, path: str) -> ViewFile | LocationError:
        above, _, name = path.rpartition("/")
        place = self._make_url(path)
        try:
            if name not in self.list_folder(above or "/").files:
                return MissingError(f"{redact_place(place)}: no such file")
        except LocationError:
            pass  # a server that cannot list is asked for each file
        try:
            return ViewFile(place, locations.query_file_status(place), self._cache, self._downloads)
        except LocationError as error:
            return error

    def _query_folder(self, path: str) -> FolderListing | LocationError:
        try:
            with closing(locations.open_location(self._make_url(path).rstrip("/") + "/")) as folder:
                return FolderListing(frozenset(folder.list_names()), frozenset(folder.list_names(folders=True)))
        except LocationError as error:
            return error

    def _make_url(self, path: str) -> str:
        *folders, name = path[1:].split("/")
        url = self._url
        for folder in folders:
            url = urls.make_sibling_url(url, folder) + "/"
        return urls.make_sibling_url(url, name)
