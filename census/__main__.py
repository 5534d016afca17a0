"""Measure programs, and compare with what was seen before.

    python -m census [NAME ...]        # names of files in census/programs; none: all of them

Each file's results are written to ``census/results``, and the table of all to ``docs/tools/census.md``. The exit status is 1 if
something is not as expected, or not as it was before. Needs Debian's apt (nothing is installed), unshare, and the test data.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from census.inputs import write_inputs
from census.measurement import CommandMeasurement, CommandResult
from census.packages import fetch_packages, lay_over, list_versions, make_environment
from census.page import write_page
from census.program_files import CensusCommand, CensusFile, list_names, read_census_file
from census.refusal_list import write_refusal_list
from census.result_files import FileResults, read_results, write_results


def main() -> int:
    """Measure the files that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--missing", action="store_true", help="measure only commands without a result")
    parser.add_argument(
        "--page", action="store_true", help="write the page of the results that are there, and measure nothing"
    )
    parser.add_argument("--suite", default="", help="with the releases of another suite of Debian (trixie, sid)")
    asked = parser.parse_args()
    names = asked.names or list_names()
    n_faults = 0
    write_refusal_list()
    if not asked.page:
        if len(names) == 1:
            n_faults = measure_file(names[0], only_missing=asked.missing, suite=asked.suite)
        else:
            more = [*["--missing"] * asked.missing, *["--suite", asked.suite] * bool(asked.suite)]
            n_faults = sum(subprocess.run([sys.executable, "-m", "census", name, *more]).returncode for name in names)
    write_page()
    return int(n_faults > 0)


def measure_file(name: str, *, only_missing: bool, suite: str) -> int:
    """Measure one file; return the number of commands that are not as expected, or not as they were."""
    file = read_census_file(name)
    root = fetch_packages(file, suite)
    lay_over(root)
    before = read_results(name, suite)
    known = {each.command: each for each in before.commands} if before else {}
    commands = file.list_commands()
    results: dict[str, CommandResult] = {}
    if only_missing:
        expected = {command.run: command.get_expected(suite) for _, command in commands}
        results = {line: was for line, was in known.items() if was.verdict == expected.get(line)}
    today = datetime.now(UTC).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="census-", dir="/tmp", ignore_cleanup_errors=True) as place:
        site = CensusSite(file, root, Path(place), suite)
        if suite and root:  # it may not have all packages
            commands = [each for each in commands if site.finds_program(each[0], root)]
        for program, command in _order_commands(commands):
            if command.run not in results:
                results[command.run] = site.measure(program, command)
                _print_result(results[command.run])
                seen = [results[each.run] for _, each in commands if each.run in results]
                write_results(name, FileResults(today, list_versions(root), seen), suite)
    return _report_faults([(command.get_expected(suite), command) for _, command in commands], results, known)


def _order_commands(commands: list[tuple[str, CensusCommand]]) -> list[tuple[str, CensusCommand]]:
    """Order commands so that a start that is stopped has seen as many programs as possible: each program's first, then others."""
    programs = [program for program, _ in commands]
    return [commands[at] for at in sorted(range(len(commands)), key=lambda at: programs[:at].count(programs[at]))]


class CensusSite:
    """A folder with the inputs and databases of a file, in which its commands are measured."""

    def __init__(self, file: CensusFile, root: Path | None, place: Path, suite: str) -> None:
        self.file, self.base = file, place / "base"
        self.base.mkdir()
        (place / "home").mkdir()
        write_inputs(self.base)
        self.environ = make_environment(root, file, place / "home")
        for line in file.setup:
            done = subprocess.run(["bash", "-c", line], cwd=self.base, env=self.environ, capture_output=True, text=True)
            if done.returncode:
                message = f"census: setup: {line}: {done.stderr.strip()[-600:]}"
                if not suite:
                    raise SystemExit(message)
                print(message, flush=True)  # what needs it fails

    def finds_program(self, program: str, root: Path) -> bool:
        """Tell whether a program is one of the packages below ``root``."""
        path = shutil.which(program, path=self.environ["PATH"])
        return path is not None and (root / path[1:]).exists()

    def measure(self, program: str, command: CensusCommand) -> CommandResult:
        """Measure one command."""
        return CommandMeasurement(command, self.base, self.environ, self.file.formats).measure(program)


def _print_result(result: CommandResult) -> None:
    pieces = ", ".join(f"{size}: {seen}" for size, seen in result.pieces.items() if seen != "same")
    parts = [result.verdict, result.program, result.command]
    parts += [f"twice: {result.twice}"] * (result.twice not in ("same", ""))
    parts += [f"threads: {result.threads}"] * any(seen != "same" for seen in result.threads.values())
    print(" | ".join([*parts, *([f"pieces {pieces}"] if pieces else []), result.words]), flush=True)


def _report_faults(
    commands: list[tuple[str, CensusCommand]], seen: dict[str, CommandResult], known: dict[str, CommandResult]
) -> int:
    """Print what is not as expected or was otherwise before; return its number."""
    n_faults = 0
    for expected, command in commands:
        now, was = seen[command.run], known.get(command.run)
        if now.verdict != expected:
            print(f"  not as expected ({expected}): {now.verdict}: {now.command}: {now.words}")
            n_faults += 1
        elif was and was.list_equal_pieces() != now.list_equal_pieces():
            print(
                f"  was otherwise: {was.list_equal_pieces()} were the same, now {now.list_equal_pieces()}: {now.command}"
            )
            n_faults += 1
        elif was and now.verdict == "exact" and was.digest != now.digest:
            print(f"  other bytes than before: {now.command}")
            n_faults += 1
    return n_faults


if __name__ == "__main__":
    sys.exit(main())
