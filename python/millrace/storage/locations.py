"""A file wherever it lies: one small interface over paths and URLs.

No library's cache is between: what is kept is kept by `millrace.storage.cache`.
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
    """The file or folder at a path or URL. Nothing is asked yet.

    Raises:
        RefusedError: It is no place that can be read, or its client is not installed.
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
    """What the file at a place is now.

    Raises:
        MillraceError: It cannot be told, and why.
    """
    with closing(at(place)) as location:
        return location.about()
