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

from millrace.adapters.adapter_base import is_still_growing
from millrace.core.tool_use import FrozenValue, RemoteFileView, ToolUse, UserCommand
from millrace.host import file_lock

#: Role of a file that the command of an unknown program names, of unknown use.
NAMED = "file"


class DependencyFile(FrozenValue, frozen=True):
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


def describe_difference(was: DependencyFile, now: DependencyFile | None) -> str:
    """Describe how a file has changed, in words; empty if it has not. Pure.

    >>> describe_difference(DependencyFile("input q.fa", "/q.fa", 20, 1, 5), DependencyFile("input q.fa", "/q.fa", 10, 2, 5))
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


def stat_program_files(
    use: ToolUse, exe: Path, cwd: Path, view: RemoteFileView | None = None
) -> tuple[DependencyFile, ...]:
    """Return the current status of the program and the databases.

    Args:
        view: Has cached copies, whose change time changes when other runs link to them.
    """
    program = _stat_regular_files([(f"program {exe}", str(exe))])
    databases = _stat_regular_files(
        (f"{classify_shared_file(use, path)} {path}", os.path.join(cwd, path)) for path in use.databases
    )
    # Package managers may link a program into another environment, which changes its change time.
    program = tuple(msgspec.structs.replace(file, ctime_ns=0) for file in program)
    return (*program, *_drop_change_times(databases, view))


def classify_shared_file(use: ToolUse, path: Path) -> str:
    """Return the role of a shared file, for messages."""
    return NAMED if path in use.named else "database"


def parse_named_file(difference: str) -> str:
    """Return the file of a difference (``describe_difference``), if the command of an unknown program names it; else empty.

    >>> parse_named_file("n1: file /data/out.fa: has been written"), parse_named_file("database nr.pin: is gone")
    ('/data/out.fa', '')
    """
    found = re.search(rf"(?:^|: ){NAMED} (.*): ", difference)
    return found[1] if found else ""


def stat_run_files(use: ToolUse, command: UserCommand) -> tuple[DependencyFile, ...]:
    """Return the current status of all files of a result, except those of one record each, which batches check."""
    named = []
    for item in use.inputs:
        if item.path == "-":
            named.append(("standard input", "-"))
        elif item.format != "files" and not is_still_growing(item.path, command):
            named.append((f"input {item.path}", os.path.join(command.cwd, item.path)))
    view = command.view
    return (
        *_drop_change_times(_stat_regular_files(named), view),
        *stat_program_files(use, command.exe, command.cwd, view),
    )


def _drop_change_times(files: Iterable[DependencyFile], view: RemoteFileView | None) -> tuple[DependencyFile, ...]:
    return tuple(
        msgspec.structs.replace(file, ctime_ns=0) if view and view.find_file(Path(file.path)) else file
        for file in files
    )


def describe_first_change(files: Iterable[DependencyFile]) -> str:
    """Describe the first of ``files`` that has changed, in words; empty: none has."""
    return next((found for was in files if (found := describe_difference(was, stat_file(was.name, was.path)))), "")


def find_unserved_mount(files: Iterable[DependencyFile]) -> str:
    """Return the mount point of the first user-space filesystem that no process serves now; empty: none.

    The kernel answers ``stat`` from its attribute cache until that expires; only opening a file shows the loss.
    """
    by_mount = {file.mount: file.path for file in files if file.mount}  # one file of each mount is enough
    for mount, path in by_mount.items():
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno == errno.ENOTCONN or file_lock.find_mount(Path(path))[0] != mount:
                return mount
    return ""


def stat_file(name: str, path: str) -> DependencyFile | None:
    """Return the current status of a file; None if it does not exist."""
    try:
        found = os.fstat(0) if path == "-" else os.stat(path)
    except OSError:
        return None
    return DependencyFile(name, path, found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)


def digest_file_states(use: ToolUse, command: UserCommand) -> str:
    """Digest inodes and times of change of program, databases and input files, which cannot be restored, at whatever paths.

    A database or program that was replaced and put back has the same fingerprint, but another digest here.
    """
    digest = blake2b(digest_size=16)
    records = [name for item in use.inputs if item.format == "files" for name in item.paths]
    for path in (os.fspath(command.exe), *map(os.fspath, use.databases), *records):
        if command.view and (file := command.view.find_file(Path(path))):
            digest.update(f"{file.key}\0".encode(errors="replace"))  # unique to this version
            continue
        try:
            found = os.stat(os.path.join(command.cwd, path))
        except OSError:
            continue
        digest.update(b"%d %d %d\0" % (found.st_ino, found.st_mtime_ns, found.st_ctime_ns))
    for later in command.view.later if command.view else ():
        digest.update(f"{later.key}\0".encode(errors="replace"))
    return digest.hexdigest()


def _stat_regular_files(named: Iterable[tuple[str, str]]) -> tuple[DependencyFile, ...]:
    """Return the status of the regular ones of the files: others have no comparable status."""
    return tuple(
        _drop_false_inodes(file for name, path in named if (file := stat_file(name, path)) and _is_regular_file(path))
    )


def _is_regular_file(path: str) -> bool:
    try:
        return stat.S_ISREG((os.fstat(0) if path == "-" else os.stat(path)).st_mode)
    except OSError:
        return False


def _drop_false_inodes(files: Iterable[DependencyFile]) -> Iterator[DependencyFile]:
    """Drop inodes and change times of files in user-space filesystems, which may return others each time."""
    made_up: dict[str, str] = {}
    for file in files:
        folder = os.path.dirname(file.path)
        if folder not in made_up:
            mount, kind = file_lock.find_mount(Path(folder or "/"))
            made_up[folder] = mount if kind.startswith("fuse") else ""
        mount = made_up[folder]
        yield msgspec.structs.replace(file, inode=0, ctime_ns=0, mount=mount) if mount else file
