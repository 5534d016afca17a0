"""Where files are read from: places, what they cost, copies on each node, how they get there, and how tools come to read them."""

from __future__ import annotations

import os


def best_path(name: str | os.PathLike[str], readers: int = 1) -> str:
    """The path or URL from which a file is read at the least cost, by what `millrace data probe` measured.

    Args:
        name: A path, for which site and user may say other places (``[[replica]]``), or a URL.
        readers: Those who will read at the same time, on all nodes.

    Raises:
        MillraceError: No place has the file.
    """
    from millrace import site
    from millrace.storage import choice

    return choice.best(os.fspath(name), readers, site.replicas(os.environ), os.environ).place
