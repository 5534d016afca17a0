"""The folder of copies: this user's own, or one that the site has made for a group.

A user with write access to a folder can put anything there. So the folder of a group is used only if it is root's,
which no other user can forge, and a copy of another member only if its bytes have the digest that the member wrote
down.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from millrace.own import open_private_folder, replace_file
from millrace.storage.cache_files import LOCK

#: Prefix of the name of a folder of copies.
FOLDER = "millrace-stage-"

#: Rest of the name of a group's folder.
GROUP = "group"


@dataclass(frozen=True)
class CacheFolder:
    """A folder of copies, and whether the members of a group share it."""

    folder: Path
    is_shared: bool = False

    @property
    def sharing_bits(self) -> int:
        """Mode bits by which others may read a copy."""
        return stat.S_IRGRP if self.is_shared else 0

    def open_lock_file(self) -> int:
        """Open the file to lock while the folder is changed; in a group the folder itself, as all members can."""
        if self.is_shared:
            return os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def open_growing_copy(self, path: Path) -> int:
        """Open a copy that is fetched: for writing, or for reading if it is another member's."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except PermissionError:
            if not self.is_shared:
                raise
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.grant_group_read(descriptor)
        return descriptor

    def write_small_file(self, path: Path, content: bytes) -> None:
        """Write a small file atomically."""
        replace_file(path, content, 0o600)
        path.chmod(0o600 | self.sharing_bits)

    def is_foreign(self, descriptor: int) -> bool:
        """Tell whether a file belongs to another member."""
        return self.is_shared and os.fstat(descriptor).st_uid != os.geteuid()

    def grant_group_read(self, descriptor: int) -> None:
        """Let other members read a file of this user."""
        if self.is_shared and not self.is_foreign(descriptor):
            os.fchmod(descriptor, 0o600 | self.sharing_bits)


def make_own_folder(place: Path) -> Path:
    """Return this user's folder of copies in ``place``; make it if missing.

    Another user may have taken its predictable name. Then a folder with a random suffix is made, which the next job
    finds by its owner.
    """
    usual = place / f"{FOLDER}{os.geteuid()}"
    with suppress(FileExistsError):
        usual.mkdir(mode=0o700)
    for folder in (usual, *sorted(place.glob(f"{usual.name}-*"))):
        with suppress(OSError):
            os.close(open_private_folder(folder))
            return folder
    return Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=place))


def find_group_folder(place: Path) -> CacheFolder | None:
    """Return the group folder of copies in ``place`` that the site has made for this user; None: there is none.

    It is root's, passes its group on (setgid), lets members remove files of others (not sticky), and is closed to all
    other users.
    """
    folder = place / f"{FOLDER}{GROUP}"
    try:
        about = os.lstat(folder)
    except OSError:
        return None
    bits = stat.S_ISGID | stat.S_IRWXG
    is_so = stat.S_ISDIR(about.st_mode) and about.st_uid == 0 and about.st_mode & bits == bits
    is_closed = not about.st_mode & (stat.S_IRWXO | stat.S_ISVTX)
    is_member = about.st_gid in (os.getegid(), *os.getgroups())
    return CacheFolder(folder, True) if is_so and is_closed and is_member else None


def has_recorded_digest(descriptor: int, about: Path) -> bool:
    """Tell whether another member's copy has the SHA-256 digest in its provenance file ``about``."""
    try:
        told = msgspec.json.decode(about.read_bytes())["sha256"]
        with open(os.dup(descriptor), "rb", buffering=0) as file:
            file.seek(0)
            return bool(hashlib.file_digest(file, "sha256").hexdigest() == told)
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        return False
