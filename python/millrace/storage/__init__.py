"""Storage: places of files, their costs, copies on each node, how copies are made and how tools read them."""

from __future__ import annotations

import os


def best_path(name: str | os.PathLike[str], readers: int = 1) -> str:
    """Return the path or URL from which a file is read at the least cost, as measured by ``millrace data probe``.

    Args:
        name: A path, for which site and user may name other places (``[[replica]]``), or a URL.
        readers: Number of simultaneous readers on all nodes.

    Raises:
        MillraceError: No place has the file.
    """
    from millrace.host import site_defaults
    from millrace.storage import cost_table

    return cost_table.find_cheapest_place(
        os.fspath(name), readers, site_defaults.read_replicas(os.environ), os.environ
    ).place
