"""Status of the files that a result depends on, at the time of the plan, and detection of later changes."""

from __future__ import annotations

import errno
import os
import re
import stat
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from millrace.model import Command, Frozen, ToolUse, View
from millrace.plan import filesystems
from millrace.tools.base import grows

#: Role of a file that the command of an unknown program names, of unknown use.
NAMED = "file"


class File(Frozen, frozen=True):
    """One file, with its status at one time."""

    #: Its role and name for messages: ``database nr.pin``.
    name: str
    #: Whole path; ``-``: standard input.
    path: str
    size_bytes: int
    mtime_ns: int
    #: 0: unknown, or not stable on its filesystem.
    inode: int
    #: Time of the last change of content or metadata, such as a move away and back. 0: as above, or harmless changes by
    #: others are expected.
    ctime_ns: int = 0
    #: Mount point of its filesystem, if a user process serves it, which may die; else empty.
    mount: str = ""


def difference(was: File, now: File | None) -> str:
    """Describe how a file has changed, in words; empty if it has not. Pure.

    >>> difference(File("input q.fa", "/q.fa", 20, 1, 5), File("input q.fa", "/q.fa", 10, 2, 5))
    'input q.fa: had 20 bytes, has 10 now'
    """
    if now is None:
        return f"{was.name}: is gone"
    if was.size_bytes != now.size_bytes:
        return f"{was.name}: had {was.size_bytes:,} bytes, has {now.size_bytes:,} now"
    if was.mtime_ns != now.mtime_ns:
        return f"{was.name}: has been written"
    if was.inode and now.inode and was.inode != now.inode:
        return f"{was.name}: is another file now"
    if was.ctime_ns and now.ctime_ns and was.ctime_ns != now.ctime_ns:
        return f"{was.name}: was moved away and back, or has another name, owner or mode"
    return ""


def of_program(use: ToolUse, exe: Path, cwd: Path, view: View | None = None) -> tuple[File, ...]:
    """Return the current status of the program and the databases.

    Args:
        view: Has cached copies, whose change time changes when other runs link to them.
    """
    program = _seen([(f"program {exe}", str(exe))])
    databases = _seen((f"{kind_of_shared(use, path)} {path}", os.path.join(cwd, path)) for path in use.databases)
    # Package managers may link a program into another environment, which changes its change time.
    program = tuple(msgspec.structs.replace(file, ctime_ns=0) for file in program)
    return (*program, *_without_uses(databases, view))


def kind_of_shared(use: ToolUse, path: Path) -> str:
    """Return the role of a shared file, for messages."""
    return NAMED if path in use.named else "database"


def named_file(difference: str) -> str:
    """Return the file of a ``difference``, if the command of an unknown program names it; else empty.

    >>> named_file("n1: file /data/out.fa: has been written"), named_file("database nr.pin: is gone")
    ('/data/out.fa', '')
    """
    found = re.search(rf"(?:^|: ){NAMED} (.*): ", difference)
    return found[1] if found else ""


def of_plan(use: ToolUse, command: Command) -> tuple[File, ...]:
    """Return the current status of all files of a result, except those of one record each, which batches check."""
    named = []
    for item in use.inputs:
        if item.path == "-":
            named.append(("standard input", "-"))
        elif item.format != "files" and not grows(item.path, command):
            named.append((f"input {item.path}", os.path.join(command.cwd, item.path)))
    view = command.view
    return (*_without_uses(_seen(named), view), *of_program(use, command.exe, command.cwd, view))


def _without_uses(files: Iterable[File], view: View | None) -> tuple[File, ...]:
    return tuple(
        msgspec.structs.replace(file, ctime_ns=0) if view and view.file(Path(file.path)) else file for file in files
    )


def changed(files: Iterable[File]) -> str:
    """Describe the first of ``files`` that has changed, in words; empty: none has."""
    return next((found for was in files if (found := difference(was, look(was.name, was.path)))), "")


def unserved(files: Iterable[File]) -> str:
    """Return the mount point of the first user-space filesystem that no process serves now; empty: none.

    The kernel answers ``stat`` from its attribute cache until that expires; only opening a file shows the loss.
    """
    by_mount = {file.mount: file.path for file in files if file.mount}  # one file of each mount is enough
    for mount, path in by_mount.items():
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno == errno.ENOTCONN or filesystems.mount(Path(path))[0] != mount:
                return mount
    return ""


def look(name: str, path: str) -> File | None:
    """Return the current status of a file; None if it does not exist."""
    try:
        found = os.fstat(0) if path == "-" else os.stat(path)
    except OSError:
        return None
    return File(name, path, found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)


def identity(use: ToolUse, command: Command) -> str:
    """Digest inodes and times of change of program, databases and input files, which cannot be restored.

    A database or program that was replaced and put back has the same fingerprint, but another digest here.
    """
    digest = blake2b(digest_size=16)
    records = [name for item in use.inputs if item.format == "files" for name in item.path.split("\0")]
    for path in (os.fspath(command.exe), *map(os.fspath, use.databases), *records):
        if command.view and (file := command.view.file(Path(path))):
            digest.update(f"{file.key}\0".encode(errors="replace"))  # unique to this version
            continue
        try:
            found = os.stat(os.path.join(command.cwd, path))
        except OSError:
            continue
        digest.update(f"{path}\0{found.st_ino}\0{found.st_mtime_ns}\0{found.st_ctime_ns}\0".encode(errors="replace"))
    for later in command.view.later if command.view else ():
        digest.update(f"{later.key}\0".encode(errors="replace"))
    return digest.hexdigest()


def _seen(named: Iterable[tuple[str, str]]) -> tuple[File, ...]:
    """Return the status of the regular ones of the files: others have no comparable status."""
    return tuple(
        _without_false_inodes(file for name, path in named if (file := look(name, path)) and _is_regular(path))
    )


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG((os.fstat(0) if path == "-" else os.stat(path)).st_mode)
    except OSError:
        return False


def _without_false_inodes(files: Iterable[File]) -> Iterator[File]:
    """Drop inodes and change times of files in user-space filesystems, which may return others each time."""
    made_up: dict[str, str] = {}
    for file in files:
        folder = os.path.dirname(file.path)
        if folder not in made_up:
            mount, kind = filesystems.mount(Path(folder or "/"))
            made_up[folder] = mount if kind.startswith("fuse") else ""
        mount = made_up[folder]
        yield msgspec.structs.replace(file, inode=0, ctime_ns=0, mount=mount) if mount else file
