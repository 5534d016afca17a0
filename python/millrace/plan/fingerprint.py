"""Fingerprints of what a result depends on: cheap enough for every start, honest enough for a resume."""

from __future__ import annotations

import os
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


def of_content(path: Path) -> str:
    """Size and digest of a file; of samples of it if it is large.

    A change that the samples miss is still found by a resume, which compares the checksum of every batch.
    A pipe has no fingerprint beyond what it is.
    """
    if not path.is_file():
        return "not a regular file"
    size = path.stat().st_size
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            while block := file.read(1 << 20):
                digest.update(block)
        else:
            for k in range(SAMPLES):
                file.seek((size - SAMPLE_BYTES) * k // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return f"{size} bytes, {digest.hexdigest()}"


def of_stat(path: str | os.PathLike[str]) -> str:
    """Size and time of change: for databases and programs, which are too large to read at every start."""
    stat = os.stat(path)
    return of_state(stat.st_size, stat.st_mtime_ns)


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
        elif item.path != "-" and not grows(item.path, command) and (command.cwd / item.path).is_file():
            found[f"input {item.path}"] = of_content(command.cwd / item.path)
    for path in use.databases:
        if command.view and (behind := command.view.file(path)):
            found[f"database {behind.place}, {behind.name}"] = f"{behind.size} bytes, version {behind.version}"
        elif (command.cwd / path).is_file():
            found[f"database {path}"] = of_stat(command.cwd / path)
    for later in command.view.later if command.view else ():
        found[f"database {later.place}, {later.name}"] = f"{later.size} bytes, version {later.version}"
    return found
