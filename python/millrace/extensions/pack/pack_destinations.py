"""Checks of the files to which packs and unpacked results are written, made before any work; and locks beside them."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from millrace.core.errors import MillraceError, RefusedError
from millrace.core.number_format import format_size
from millrace.core.wait_loop import wait_until
from millrace.extensions.pack.layout import MAGIC
from millrace.host import file_lock
from millrace.host.file_lock import FileLock
from millrace.host.permissions import claim_private_folder
from millrace.rundir.ownership import try_remove_folder

#: Longest time that a filesystem may take to remove a file that was open when it was unlinked.
STILL_OPEN_SECONDS = 2.0

#: Errors for a lack of room.
_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_destinations(dests: Sequence[Path], read: Iterable[Path] = ()) -> None:
    """Check that ``dests`` can be written, and differ from each other and from the files in ``read``.

    Raises:
        RefusedError: They cannot; nothing was written.
    """
    for dest in dests:
        _check_destination(dest)
    refuse_overwritten_inputs(dests, read)
    if len({dest.resolve() for dest in dests}) < len(dests):
        raise RefusedError("a file is named twice", "give each output a file of its own")


def check_room(dests: Sequence[Path], sizes: Sequence[int]) -> None:
    """Check that each disk has room for outputs of these sizes in bytes.

    Raises:
        RefusedError: A disk has too little room.
    """
    asked: dict[int, int] = {}
    for dest, n_bytes in zip(dests, sizes, strict=True):
        disk = dest.parent.stat().st_dev
        asked[disk] = asked.get(disk, 0) + n_bytes
        free = shutil.disk_usage(dest.parent).free
        if asked[disk] > free:
            raise RefusedError(
                f"{dest.parent}: has room for {format_size(free)}, and the pack says that it unpacks to {format_size(asked[disk])}",
                "make room there, or name a file elsewhere; a pack of a stranger may say anything",
            )


def refuse_overwritten_inputs(dests: Sequence[Path], read: Iterable[Path]) -> None:
    """Check that none of ``dests`` is one of the files that are read.

    Raises:
        RefusedError: One is.
    """
    files = [path for path in read if path.exists()]
    for dest in dests:
        if dest.exists() and any(path.samefile(dest) for path in files):
            raise RefusedError(f"{dest}: is read, and would be written over", "name another file with -o")


def check_replaced_file(dest: Path) -> None:
    """Check that a pack replaces only an older pack or an empty file.

    Raises:
        RefusedError: The file is something else.
    """
    if dest.exists():
        with dest.open("rb") as file:
            start = file.read(len(MAGIC))
        if start not in (b"", MAGIC):
            raise RefusedError(
                f"{dest}: is there already, is no pack, and would be written over", "name another file with -o"
            )


def claim_folder(path: Path) -> None:
    """Make a private folder for incomplete files, or reuse that of an earlier start; see ``millrace.host.permissions.claim_private_folder``.

    Raises:
        RefusedError: Another user may have made it.
    """
    try:
        claim_private_folder(path)
    except PermissionError as error:
        raise RefusedError(
            f"{path}: {(error.strerror or '').lower()}", "remove it, or name a file in a folder of your own with -o"
        ) from error


@contextmanager
def explain_write_errors(dest: Path) -> Iterator[None]:
    """Translate errors with temporary files beside ``dest`` into messages that name ``dest``.

    Raises:
        MillraceError: There is no room, or the files cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise MillraceError(
                f"{dest.parent}: no room left ({error.strerror})", "make room there, or name a file elsewhere with -o"
            ) from error
        name = os.path.relpath(os.fsdecode(error.filename or ""), dest.parent)
        if not name.startswith(f".{dest.name}."):
            raise
        raise MillraceError(f"{dest}: {error.strerror}", "see who may write in its folder") from error


def remove_emptied_folder(folder: Path) -> None:
    """Remove an emptied folder, once the filesystem has removed the files in it that were still open.

    Network and FUSE filesystems keep such a file, for instance the lock, under another name until it is closed.
    """

    wait_until(lambda: try_remove_folder(folder), STILL_OPEN_SECONDS, nap=0.02)


def wait_for_lock(path: Path, seconds: float) -> FileLock:
    """Take the lock of ``path``; wait ``seconds`` for a process that is about to end, or only probes the lock.

    Raises:
        LockHeldError: Another process holds it for longer.
    """
    held: list[file_lock.LockHeldError] = []

    def try_lock() -> FileLock | None:
        try:
            return file_lock.acquire_lock(path)
        except file_lock.LockHeldError as error:
            held.append(error)
            return None

    if found := wait_until(try_lock, seconds, nap=0.1):
        return found
    raise held[-1]


def _check_destination(dest: Path) -> None:
    if dest.name == "-" and not dest.exists():
        raise RefusedError("-o -: a file is needed, not standard output", "name a file with -o, and read that")
    try:
        mode = dest.lstat().st_mode
    except FileNotFoundError:
        mode = 0
    except NotADirectoryError:
        raise RefusedError(f"{dest.parent}: is no folder", "name a file in a folder with -o") from None
    if stat.S_ISLNK(mode):
        raise RefusedError(f"{dest}: is a link, not a file", "name the file itself with -o")
    if stat.S_ISDIR(mode):
        raise RefusedError(f"{dest}: is a folder", "name a file in it with -o")
    if mode and not stat.S_ISREG(mode):
        raise RefusedError(f"{dest}: is a device or a pipe, and a file is needed", "name a file with -o, and read that")
    if not dest.parent.is_dir():
        raise RefusedError(f"{dest.parent}: no such folder", "make it, or name a file elsewhere with -o")
    if not os.access(dest.parent, os.W_OK | os.X_OK):
        raise RefusedError(f"{dest.parent}: permission denied", "name a file in a folder where you may write with -o")
