"""Folders that are this user's alone. Imports next to nothing: sweeps and restarts wait for it.

In ``/tmp`` and ``/dev/shm`` everybody can make anything by any name. So what a name there seems to say is believed only
of a folder that nobody else can have made, and in which nobody else can have put anything.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def open_private(path: Path) -> int:
    """Open a folder that is this user's and closed to all others; the descriptor is the folder that was looked at.

    Raises:
        PermissionError: It is another's, or others may look into it.
        OSError: It cannot be opened, or is something else than a folder, such as a link to one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    about = os.fstat(descriptor)
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "is not this user's alone", str(path))
    return descriptor
