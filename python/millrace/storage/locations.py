"""Locations: one small interface to files at paths and URLs.

No library's cache is in between: ``millrace.storage.cache`` keeps all copies.
"""

from __future__ import annotations

import importlib
from contextlib import closing
from urllib.parse import unquote, urlsplit

from millrace.replicas import check_place, is_url, shown
from millrace.storage.clients.base import About, Location

#: Module and class, by the scheme of the URL.
CLIENTS = {
    "hdfs": ("hdfs", "Hdfs"),
    "http": ("http", "Http"),
    "https": ("http", "Http"),
    "s3": ("s3", "S3"),
    "sftp": ("sftp", "Sftp"),
}


def at(place: str) -> Location:
    """Open the location of a path or URL, a file or folder. Sends no request yet.

    Raises:
        RefusedError: It is not a readable place, or its client is not installed.
    """
    check_place(place)
    parts = urlsplit(place, allow_fragments=False)
    if not is_url(place) or parts.scheme == "file":
        from millrace.storage.clients.local import Local

        return Local(unquote(parts.path) if is_url(place) else place, place)
    module, name = CLIENTS[parts.scheme]
    made: Location = getattr(importlib.import_module(f"millrace.storage.clients.{module}"), name)(place, shown(place))
    return made


def about(place: str) -> About:
    """Ask for the current size and version of the file at a place.

    Raises:
        MillraceError: The place cannot be asked, and why.
    """
    with closing(at(place)) as location:
        return location.about()
