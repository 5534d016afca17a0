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


def read_results(name: str) -> FileResults | None:
    """Read the results of a file; None: there are none yet."""
    path = RESULTS / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=FileResults) if path.exists() else None


def write_results(name: str, results: FileResults) -> None:
    """Write the results of a file."""
    RESULTS.mkdir(exist_ok=True)
    # In one step: other measurements may read it meanwhile.
    replace_file(RESULTS / f"{name}.json", msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def read_all_results() -> dict[str, FileResults]:
    """Read all results by the name of their file."""
    found = {path.stem: read_results(path.stem) for path in sorted(RESULTS.glob("*.json"))}
    return {name: results for name, results in found.items() if results}
