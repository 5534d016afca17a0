"""Locations: one small interface to files at paths and URLs.

No library's cache is in between: ``millrace.storage.cache`` keeps all copies.
"""

from __future__ import annotations

import importlib
from contextlib import closing
from urllib.parse import unquote, urlsplit

from millrace.replicas import check_place, is_url, redact_place
from millrace.storage.clients.base import FileLocation, FileStatus

#: Module and class, by the scheme of the URL.
CLIENTS = {
    "hdfs": ("hdfs", "HdfsLocation"),
    "http": ("http", "HttpLocation"),
    "https": ("http", "HttpLocation"),
    "s3": ("s3", "S3Location"),
    "sftp": ("sftp", "SftpLocation"),
}


def open_location(place: str) -> FileLocation:
    """Open the location of a path or URL, a file or folder. Sends no request yet.

    Raises:
        RefusedError: It is not a readable place, or its client is not installed.
    """
    check_place(place)
    parts = urlsplit(place, allow_fragments=False)
    if not is_url(place) or parts.scheme == "file":
        from millrace.storage.clients.local import LocalLocation

        return LocalLocation(unquote(parts.path) if is_url(place) else place, place)
    module, name = CLIENTS[parts.scheme]
    made: FileLocation = getattr(importlib.import_module(f"millrace.storage.clients.{module}"), name)(
        place, redact_place(place)
    )
    return made


def query_file_status(place: str) -> FileStatus:
    """Ask for the current size and version of the file at a place.

    Raises:
        MillraceError: The place cannot be asked, and why.
    """
    with closing(open_location(place)) as location:
        return location.query_status()
