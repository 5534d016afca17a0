"""Results of the census, one JSON file for each file of programs."""

from __future__ import annotations

import msgspec

from census.measurement import CommandResult
from census.program_files import RESULTS
from millrace.host.permissions import replace_file


class FileResults(msgspec.Struct):
    """What was seen of the programs of one file."""

    date: str
    versions: dict[str, str]
    commands: list[CommandResult]


def read_results(name: str, suite: str = "") -> FileResults | None:
    """Read the results of a file, with the releases of a suite of Debian; None: there are none yet."""
    path = RESULTS / suite / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=FileResults) if path.exists() else None


def write_results(name: str, results: FileResults, suite: str = "") -> None:
    """Write the results of a file."""
    path = RESULTS / suite / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    # In one step: other measurements may read it meanwhile.
    replace_file(path, msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def read_all_results(suite: str = "") -> dict[str, FileResults]:
    """Read all results by the name of their file."""
    found = {path.stem: read_results(path.stem, suite) for path in sorted((RESULTS / suite).glob("*.json"))}
    return {name: results for name, results in found.items() if results}


def list_suites() -> list[str]:
    """List the suites of Debian whose releases were measured besides."""
    return sorted(path.name for path in RESULTS.iterdir() if path.is_dir())
