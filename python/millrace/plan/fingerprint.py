"""Fingerprints of the files that a result depends on, cheap enough for every start, for the comparison of a resume."""

from __future__ import annotations

import os
import stat
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Mapping
from pathlib import Path

from millrace.job import JobSpec
from millrace.model import ToolUse, UserCommand
from millrace.tools.base import NUL, is_still_growing

#: Largest file that is read whole; of larger ones, samples are read.
MAX_WHOLE_BYTES = 64 << 20
N_SAMPLES = 64
SAMPLE_BYTES = 64 << 10

#: Key of the fingerprint of standard input.
STANDARD_INPUT = "input on standard input"


def fingerprint_content(path: Path) -> str:
    """Return size and digest of a file, or of samples of a large one, in words.

    A change that the samples miss is still found by a resume, which compares the checksum of every batch.
    A pipe has no fingerprint: the text says that it is not a regular file.
    """
    if not path.is_file():
        return "not a regular file"
    with path.open("rb") as file:
        return _fingerprint_descriptor(file.fileno(), 0)


def fingerprint_standard_input() -> str:
    """Fingerprint the rest of standard input from its current offset; empty if it is not a regular file."""
    try:
        if not stat.S_ISREG(os.fstat(0).st_mode):
            return ""
        return _fingerprint_descriptor(0, os.lseek(0, 0, os.SEEK_CUR))
    except OSError:
        return ""


def _fingerprint_descriptor(file: int, start: int) -> str:
    """Fingerprint an open file from offset ``start``, without moving its file offset."""
    size = max(0, os.fstat(file).st_size - start)
    digest = blake2b(digest_size=16)
    if size <= MAX_WHOLE_BYTES:
        at = start
        while block := os.pread(file, 1 << 20, at):
            digest.update(block)
            at += len(block)
    else:
        for k in range(N_SAMPLES):
            digest.update(os.pread(file, SAMPLE_BYTES, start + (size - SAMPLE_BYTES) * k // (N_SAMPLES - 1)))
    return f"{size} bytes, {digest.hexdigest()}"


def fingerprint_stat(path: str | os.PathLike[str]) -> str:
    """Return size and time of change: for databases and programs, which are too large to read at every start."""
    found = os.stat(path)
    return format_stat_fingerprint(found.st_size, found.st_mtime_ns)


def format_stat_fingerprint(size_bytes: int, mtime_ns: int) -> str:
    """Format the fingerprint of a file whose status is known."""
    return f"{size_bytes} bytes, changed {mtime_ns}"


def digest_cost_key(use: ToolUse, fingerprints: Mapping[str, str]) -> str:
    """Digest what the cost of a task depends on: tool, options, databases and threads.

    Empty for a search in fragments, whose costs depend on how the database was cut.
    """
    if use.fragmented:
        return ""
    shared = {name: text for name, text in fingerprints.items() if not name.startswith("input ")}
    return blake2b(repr((shared, use.argv, use.threads)).encode(), digest_size=16).hexdigest()


def fingerprint_run(job: JobSpec, use: ToolUse, command: UserCommand) -> dict[str, str]:
    """Fingerprint program, inputs and databases of a run, for the comparison of a resume: name to fingerprint."""
    version = use.version or "version unknown"
    if job.arch:
        # The next coordinator may be of another architecture; see ``millrace.cluster.programs`` for the files.
        found = {f"program {command.argv[0]}": version}
        found |= {f"program on {name}": arch.exe for name, arch in job.arch.items()}
    else:
        found = {f"program {command.exe}": f"{version}; {fingerprint_stat(command.exe)}"}
    for item in use.inputs:
        if item.format == "files":
            for name in item.path.split(NUL):
                if os.path.isfile(file := os.path.join(command.cwd, name)):
                    found[f"input {name}"] = fingerprint_stat(file)
        elif item.path == "-":
            found |= {STANDARD_INPUT: text} if (text := fingerprint_standard_input()) else {}
        elif not is_still_growing(item.path, command) and (command.cwd / item.path).is_file():
            found[f"input {item.path}"] = fingerprint_content(command.cwd / item.path)
    for path in use.databases:
        if command.view and (behind := command.view.find_file(path)):
            found[f"database {behind.place}, {behind.name}"] = f"{behind.size} bytes, version {behind.version}"
        elif (command.cwd / path).is_file():
            found[f"database {path}"] = fingerprint_stat(command.cwd / path)
    for later in command.view.later if command.view else ():
        found[f"database {later.place}, {later.name}"] = f"{later.size} bytes, version {later.version}"
    return found


def has_all_fingerprints(use: ToolUse, command: UserCommand, fingerprints: Mapping[str, str]) -> bool:
    """Tell whether every input has a fingerprint; the content of a pipe is unknown before it is read.

    Inputs that another phase writes are not counted: that phase checks them.
    """
    return all(
        (STANDARD_INPUT if item.path == "-" else f"input {item.path}") in fingerprints
        for item in use.inputs
        if item.format != "files" and not is_still_growing(item.path, command)
    )
