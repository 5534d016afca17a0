"""Be ``millrace`` and note the CPU seconds of this process itself: ``python own_cpu.py RESULT.json [MODULE:NAME...] -- ARGUMENTS``.

The functions that are named are counted: calls, and the CPU seconds of their thread while the outermost of them is at work.
Run by its path, with any Python that has a Millrace: it needs nothing of this repository.
"""

from __future__ import annotations

import functools
import importlib
import json
import resource
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

found: dict[str, list[float]] = {}
depth = threading.local()


def counted(name: str, function: Any) -> Any:
    """``function``, which adds what it takes to what was `found` under ``name``."""
    seen = found.setdefault(name, [0, 0.0])

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if getattr(depth, "inside", False):
            return function(*args, **named)
        depth.inside, begun = True, time.thread_time()
        try:
            return function(*args, **named)
        finally:
            seen[0] += 1
            seen[1] += time.thread_time() - begun
            depth.inside = False

    return call


def count(name: str) -> None:
    """Count ``MODULE:NAME`` from now on, wherever it was imported to.

    Raises:
        AttributeError: There is no such function any more.
    """
    module, _, path = name.partition(":")
    *owners, last = path.split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(module))
    was = getattr(owner, last)
    setattr(owner, last, ours := counted(name, was))
    for each in [loaded for key, loaded in sys.modules.items() if key.startswith("millrace")]:
        for key, value in list(vars(each).items()):
            if value is was:
                setattr(each, key, ours)


def main() -> None:
    """Run Millrace to its end; write the CPU seconds of this process and what was counted."""
    end = sys.argv.index("--")
    result, *names = sys.argv[1:end]
    for name in names:
        count(name)
    sys.argv[1 : end + 1] = []
    try:
        runpy.run_module("millrace", run_name="__main__", alter_sys=True)
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        Path(result).write_text(json.dumps({"own": used.ru_utime + used.ru_stime, "checks": found}))


if __name__ == "__main__":
    main()
