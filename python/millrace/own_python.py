"""How Millrace's own processes are started, so that a `PYTHONPATH` or `PYTHONHOME` for the tool does not change them.

Nothing is imported here but what Python has loaded by itself.
"""

import os
import sys
from collections.abc import Mapping


def python_command(*words: str) -> list[str]:
    """Return the command that runs this Python again, with no module of the working folder in its way.

    One that was started with ``-E``, as a ``PYTHONHOME`` is of another Python, starts its children so.
    """
    return [sys.executable, *(["-E"] if sys.flags.ignore_environment else []), "-P", *words]


def put_user_modules_last(environ: Mapping[str, str]) -> None:
    """Find Millrace's own modules before those of ``PYTHONPATH``, which may be of another Python.

    They are still found, as Millrace itself may be there; and the tool's environment is as it was.
    """
    if sys.flags.ignore_environment or not environ.get("PYTHONPATH"):
        return
    users = {os.path.abspath(path) for path in environ["PYTHONPATH"].split(os.pathsep)}
    theirs = [path for path in sys.path if os.path.abspath(path) in users]
    sys.path[:] = [path for path in sys.path if path not in theirs] + theirs
