"""Checks of the files to which packs and unpacked results are written, made before any work; locks beside them; pipes.

Through pipes the outputs of a run go into a pack while they are written: no file of them ever exists. The pipes are
anonymous, as not every filesystem holds named ones: this process opens them by their descriptors.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from millrace.core.errors import MillraceError, RefusedError
from millrace.core.text_format import format_size
from millrace.core.wait_loop import wait_until
from millrace.extensions.pack.layout import MAGIC
from millrace.host import file_lock
from millrace.host.file_lock import FileLock
from millrace.host.permissions import claim_private_folder
from millrace.planning.run_plan import RunPlan
from millrace.rundir.ownership import try_remove_folder

#: Bytes that are read from a pipe at a time.
READ_BYTES = 1 << 20


class PipeEnds:
    """Both ends of a pipe for one output, open until ``PipeEnds.close``."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)

    @property
    def path(self) -> str:
        """Return the path by which this process opens the writing end."""
        return f"/proc/self/fd/{self.writer}"

    def close(self) -> None:
        """Close both ends; does nothing the second time."""
        for end in {self.reader, self.writer} - {-1}:
            os.close(end)
        self.reader = self.writer = -1


def redirect_to_pipes(plan: RunPlan, pipes: Sequence[PipeEnds]) -> RunPlan:
    """Return ``plan`` with ``pipes`` in the place of its outputs; the command of the tool stays the same."""
    outputs = [msgspec.structs.replace(use, to=ends.path) for use, ends in zip(plan.use.outputs, pipes, strict=True)]
    return msgspec.structs.replace(plan, use=msgspec.structs.replace(plan.use, outputs=tuple(outputs)))


@contextmanager
def forward_pipes(pipes: Sequence[PipeEnds], takers: Sequence[Callable[[bytes], None]]) -> Iterator[None]:
    """Pass the bytes of each pipe to its taker within the context, and empty bytes at the end.

    Args:
        pipes: Closed at the end.
        takers: Called in one thread for each pipe.

    Raises:
        MillraceError: A taker or the writer has failed.
    """
    readers: list[PipeReader] = []
    try:
        for ends, take in zip(pipes, takers, strict=True):
            readers.append(PipeReader(ends, take))
        yield
        for pipe, take in zip(readers, takers, strict=True):
            pipe.finish_reading()
            take(b"")
    except BaseException as error:
        for pipe in readers:
            pipe.close()
        if first := next((pipe.error for pipe in readers if pipe.error), None):
            raise first from error
        raise
    finally:
        for pipe in readers:
            pipe.close()
        for ends in pipes:
            ends.close()


class PipeReader:
    """A thread that reads one output. It waits neither for a writer to open the pipe, nor for one to close it.

    Args:
        ends: The pipe.
        take: Called with each piece; if it raises, the pipe is closed, and so the writer fails.
    """

    def __init__(self, ends: PipeEnds, take: Callable[[bytes], None]) -> None:
        self._take = take
        self.error: BaseException | None = None
        self._pipe, ends.reader = ends.reader, -1  # closed by the thread, so that a writer without a reader fails
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run_reader, name="pack output", daemon=True)
        self._thread.start()

    def finish_reading(self) -> None:
        """Read the remaining bytes and end the thread; call this when everything is written.

        Raises:
            BaseException: The error of ``take``.
        """
        self.close()
        if self.error:
            raise self.error

    def close(self) -> None:
        """End the thread; does nothing if it has ended."""
        if self._waker >= 0:
            os.close(self._waker)
            self._waker = -1
            self._thread.join()
            os.close(self._wake)

    def _run_reader(self) -> None:
        try:
            self._forward_until_woken()
        except BaseException as error:
            self.error = error
        finally:
            os.close(self._pipe)

    def _forward_until_woken(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._pipe, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            data = self._read_available()
            if data:
                self._take(data)
            elif self._wake in ready:
                return

    def _read_available(self) -> bytes:
        try:
            return os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return b""


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


def wait_for_lock(path: Path, seconds: float, job: str = "") -> FileLock:
    """Take the lock of ``path``; wait ``seconds`` for a process that is about to end, or only probes the lock.

    Args:
        job: See ``millrace.host.file_lock.acquire_lock``.

    Raises:
        LockHeldError: Another process holds it for longer.
    """
    held: list[file_lock.LockHeldError] = []

    def try_lock() -> FileLock | None:
        try:
            return file_lock.acquire_lock(path, job)
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
