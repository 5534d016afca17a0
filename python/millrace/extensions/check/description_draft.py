"""A draft description of a tool, from its help text and from a trial of one command.

The trial shows the outputs. A help text is written for people, so the options parsed from it are guesses.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from millrace.core.errors import MillraceError
from millrace.extensions.check.check_folder import link_user_folder, run_process

#: Names at the begin of a line: ``-o, --out``, ``-quiet``, ``--in1=<file>``.
_NAMES = re.compile(r"\s{0,10}(-{1,2}[A-Za-z0-9][\w.-]*(?:\s?[,|/ ]\s?-{1,2}[A-Za-z0-9][\w.-]*)*)(?P<rest>.*)")

#: The value between several names, as argparse writes them: ``-o OUT, --out OUT``.
_VALUE_BETWEEN = re.compile(r"(?<=[\w-])[ =](?:[A-Z][A-Z0-9_]*|\{[^}\s]*\}|<[^>]*>)(?=,\s-{1,2}[A-Za-z0-9])")

#: Text behind the names of an option that takes a value.
_VALUE = re.compile(
    r"(=|\s?<|\s?\[?=|\s\{|\s[A-Z][A-Z0-9_]*\b(?=\s|$)|\s(str|string|int|float|num|n|file|path|dir|uint|name|number)\b)"
)

#: A type at the end, as fastp and other tools write it: ``(string [=])``.
_TYPE_AT_END = re.compile(r"\((string|int|float|double) \[=.*\]\)")


class HelpOption(msgspec.Struct, frozen=True):
    """An option in a help text."""

    #: All its names, without dashes; the longest first.
    names: tuple[str, ...]
    takes_value: bool
    #: Its description.
    text: str


def parse_help_options(text: str) -> list[HelpOption]:
    """Parse the options of a help text; each is returned once.

    >>> parse_help_options("  -o, --out FILE  where to write\\n  -q --quiet   say nothing")
    [HelpOption(names=('out', 'o'), takes_value=True, text='where to write'), HelpOption(names=('quiet', 'q'), takes_value=False, text='say nothing')]
    >>> parse_help_options("  -o OUT, --out OUT  where to write")
    [HelpOption(names=('out', 'o'), takes_value=True, text='where to write')]
    """
    found: dict[str, HelpOption] = {}
    for line in text.splitlines():
        match = _NAMES.match(_VALUE_BETWEEN.sub("", line))
        if not match:
            continue
        rest = match["rest"]
        names = sorted(
            {name.lstrip("-") for name in re.split(r"[,|/ ]+", match[1].strip())}, key=lambda name: -len(name)
        )
        value = bool(_VALUE.match(rest) or _TYPE_AT_END.search(rest))
        words = re.split(r"\s{2,}|\t", rest.strip(), maxsplit=1)
        said = (words[-1] if len(words) > 1 or not value else "").strip()
        if not any(name in found for name in names):
            found[names[0]] = HelpOption(tuple(names), value, said)
    return list(found.values())


def has_one_dash_names(text: str) -> bool:
    """Tell whether most names of several letters have one dash, as in ``-quiet``."""
    long = re.findall(r"^\s{0,10}(--?)[A-Za-z]\w[\w-]+", text, re.MULTILINE)
    return bool(long) and long.count("-") > len(long) / 2


#: Timeout for the help text of a program.
HELP_SECONDS = 30.0

DATABASE = re.compile(r"\b(database|db|reference|ref|index|subject|target)s?\b", re.IGNORECASE)
THREADS = re.compile(r"\b(threads?|cpus?|cores|processors)\b", re.IGNORECASE)


class FileArgument(msgspec.Struct):
    """An argument of the command that may name a file."""

    #: Its position, in TOML: ``option = "out"`` or ``operand = 1``.
    where: str
    word: str
    text: str = ""


def find_verb(command: Sequence[str], cwd: Path) -> str:
    """Return the first argument if the help text of the program depends on it; else ""."""
    word = next(iter(command[1:]), "")
    if not re.fullmatch(r"[A-Za-z][\w-]*", word) or any(cwd.glob(f"{word}*")):
        return ""
    return (
        word
        if parse_help_options(read_help_text(command[:2], cwd)) != parse_help_options(read_help_text(command[:1], cwd))
        else ""
    )


def read_help_text(program: Sequence[str], cwd: Path) -> str:
    """Return the help text of a program, or of a verb of it; empty: there is none."""
    said = ""
    for argument in ("--help", "-h", "-help"):
        try:
            done = subprocess.run(
                [*program, argument], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=HELP_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            continue
        text = done.stdout.decode(errors="replace")
        if len(parse_help_options(text)) > len(parse_help_options(said)):
            said = text
    return said


def find_written_files(command: Sequence[str], cwd: Path, folder: Path) -> set[str]:
    """Run a command in a folder with links to the user's files; return the files that it has written.

    Raises:
        MillraceError: The command fails.
    """
    work = folder / "work"
    named = {
        os.path.normpath(part) for word in command[1:] for part in (word, word.partition("=")[2]) if _is_inside(part)
    }
    there = {path for path in named if (cwd / path).is_file()}
    link_user_folder(cwd, work, {path for path in named - there if not (cwd / path).exists()}, there)
    for path in there:  # copied, as the command may write any of them
        (work / path).unlink()
        shutil.copyfile(cwd / path, work / path)
    before = _list_file_states(work)
    with (
        (folder / "stdout").open("wb") as out,
        open(os.devnull, "rb") as nothing,
        run_process(command, work, os.environ, nothing, out, tidy=False) as process,
    ):
        _, said = process.communicate()
    if process.returncode:
        last = "".join(said.decode(errors="replace").strip().splitlines()[-1:])
        raise MillraceError(
            f"the command ends with exit status {process.returncode}: {last}", "give one that works on a small sample"
        )
    return {path for path, state in _list_file_states(work).items() if before.get(path) != state}


def _is_inside(word: str) -> bool:
    """Tell whether a word can be the name of a file in the working folder."""
    return (
        bool(word)
        and not os.path.isabs(word)
        and not word.startswith("-")
        and not os.path.normpath(word).startswith("..")
    )


def _list_file_states(folder: Path) -> dict[str, tuple[int, int]]:
    """Return (bytes, mtime in ns) of all files, by relative path."""
    found = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        if not path.is_dir():
            found[str(path.relative_to(folder))] = (about.st_size, about.st_mtime_ns)
    return found


def draft_description(command: Sequence[str], verb: str, text: str, written: set[str], cwd: Path) -> str:
    """Draft a description of the tool as TOML, with a comment at each guess.

    Args:
        verb: The first argument, if options depend on it; else "".
        text: The help text.
        written: Files that the command has written.
        cwd: Folder of relative paths.
    """
    known = _add_given_options(parse_help_options(text), command[2:] if verb else command[1:])
    places, use = (
        list(_find_file_arguments(command[2:] if verb else command[1:], known)),
        f"verb.{verb}" if verb else "use",
    )
    outputs = [each for each in places if os.path.normpath(each.word) in written]
    read = [each for each in places if each not in outputs and (cwd / each.word).is_file()]
    prefixes = [each for each in places if each not in (*outputs, *read) and any(cwd.glob(f"{each.word}.*"))]
    inputs = [each for each in read if not DATABASE.search(f"{each.where} {each.text}")][:1] or read[:1]
    databases = [each for each in read if each not in inputs]
    lines = [
        f"# A first version for {Path(command[0]).name}, from its help text and one trial. Look at what is marked with ??, then:",
        "#   millrace tool check -- " + shlex.join(command),
        f"programs = [{json.dumps(Path(command[0]).name)}]",
        'about = "?? what it does, in a few words"',
        *(['dashes = "one"'] if has_one_dash_names(text) else []),
        "",
        f"[{use}]",
        *_format_options(known, places),
        '# ?? how standard output is joined: empty is one batch after the other; a header line: stdout = ["header:1"]',
        *_format_tables(
            f"{use}.input", inputs, "cut into records: guessed, as the first file of the command that is read"
        ),
        *_format_tables(f"{use}.output", outputs, 'written by the trial; a header line needs: join = ["header:1"]'),
        *_format_tables(
            f"{use}.database", databases, "read whole by every task: guessed, as another file that is read"
        ),
        *_format_tables(
            f"{use}.database", prefixes, "there are files that begin so: guessed as a database", 'files = "{}.*"'
        ),
    ]
    return "\n".join(lines) + "\n"


def _add_given_options(known: Sequence[HelpOption], arguments: Sequence[str]) -> list[HelpOption]:
    """Add the options of the command that the help text does not list: they have a value if a word follows."""
    names = {name for option in known for name in option.names}
    found = list(known)
    for word, after in zip(arguments, [*arguments[1:], "-"], strict=True):
        name = word.lstrip("-").partition("=")[0]
        if word.startswith("-") and name and name not in names:
            found.append(HelpOption((name,), "=" in word or not after.startswith("-"), ""))
    return found


def _find_file_arguments(arguments: Sequence[str], known: Sequence[HelpOption]) -> Iterator[FileArgument]:
    """Yield the arguments that may name files: values of options, and operands."""
    by_name = {name: option for option in known for name in option.names}
    operand, words = 0, list(arguments)
    while words:
        word = words.pop(0)
        if word.startswith("-") and word != "-":
            typed, equals, value = word.lstrip("-").partition("=")
            option = by_name.get(typed)
            if not equals and words and option and option.takes_value:
                equals, value = "=", words.pop(0)
            if equals:
                yield FileArgument(
                    f"option = {json.dumps(option.names[0] if option else typed)}", value, option.text if option else ""
                )
        else:
            operand += 1
            yield FileArgument(f"operand = {operand}", word)


def _format_options(known: Sequence[HelpOption], places: Sequence[FileArgument]) -> Iterator[str]:
    named = {each.where for each in places}
    rest = [each for each in known if f"option = {json.dumps(each.names[0])}" not in named]
    threads = [each for each in known if each.takes_value and THREADS.search(f"{' '.join(each.names)} {each.text}")][:1]
    flags = " ".join(each.names[0] for each in rest if not each.takes_value)
    values = " ".join(each.names[0] for each in rest if each.takes_value and each not in threads)
    names = " ".join(f"{short}={each.names[0]}" for each in known for short in each.names[1:])
    yield "# ?? options without and with a value, as the help text has them; any other is refused"
    yield f"flags = {json.dumps(flags)}"
    yield f"values = {json.dumps(values)}"
    if names:
        yield f"names = {json.dumps(names)}"
    if threads:
        yield f"threads = {json.dumps(threads[0].names[0])}  # ?? guessed from: {threads[0].text[:60] or 'its name'}"


def _format_tables(table: str, found: Sequence[FileArgument], why: str, *more: str) -> Iterator[str]:
    for each in found:
        yield from ("", f"[[{table}]]  # ?? {why} ({each.word})", each.where, *more)
