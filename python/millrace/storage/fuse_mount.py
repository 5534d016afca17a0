"""The FUSE side of a view, by ``mfusepy``, which uses ``libfuse`` 2 or 3."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from millrace.core.errors import MillraceError, RefusedError
from millrace.core.replica_rules import redact_place
from millrace.storage.clients.base import DeniedError, LocationError, MissingError, import_client
from millrace.storage.view_tree import ViewTree

#: Seconds for which the kernel caches names and attributes: they do not change while a view exists.
KERNEL_CACHE_SECONDS = 3600


class ViewOperations:
    """The FUSE operations of a view. The missing ones write, and are refused.

    Args:
        say: Prints errors, as a program gets only their number.
    """

    use_ns = True

    def __init__(self, tree: ViewTree, say: Callable[[str], None]) -> None:
        self._tree, self._say = tree, say
        self._owner = {"st_uid": os.geteuid(), "st_gid": os.getegid()}

    def getattr(self, path: str, fh: object = None) -> dict[str, int]:
        """Return type, size and time of change of a path."""
        with self._translate_errors():
            if path == "/" or self._tree.is_folder(path):
                return {"st_mode": stat.S_IFDIR | 0o555, "st_nlink": 2, **self._owner}
            about = self._tree.find_file(path).about
            return {"st_mode": stat.S_IFREG | 0o444, "st_nlink": 1, "st_size": about.size, "st_blocks": -(-about.size // 512),
                    "st_mtime": about.mtime_ns, "st_ctime": about.mtime_ns, **self._owner}  # fmt: skip

    def readdir(self, path: str, fh: object) -> list[str]:
        """List the names in a folder."""
        with self._translate_errors():
            listed = self._tree.list_folder(path)
            return [".", "..", *sorted(listed.files | listed.folders)]

    def open(self, path: str, fi: Any) -> int:
        """Let the kernel cache what it has read: the bytes of a version do not change."""
        with self._translate_errors():
            self._tree.find_file(path)
        fi.keep_cache = 1
        return 0

    def read(self, path: str, size: int, offset: int, fh: object) -> bytes:
        """Read bytes of a file."""
        with self._translate_errors():
            return self._tree.find_file(path).read(offset, size)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except MissingError as error:
            raise OSError(errno.ENOENT, error.message) from error
        except (MillraceError, OSError) as error:
            self._say(str(error))
            raise OSError(errno.EACCES if isinstance(error, DeniedError) else errno.EIO, str(error)) from error


def load_fuse(url: str) -> ModuleType:
    """Import ``mfusepy``.

    Raises:
        RefusedError: It, libfuse or /dev/fuse is missing.
    """
    try:
        found = import_client("mfusepy", "mount", redact_place(url))
    except (OSError, AttributeError) as error:
        raise RefusedError(f"{redact_place(url)}: a view needs libfuse: {error}", "apt-get install fuse3") from error
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise RefusedError(f"{redact_place(url)}: a view needs /dev/fuse, which cannot be opened here",
                           "have FUSE allowed on this machine, or name the URL in the command itself: millrace run")  # fmt: skip
    return found


def check_mountable(url: str, point: Path) -> None:
    """Check that ``url`` can be mounted at ``point``.

    Raises:
        MillraceError: It cannot be mounted, and why.
    """
    load_fuse(url)
    try:
        is_empty = not any(point.iterdir())
    except NotADirectoryError as error:
        raise RefusedError(f"{point}: is no folder", f"name an empty folder: mkdir {point}") from error
    except FileNotFoundError as error:
        raise RefusedError(f"{point}: no such folder", f"mkdir {point}") from error
    except OSError as error:
        hint = "a view that died: umount it first" if error.errno == errno.ENOTCONN else "name an empty folder of yours"
        raise RefusedError(f"{point}: {error.strerror}", hint) from error
    if os.path.ismount(point):
        raise RefusedError(f"{point}: something is mounted there", f"umount {point}")
    if not is_empty:
        raise RefusedError(f"{point}: is not empty", "name an empty folder")


def find_listing_notice(url: str, tree: ViewTree) -> str:
    """Return a notice about the folder for the user, before it is mounted; empty: none.

    Raises:
        MillraceError: The folder does not exist, or cannot be read.
    """
    try:
        listed = tree.list_folder("/")
    except (MissingError, DeniedError) as error:
        if not url.startswith("http"):
            raise
        return f"{error.message}: nothing there can be listed, files are found by name alone"
    except LocationError as error:
        raise error
    if not listed.files and not listed.folders:
        raise MissingError(f"{redact_place(url)}: nothing is there", "name a folder, as in: s3://bucket/blast/")
    return ""


def serve_view(url: str, tree: ViewTree, point: Path, say: Callable[[str], None]) -> None:
    """Mount the view, and answer until it is unmounted or this process is asked to end.

    Raises:
        MillraceError: It cannot be mounted.
    """
    fuse = load_fuse(url)
    face = type("View", (ViewOperations, fuse.Operations), {})(tree, say)
    try:
        fuse.FUSE(face, str(point), raw_fi=True, foreground=True, ro=True, fsname=redact_place(url).replace(",", " "), subtype="millrace",
                  attr_timeout=KERNEL_CACHE_SECONDS, entry_timeout=KERNEL_CACHE_SECONDS)  # fmt: skip
    except RuntimeError as error:
        raise MillraceError(f"{point}: cannot be mounted ({error})", "see what fusermount says above") from error
