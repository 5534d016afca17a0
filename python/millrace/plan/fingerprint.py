"""Fingerprints of what a result depends on: cheap enough for every start, honest enough for a resume."""

from __future__ import annotations

import os
import stat
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Mapping
from pathlib import Path

from millrace.job import Job
from millrace.model import Command, ToolUse
from millrace.tools.base import NUL, grows

#: A file is read whole up to this size, above it in samples.
WHOLE_BYTES = 64 << 20
SAMPLES = 64
SAMPLE_BYTES = 64 << 10

#: What an input without a name is called.
STANDARD_INPUT = "input on standard input"


def of_content(path: Path) -> str:
    """Size and digest of a file; of samples of it if it is large.

    A change that the samples miss is still found by a resume, which compares the checksum of every batch.
    A pipe has no fingerprint beyond what it is.
    """
    if not path.is_file():
        return "not a regular file"
    with path.open("rb") as file:
        return _of_opened(file.fileno(), 0)


def of_standard_input() -> str:
    """The same of what is still to be read there; empty if it is not a file."""
    try:
        if not stat.S_ISREG(os.fstat(0).st_mode):
            return ""
        return _of_opened(0, os.lseek(0, 0, os.SEEK_CUR))
    except OSError:
        return ""


def _of_opened(file: int, start: int) -> str:
    """Of an opened file from ``start`` on; where others read on in it stays as it is."""
    size = max(0, os.fstat(file).st_size - start)
    digest = blake2b(digest_size=16)
    if size <= WHOLE_BYTES:
        at = start
        while block := os.pread(file, 1 << 20, at):
            digest.update(block)
            at += len(block)
    else:
        for k in range(SAMPLES):
            digest.update(os.pread(file, SAMPLE_BYTES, start + (size - SAMPLE_BYTES) * k // (SAMPLES - 1)))
    return f"{size} bytes, {digest.hexdigest()}"


def of_stat(path: str | os.PathLike[str]) -> str:
    """Size and time of change: for databases and programs, which are too large to read at every start."""
    found = os.stat(path)
    return of_state(found.st_size, found.st_mtime_ns)


def of_state(size_bytes: int, mtime_ns: int) -> str:
    """The same of a file that was looked at already."""
    return f"{size_bytes} bytes, changed {mtime_ns}"


def cost_key(use: ToolUse, fingerprints: Mapping[str, str]) -> str:
    """A digest of what the cost of a task depends on: the tool, its options and databases.

    Empty for a search in fragments, whose costs depend on how the database was cut.
    """
    if use.fragmented:
        return ""
    shared = {name: text for name, text in fingerprints.items() if not name.startswith("input ")}
    return blake2b(repr((shared, use.argv, use.threads)).encode(), digest_size=16).hexdigest()


def of_run(job: Job, use: ToolUse, command: Command) -> dict[str, str]:
    """What the result depends on, by what it is, for the resume's comparison."""
    version = use.version or "version unknown"
    if job.arch:
        # The next coordinator may be of another architecture; see `millrace.cluster.programs` for the files.
        found = {f"program {command.argv[0]}": version}
        found |= {f"program on {name}": arch.exe for name, arch in job.arch.items()}
    else:
        found = {f"program {command.exe}": f"{version}; {of_stat(command.exe)}"}
    for item in use.inputs:
        if item.format == "files":
            for name in item.path.split(NUL):
                if os.path.isfile(file := os.path.join(command.cwd, name)):
                    found[f"input {name}"] = of_stat(file)
        elif item.path == "-":
            found |= {STANDARD_INPUT: text} if (text := of_standard_input()) else {}
        elif not grows(item.path, command) and (command.cwd / item.path).is_file():
            found[f"input {item.path}"] = of_content(command.cwd / item.path)
    for path in use.databases:
        if command.view and (behind := command.view.file(path)):
            found[f"database {behind.place}, {behind.name}"] = f"{behind.size} bytes, version {behind.version}"
        elif (command.cwd / path).is_file():
            found[f"database {path}"] = of_stat(command.cwd / path)
    for later in command.view.later if command.view else ():
        found[f"database {later.place}, {later.name}"] = f"{later.size} bytes, version {later.version}"
    return found


def are_known(use: ToolUse, command: Command, fingerprints: Mapping[str, str]) -> bool:
    """Whether ``fingerprints`` tell of all inputs what they were: of what comes through a pipe nobody knows before it is read.

    What another phase writes is looked at by that phase.
    """
    return all(
        (STANDARD_INPUT if item.path == "-" else f"input {item.path}") in fingerprints
        for item in use.inputs
        if item.format != "files" and not grows(item.path, command)
    )
