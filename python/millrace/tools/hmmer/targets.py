"""Targets of a HMMER program: pressed profiles or sequences, and other files that all tasks read."""

from __future__ import annotations

from pathlib import Path

from millrace.errors import RefusedError
from millrace.model import (
    UserCommand,
)
from millrace.tools.hmmer.command import HmmerCommandLine
from millrace.tools.hmmer.programs import HmmerProgram

#: Options that name a file that all tasks read.
SHARED_FILES = ("mxfile", "bgfile", "ssifile")

#: What ``hmmpress`` writes next to a profile database.
PRESSED = (".h3m", ".h3i", ".h3f", ".h3p")


def find_databases(
    name: str, program: HmmerProgram, command: UserCommand, parsed: HmmerCommandLine
) -> tuple[Path, ...]:
    """Find the files that all tasks read: the targets, matrices and the like.

    Raises:
        RefusedError: One is missing, or cannot be read again for every query.
    """
    target = command.argv[parsed.files[1 - program.query]]
    shared = [command.cwd / value for option in SHARED_FILES if (value := parsed.get_value(option))]
    if target == "-":
        raise RefusedError(
            f"{name} can read its targets from standard input for a single query only",
            "write them to a file first",
        )
    found = _find_profile_files(name, command, target) if program.scans else _find_sequence_files(name, command, target)
    return (*found, *shared)


def _find_profile_files(name: str, command: UserCommand, target: str) -> list[Path]:
    database = find_profile_database(command, target)
    if database is None:
        raise RefusedError(f"{name}: profile database {target} not found", "check the path")
    pressed = [Path(f"{database}{suffix}") for suffix in PRESSED]
    if missing := [path.name for path in pressed if not path.is_file()]:
        raise RefusedError(
            f"{name}: profile database {target} is not pressed, {missing[0]} is missing",
            f"run hmmpress {target} first",
        )
    return [path for path in (database, *pressed) if path.is_file()]


def _find_sequence_files(name: str, command: UserCommand, target: str) -> list[Path]:
    database = command.cwd / target
    if not database.exists() or database.is_dir():
        raise RefusedError(f"{name}: sequence file {target} not found", "check the path")
    if database.suffix == ".gz" or not database.is_file():
        raise RefusedError(
            f"{name} cannot read {target} again for a second query, as it is no plain file",
            f"unpack it first and give {name} the plain file",
        )
    index = Path(f"{database}.ssi")
    return [database, index] if index.is_file() else [database]


def find_profile_database(command: UserCommand, path: str) -> Path | None:
    """Find ``path`` as hmmscan does: as it is, else in the directories of ``PFAMDB``; None: not found."""
    directories = [each for each in command.environ.get("PFAMDB", "").split(":") if each]
    candidates = [command.cwd / path, *(command.cwd / each / path for each in directories)]
    for candidate in candidates:
        if candidate.exists() or Path(f"{candidate}{PRESSED[0]}").exists():
            return candidate
    return None


def _refuse_stale_profiles(name: str, file: Path, path: str) -> None:
    """Refuse a profile file whose pressed form is older: HMMER would read the old form, and batches the new one."""
    pressed = Path(f"{file}{PRESSED[0]}")
    if pressed.is_file() and pressed.stat().st_mtime < file.stat().st_mtime:
        raise RefusedError(
            f"{name}: {path}.h3m is older than {path}, and {name} itself would read the older one",
            f"run hmmpress -f {path}, or remove the old {path}.h3*",
        )
