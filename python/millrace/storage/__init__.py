"""Storage: places of files, their costs, copies on each node, how copies are made and how tools read them."""

from __future__ import annotations

import os


def best_path(name: str | os.PathLike[str], readers: int = 1, reads: int = 1, replicate: bool = False) -> str:
    """Return where a file is read at the least cost, as measured by ``millrace data probe``.

    Copies on this node count as places, whoever has made them.

    Args:
        name: A path, for which site and user may name other places (``[[replica]]``), or a URL.
        readers: Number of simultaneous readers on all nodes.
        reads: How often this node reads all of it.
        replicate: Copy the file to this node first where that pays, or where no path has it. The result is always a path.

    Returns:
        A path; without ``replicate`` a URL if that costs least.

    Raises:
        MillraceError: No place has the file; or no path has it, and it cannot be copied.
    """
    from millrace.host import site_defaults
    from millrace.storage import path_choice

    settings = site_defaults.read_settings(os.environ)
    if replicate:
        return path_choice.make_best_path(os.fspath(name), readers, reads, settings, os.environ).path
    return path_choice.find_cheapest_place(os.fspath(name), readers, reads, settings, os.environ).place
