"""Start of Millrace's own Python, unchanged by a ``PYTHONPATH`` or ``PYTHONHOME`` that is meant for the tool.

Imports only modules that Python has loaded by itself: others would be found in the folders of ``PYTHONPATH``.
"""

import os
import sys
from collections.abc import Mapping


def make_python_command(*words: str) -> list[str]:
    """Return the command that runs this Python again, ignoring modules of the working folder.

    A process started with ``-E``, because a ``PYTHONHOME`` is of another Python, starts its children with it.
    """
    return [sys.executable, *(["-E"] if sys.flags.ignore_environment else []), "-P", *words]


def move_user_modules_last(environ: Mapping[str, str]) -> None:
    """Move the folders of ``PYTHONPATH``, which may be of another Python, to the end of ``sys.path``.

    They stay, as Millrace itself may be there; the tool's environment stays unchanged.
    """
    if sys.flags.ignore_environment or not environ.get("PYTHONPATH"):
        return
    users = {os.path.abspath(path) for path in environ["PYTHONPATH"].split(os.pathsep)}
    theirs = [path for path in sys.path if os.path.abspath(path) in users]
    sys.path[:] = [path for path in sys.path if path not in theirs] + theirs
