"""A folder that mirrors the user's working directory, with the files in it that a command names by URLs.

Adapters read it while a run is planned, and each node has it at the same path. All entries are links: to those of the
working directory and of the folders above it, and to copies in the cache of the node. Once its copies are gone, the
next such folder that is made removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from millrace.core.errors import RefusedError
from millrace.core.tool_use import FetchedFile, RemoteFileView, ToolUse
from millrace.host import file_lock, work_places
from millrace.host.permissions import claim_private_folder
from millrace.node import mirror_layout
from millrace.storage.cache.cache_files import FOLDER

#: Seconds after which a folder without copies counts as left behind: an input that nodes cut is not copied.
MAX_UNUSED_SECONDS = 30 * 86400.0


def plan_view(
    argv: Sequence[str], cwd: Path, files: Iterable[FetchedFile], inputs: Sequence[str] = (), shared: Sequence[str] = (),
    later: Iterable[FetchedFile] = (), stage: str = "auto", in_pieces: Mapping[str, int] = {},
    cut: tuple[FetchedFile | None, int, bytes] = (None, 0, b""),
) -> RemoteFileView:  # fmt: skip
    """Choose the folder.

    Args:
        argv: The command, with names in place of URLs; ``inputs``, ``shared``: likewise.
        later: Files that are fetched later; ``stage``: where they will be kept.
        in_pieces: As in ``RemoteFileView``.
        cut: The input that nodes cut, its block size, and its first bytes.
    """
    files, later = tuple(files), tuple(later)
    words = "\0".join(
        [
            str(cwd),
            *argv,
            *inputs,
            *shared,
            *(f"{file.name}\0{file.key}" for file in (*files, *later, *filter(None, cut[:1]))),
        ]
    )
    digest = hashlib.sha256(words.encode(errors="surrogateescape")).hexdigest()[:24]
    place = (
        next((place for place in work_places.MEMORY if os.path.isdir(place)), None)
        or work_places.find_temporary_folder()
    )
    root = Path(place) / f"millrace-names-{os.geteuid()}" / digest
    directory = _lay_out_words((*argv, *inputs, *shared), cwd).directory
    return RemoteFileView(
        root=root, folder=root / directory, files=files, argv=tuple(argv), inputs=tuple(inputs), shared=tuple(shared),
        later=later, stage=stage, in_pieces=dict(in_pieces), cut_by_nodes=cut[0], block_bytes=cut[1], head=cut[2],
    )  # fmt: skip


def build_view(view: RemoteFileView, cwd: Path, copies: Mapping[str, str], absent: Mapping[str, int] = {}) -> None:
    """Make the folder, or update it.

    Args:
        copies: Paths of the files on this node, by name.
        absent: Names of files that this node does not have whole, with their bytes: a placeholder of that size is made,
            the same one for all processes of this node.

    Raises:
        RefusedError: The path belongs to another user.
        OSError: The folder cannot be made.
    """
    _make_private_folder(view.root.parent)
    layout = _lay_out_words((*view.argv, *view.inputs, *view.shared), cwd)
    links = {view.root / path: target for path, target in layout.links}
    links |= {view.folder / name: target for name, target in copies.items()}
    view.root.mkdir(exist_ok=True)
    os.utime(view.root)
    with _lock_folder(view.root):
        for folder in (view.root, *(view.root / each for each in layout.folders)):
            folder.mkdir(exist_ok=True)
            for entry in os.scandir(folder):
                if entry.is_symlink() and Path(entry.path) not in links:
                    os.unlink(entry.path)
        for path, target in links.items():
            _replace_link(path, target)
        for name, n_bytes in absent.items():
            _write_placeholder(view.folder / name, n_bytes)
        if view.cut_by_nodes:
            _write_placeholder(view.folder / view.cut_by_nodes.name, view.cut_by_nodes.size, view.head)
    _sweep_stale_views(view.root)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder exclusively among the processes of this host."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        file_lock.wait_for_flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lay_out_words(words: tuple[str, ...], cwd: Path) -> mirror_layout.SlotLayout:
    return mirror_layout.lay_out_mirror(ToolUse(adapter="", argv=words, inputs=(), outputs=()), cwd)


def _make_private_folder(folder: Path) -> None:
    try:
        claim_private_folder(folder)
    except OSError as error:
        raise RefusedError(f"{folder}: {error.strerror}", "it is made for this user alone: have it removed") from error


def _replace_link(path: Path, target: str) -> None:
    with suppress(OSError):
        if os.readlink(path) == target:
            return
    new = _choose_unused_path(path)
    new.symlink_to(target)
    new.replace(path)


def _write_placeholder(path: Path, n_bytes: int, head: bytes = b"") -> None:
    """Make a sparse file of ``n_bytes`` as a placeholder, which begins with ``head``."""
    with suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and found.st_size == n_bytes:
            return
    new = _choose_unused_path(path)
    with new.open("xb") as file:
        file.write(head)
        file.truncate(n_bytes)
    new.replace(path)


def _choose_unused_path(path: Path) -> Path:
    return path.with_name(f".{path.name[-100:]}.{os.urandom(4).hex()}")


def _sweep_stale_views(own: Path) -> None:
    """Remove folders whose copies are gone: none is in use, as copies in use are never removed; and old ones without copies."""
    oldest = time.time() - MAX_UNUSED_SECONDS
    for other in own.parent.iterdir():
        with suppress(FileNotFoundError):  # another process removes it, too
            copies = [path.exists() for path in other.rglob("*") if _is_copy(path)]
            if other != own and (not all(copies) or (not copies and other.stat().st_mtime < oldest)):
                shutil.rmtree(other, ignore_errors=True)


def _is_copy(path: Path) -> bool:
    with suppress(OSError):
        return os.path.basename(os.path.dirname(os.readlink(path))).startswith(FOLDER)
    return False
