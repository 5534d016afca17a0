"""Whose folder of copies is used: this user's own, or one that the site has made for a group.

Who may write in a folder can put anything there. So the folder of a group counts only if root has made it, which nobody
else can, and a copy of another member only if its bytes are those of which the member wrote down the digest.
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

from millrace.own import open_private, replace_whole
from millrace.storage.cache_files import LOCK

#: How the name of a folder of copies begins.
FOLDER = "millrace-stage-"

#: What is behind that in the name of a group's.
GROUP = "group"


@dataclass(frozen=True)
class Whose:
    """A folder of copies, and whether members of a group share it."""

    folder: Path
    is_shared: bool = False

    @property
    def bits(self) -> int:
        """What others may do with a copy."""
        return stat.S_IRGRP if self.is_shared else 0

    def gate(self) -> int:
        """Open what is locked by whoever changes what is there: of a group the folder, which all members can open."""
        if self.is_shared:
            return os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def growing(self, path: Path) -> int:
        """Open what is fetched, for writing unless it is another member's."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except PermissionError:
            if not self.is_shared:
                raise
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.open_up(descriptor)
        return descriptor

    def write(self, path: Path, content: bytes) -> None:
        """Write a small file as a whole."""
        replace_whole(path, content, 0o600)
        path.chmod(0o600 | self.bits)

    def is_others(self, descriptor: int) -> bool:
        """Whether a file is another member's."""
        return self.is_shared and os.fstat(descriptor).st_uid != os.geteuid()

    def open_up(self, descriptor: int) -> None:
        """Let other members read a file of this user."""
        if self.is_shared and not self.is_others(descriptor):
            os.fchmod(descriptor, 0o600 | self.bits)


def own_folder(place: Path) -> Path:
    """This user's folder of copies in ``place``, made if it is not there.

    Somebody else may have taken its name, which everybody can tell. Then one by another name is taken, which the next
    job finds by its owner.
    """
    usual = place / f"{FOLDER}{os.geteuid()}"
    with suppress(FileExistsError):
        usual.mkdir(mode=0o700)
    for folder in (usual, *sorted(place.glob(f"{usual.name}-*"))):
        with suppress(OSError):
            os.close(open_private(folder))
            return folder
    return Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=place))


def of_group(place: Path) -> Whose | None:
    """The folder of copies that the site has made for a group of this user in ``place``; None: there is none.

    It is root's, keeps the group of what is made in it (setgid), lets members remove what is another's (not sticky), and
    is closed to all others.
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
    return Whose(folder, True) if is_so and is_closed and is_member else None


def is_as_told(descriptor: int, about: Path) -> bool:
    """Whether a copy of another member has the bytes of which he wrote down the digest."""
    try:
        told = msgspec.json.decode(about.read_bytes())["sha256"]
        with open(os.dup(descriptor), "rb", buffering=0) as file:
            file.seek(0)
            return bool(hashlib.file_digest(file, "sha256").hexdigest() == told)
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        return False
