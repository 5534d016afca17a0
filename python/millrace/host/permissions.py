"""Permissions: files and folders that other users cannot have written; the user's state and cache.

In ``/tmp`` and ``/dev/shm`` every user can make any name. So a name there is trusted only if it is a folder that no
other user can have made, and in which no other user can have put anything. None of the small files in the user's own
folders, which outlive a run, is needed. Imports almost nothing: sweeps and restarts wait for it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

#: What ``find_ownership_problem`` says of another user's folder.
OF_ANOTHER = "belongs to another user"

#: Number of all user ids of a machine.
ALL = 2**32 - 1


def open_private_folder(path: Path) -> int:
    """Open a folder that is this user's and closed to all others; the descriptor is the checked folder.

    Raises:
        PermissionError: It is another user's, or others may read it.
        OSError: It cannot be opened, or is not a folder, such as a link to one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    about = os.fstat(descriptor)
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "is not this user's alone", str(path))
    return descriptor


def claim_private_folder(path: Path, *, is_users: bool = False) -> None:
    """Make a folder that is closed to all others, or take over an existing one that no other user can have filled.

    Any name made in it is then this user's; no link of another user is in the way.

    Args:
        is_users: The user has named the folder, so an existing one stays as readable as it is.

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
        if about.st_uid != os.geteuid() and not _is_squashed_to(path, about.st_uid):
            raise PermissionError(errno.EPERM, "belongs to another user", str(path))
        if about.st_mode & stat.S_IWOTH:
            raise PermissionError(errno.EPERM, "can be written by every user", str(path))
        if about.st_mode & 0o077 and not is_users:
            with suppress(OSError):  # a filesystem without modes
                os.fchmod(folder, 0o700)
    finally:
        os.close(folder)


def open_beneath(folder: Path, name: str) -> int:
    """Open a file below ``folder`` for writing; make it and its folders. No path outside can be reached.

    Args:
        name: From a journal or a pack, so untrusted: it is opened part by part, and no link is followed.

    Returns:
        Descriptor of a regular file, whose content is unchanged.

    Raises:
        PermissionError: The name leads out of the folder, by its parts or by a link.
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


def find_ownership_problem(path: Path) -> str:
    """Return why another user may have written into a folder; empty: only this user, or a group of theirs, can.

    Another user's link to a folder of this user does not count as this user's, unless it is root's.

    Raises:
        OSError: It cannot be checked.
    """
    about = os.stat(path)
    if os.lstat(path).st_uid not in (0, about.st_uid) or (
        about.st_uid != os.geteuid() and not _is_squashed_to(path, about.st_uid)
    ):
        return OF_ANOTHER
    if about.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    return ""


def find_trust_problem(path: Path) -> str:
    """Return why another user may have written a file, or into a folder; empty: only user, group or root can.

    Both a link and its target are checked.

    Raises:
        OSError: It cannot be checked.
    """
    for about in (os.lstat(path), os.stat(path)):
        if about.st_uid not in (os.geteuid(), *_list_root_ids()) and not _is_folder_squashed(path, about.st_uid):
            return "belongs to another user"
        if about.st_mode & stat.S_IWOTH and not stat.S_ISLNK(about.st_mode):
            return "can be written by every user"
    return ""


def _is_folder_squashed(path: Path, owner: int) -> bool:
    """Tell whether this filesystem gives all files to ``owner``; tested in the folder."""
    folder = path if path.is_dir() else path.parent
    return os.stat(folder).st_uid == owner and _is_squashed_to(folder, owner)


def find_replacement_risk(folder: Path) -> str:
    """Return why another user could rename or replace this user's files in ``folder``; empty: only root could.

    Raises:
        OSError: It cannot be checked.
    """
    about = os.stat(folder)
    if about.st_uid not in (os.geteuid(), *_list_root_ids()):
        return "it belongs to another user, who can replace what is there"
    if about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX:
        return "every user can replace what is there, as it is not sticky (chmod +t)"
    return ""


def _list_root_ids() -> set[int]:
    """Return the ids that stand for root; in a container that maps only its own users, also the overflow id."""
    with open("/proc/self/uid_map") as file:
        if any(line.split()[0] == "0" and line.split()[2] == str(ALL) for line in file):
            return {0}
    with open("/proc/sys/kernel/overflowuid") as file:
        return {0, int(file.read())}


def is_own_folder(path: Path) -> bool:
    """Tell whether only this user, or their group, can have filled a folder, or its nearest existing parent."""
    while True:
        try:
            about = os.stat(path)
        except FileNotFoundError:
            path = path.parent
        except OSError:
            return False
        else:
            return about.st_uid == os.geteuid() and not about.st_mode & stat.S_IWOTH


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file atomically; remove the unfinished file of a killed writer, and follow no link of another user.

    Raises:
        OSError: It cannot be written; names ``path``, not the unfinished file.
    """
    new = path.with_name(path.name + ".new")
    try:
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(content)
        with suppress(FileNotFoundError):  # another process has written it at the same time
            new.replace(path)
    except BaseException as error:
        with suppress(OSError):
            new.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def _is_squashed_to(path: Path, owner: int) -> bool:
    """Tell whether the filesystem gives new files to ``owner``, as a server that squashes all users does."""
    probe = path / f".{os.urandom(8).hex()}"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    try:
        return os.stat(probe).st_uid == owner
    finally:
        os.unlink(probe)


def find_state_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of facts learnt from runs, existing or not; None for a user without a home folder."""
    return _find_user_folder(environ, "XDG_STATE_HOME", Path(".local", "state"))


def find_cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of data that can be measured again, existing or not; None for a user without a home folder."""
    return _find_user_folder(environ, "XDG_CACHE_HOME", Path(".cache"))


def find_config_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of what the user has chosen, existing or not; None for a user without a home folder."""
    return _find_user_folder(environ, "XDG_CONFIG_HOME", Path(".config"))


def _find_user_folder(environ: Mapping[str, str], variable: str, usual: Path) -> Path | None:
    try:
        home = Path(environ.get(variable) or Path.home() / usual)
    except RuntimeError:
        return None
    found = home / "millrace"
    # Where ``sudo`` keeps HOME, it belongs to another user, who could make any file there.
    return found if home.is_absolute() and is_own_folder(found) else None
