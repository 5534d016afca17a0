"""The page of the census: a table of all programs, from the results."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path

from census.measurement import CommandResult
from census.result_files import FileResults, list_suites, read_all_results
from millrace.host.permissions import replace_file

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tools" / "census.md"

HEAD = """\
# Census of programs

What {n_programs} programs do when their input is cut, measured in {n_commands} commands with the versions that are named, from {first} to {last}.
`python -m census` writes this page; `make census PROGRAMS="emboss seqkit"` measures some of its files again, and fails if something has changed.
[Everyday programs](programs.md) has the advice in words.

Each command ran twice as it is; with 1, 2 and 4 threads where it has such an option; on pieces of 1, of 7 and of a little more than half of the
records, whose outputs were joined; on the records in reversed order, whole and in pieces; and through `millrace run` with batches of a few records and
without any check (`--verify 0`), so that rules alone decide. Other options than these may depend on the whole input, and inputs of the census are small.
Commands are left out as long as their result is not the one that their file expects: so the page shows no command that is stopped or wrong.

| result | commands | meaning |
|---|---|---|
| exact | {exact} | `millrace run` wrote the serial bytes |
| refused | {refused} | refused by name before it starts, with what works instead |
| stopped | {stopped} | no rule names it: the run ended with an error, without `--verify 0` at the latest |
| wrong | {wrong} | other bytes with exit code 0 |

`COMMAND` in braces is the input that was cut. *Options* stand between `millrace run` and `--`. *Pieces* is what pieces gave without Millrace: `same`, or what differed first.
"""

SUITES = """\
`python -m census --suite trixie NAMES` measures the same commands with the releases of another suite of Debian, each against its own serial run. *fails*: the
release does not take the command."""


def write_page() -> None:
    """Write ``docs/tools/census.md``."""
    replace_file(PAGE, format_page(read_all_results(), read_suites()).encode())


def read_suites() -> dict[str, dict[str, FileResults]]:
    """Read the results with the releases of other suites of Debian."""
    return {suite: read_all_results(suite) for suite in list_suites()}


def format_page(results: dict[str, FileResults], suites: dict[str, dict[str, FileResults]]) -> str:
    """Return the text of the page."""
    commands = [each for file in results.values() for each in file.commands if each.verdict != "fails"]
    counts = Counter(each.verdict for each in commands)
    dates = sorted(file.date for file in results.values()) or ["", ""]
    text = [
        HEAD.format(
            n_programs=len({each.program for each in commands}), n_commands=len(commands), first=dates[0], last=dates[-1],
            **{verdict: counts[verdict] for verdict in ("exact", "refused", "stopped", "wrong")},
        )
    ]  # fmt: skip
    for name, file in sorted(results.items()):
        versions = ", ".join(f"{package} {version}" for package, version in sorted(file.versions.items()))
        text += ["", f"## {name}", "", f"{versions or 'the versions of Debian 12'}; {file.date}.", ""]
        text += ["| program | command | options | result | pieces | threads |", "|---|---|---|---|---|---|"]
        shown = (each for each in file.commands if each.verdict != "fails")
        for _, rows in groupby(shown, lambda each: each.program):
            text += [_format_row(each) for each in rows]
    return "\n".join([*text, *_format_suites(results, suites)]) + "\n"


def _format_suites(results: dict[str, FileResults], suites: dict[str, dict[str, FileResults]]) -> list[str]:
    """Return the lines about other suites of Debian: their releases, and which commands have another result."""
    text = [
        "",
        "## Newer releases",
        "",
        SUITES,
        "",
        "| suite | releases | commands | with another result |",
        "|---|---|---|---|",
    ]
    for suite, files in sorted(suites.items()):
        for name, file in sorted(files.items()):
            usual = results.get(name, FileResults("", {}, []))
            newer = (
                f"{each} {version}"
                for each, version in sorted(file.versions.items())
                if version != usual.versions.get(each)
            )
            verdicts = {each.command: each.verdict for each in usual.commands}
            other = [
                f"{_quote(each.command)}: {each.verdict}"
                for each in file.commands
                if each.verdict != verdicts.get(each.command)
            ]
            cells = (
                f"{suite}, {file.date}",
                ", ".join(newer) or "no newer ones",
                str(len(file.commands)),
                "; ".join(other),
            )
            text.append("| " + " | ".join(cells) + " |")
    return text


def _format_row(result: CommandResult) -> str:
    cells = (
        f"`{result.program}`", _quote(result.command), _quote(result.options), result.verdict + (f": {result.note}" if result.note else ""),
        _describe_pieces(result), _describe_threads(result),
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _quote(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'").replace("\n", " ") + "`" if text else ""


def _describe_pieces(result: CommandResult) -> str:
    if result.twice != "same":
        return "two equal runs differ"
    seen = next(
        (seen for seen in result.pieces.values() if seen != "same"),
        "same" if result.pieces else "each file a whole input",
    )
    where = [size for size, each in result.pieces.items() if each != "same"]
    if seen == "same" or seen.startswith("each"):
        return seen
    shown = "line" + seen.partition("line")[2] if ": line" in seen else seen
    return ("in reversed order: " if where == ["reversed"] else "") + _quote(shown[:120])


def _describe_threads(result: CommandResult) -> str:
    other = [number for number, seen in result.threads.items() if seen != "same"]
    return "same" if result.threads and not other else f"differ with {', '.join(other)}" if other else ""
