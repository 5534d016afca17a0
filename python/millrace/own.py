"""Folders that are this user's alone. Imports next to nothing: sweeps and restarts wait for it.

In ``/tmp`` and ``/dev/shm`` everybody can make anything by any name. So what a name there seems to say is believed only
of a folder that nobody else can have made, and in which nobody else can have put anything.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

#: Users that the machine itself knows.
ALL = 2**32 - 1


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


def take_private(path: Path, *, is_users: bool = False) -> None:
    """Make a folder that is closed to all others; one that is there already is taken over if nobody else can have filled it.

    Whatever is made in it by any name is then this user's, without a link of somebody else's in the way.

    Args:
        is_users: The user has named it, so one that is there stays as open to readers as it is.

    Raises:
        PermissionError: Another user may have put something there, or it is a link or a file; says which.
        OSError: It cannot be made.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    else:
        return
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PermissionError(errno.EPERM, "is a link or a file, and a folder is needed", str(path)) from error
        if error.errno == errno.EACCES:
            raise PermissionError(errno.EPERM, "belongs to another user", str(path)) from error
        raise
    try:
        about = os.fstat(folder)
        if about.st_uid != os.geteuid() and not _all_are_one(path, about.st_uid):
            raise PermissionError(errno.EPERM, "belongs to another user", str(path))
        if about.st_mode & stat.S_IWOTH:
            raise PermissionError(errno.EPERM, "can be written by every user", str(path))
        if about.st_mode & 0o077 and not is_users:
            with suppress(OSError):  # a disk that knows no modes
                os.fchmod(folder, 0o700)
    finally:
        os.close(folder)


def open_beneath(folder: Path, name: str) -> int:
    """Open a file below ``folder`` for writing, making it and the folders on the way; nothing outside can be reached.

    Args:
        name: From a journal or a pack, so anything: it is followed part by part, and through no link.

    Returns:
        Descriptor of a regular file, whose content is as it was.

    Raises:
        PermissionError: The name leaves the folder, by its words or by a link.
        OSError: The file cannot be made.
    """
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise PermissionError(errno.EPERM, "a name that is not one of a file below the folder", name)
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=here)
            there = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = there
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(parts[-1], flags, 0o666, dir_fd=here)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PermissionError(errno.EPERM, "a link or a file is in the way, and is not followed", name) from error
        raise
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise PermissionError(errno.EPERM, "is not a regular file", name)
    return file


def why_not_own(path: Path) -> str:
    """Why what is in a folder may be somebody else's doing; empty: only this user, or a group of his, can have put it there.

    Another's link to a folder of this user is not this user's, unless it is root's.

    Raises:
        OSError: It cannot be looked at.
    """
    about = os.stat(path)
    if os.lstat(path).st_uid not in (0, about.st_uid) or (
        about.st_uid != os.geteuid() and not _all_are_one(path, about.st_uid)
    ):
        return "belongs to another user"
    if about.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    return ""


def why_not_trusted(path: Path) -> str:
    """Why another user may have written a file, or what is in a folder; empty: only this user, a group of theirs, or root can.

    A link counts as well as the file to which it leads.

    Raises:
        OSError: It cannot be looked at.
    """
    for about in (os.lstat(path), os.stat(path)):
        if about.st_uid not in (os.geteuid(), *_roots()) and not _is_of_all(path, about.st_uid):
            return "belongs to another user"
        if about.st_mode & stat.S_IWOTH and not stat.S_ISLNK(about.st_mode):
            return "can be written by every user"
    return ""


def _is_of_all(path: Path, owner: int) -> bool:
    """Whether this disk gives everything to ``owner``; only a folder can tell."""
    folder = path if path.is_dir() else path.parent
    return os.stat(folder).st_uid == owner and _all_are_one(folder, owner)


def why_open(folder: Path) -> str:
    """Why somebody else could rename and replace what this user makes in ``folder``; empty: only root could.

    Raises:
        OSError: It cannot be looked at.
    """
    about = os.stat(folder)
    if about.st_uid not in (os.geteuid(), *_roots()):
        return "it belongs to another user, who can replace what is there"
    if about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX:
        return "every user can replace what is there, as it is not sticky (chmod +t)"
    return ""


def _roots() -> set[int]:
    """Numbers that stand for root: in a container that knows only its own users, also that of all others."""
    with open("/proc/self/uid_map") as file:
        if any(line.split()[0] == "0" and line.split()[2] == str(ALL) for line in file):
            return {0}
    with open("/proc/sys/kernel/overflowuid") as file:
        return {0, int(file.read())}


def is_own(path: Path) -> bool:
    """Whether only this user, or a group of his, can have put there what is in a folder, or the first one above it that is there."""
    while True:
        try:
            about = os.stat(path)
        except FileNotFoundError:
            path = path.parent
        except OSError:
            return False
        else:
            return about.st_uid == os.geteuid() and not about.st_mode & stat.S_IWOTH


def replace_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file as a whole. What a writer that was killed has left goes; a link that somebody has put there is not followed.

    Raises:
        OSError: It cannot be written.
    """
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(content)
        with suppress(FileNotFoundError):  # somebody else has written it at the same time
            new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _all_are_one(path: Path, owner: int) -> bool:
    """Whether the disk gives whatever this user makes there to ``owner``, as a server that knows no users does."""
    probe = path / f".{os.urandom(8).hex()}"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    try:
        return os.stat(probe).st_uid == owner
    finally:
        os.unlink(probe)
