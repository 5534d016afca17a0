"""Lookup of programs, by path or on ``PATH``, as the shell finds them, and the trust in what was found.

A command whose first word is not the tool (a whole line in quotes, ``nice``, ``bash -c``, an alias) is refused, with
the line that works. Results of a trusted tool, version or script need no check by a second execution.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from millrace.adapters.known_refusals import SCRIPTED
from millrace.adapters.option_reader import split_words
from millrace.adapters.registry import has_adapter
from millrace.core.errors import RefusedError, ToolError
from millrace.core.job import JobSpec
from millrace.core.tool_use import ToolUse, UserCommand

#: Programs that start another, which then is the tool.
STARTERS = split_words(
    "time nice ionice nohup env timeout stdbuf taskset numactl setsid chrt sudo command exec srun mpirun mpiexec"
)
SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "fish"])

#: Characters that make a shell line more than one command of plain words.
_SHELL_SIGNS = r"[|;&<>$`(){}*?\n]"
#: First word of each command of a shell line.
_FIRST_WORD = r"(?:^|[;&|(\n])\s*([^\s;&|()<>'\"]+)"
_ASSIGNMENT = r"[A-Za-z_][A-Za-z0-9_]*="


def check_starters(argv: Sequence[str], environ: Mapping[str, str], *, filters: bool) -> None:
    """Refuse a command that starts the tool by another program, so that no adapter would recognise it.

    Args:
        filters: Whether data comes in on standard input, which unknown programs may filter.

    Raises:
        RefusedError: With the line that works.
    """
    name = Path(argv[0]).name

    def starts(word: str) -> bool:
        return has_adapter(word) or (not filters and shutil.which(word, path=environ.get("PATH")) is not None)

    if at := _find_started_program(argv, starts):
        line = _insert_millrace(argv, at)
        raise RefusedError(f"{name} starts {argv[at]}: millrace has to see the tool itself", f"write: {line}")
    if name in STARTERS and not filters:
        raise RefusedError(
            f"{name} starts another program, and none is found on PATH: {shlex.join(argv)}",
            f"check the name of the tool, and write: {name} millrace run -- TOOL ...",
        )
    if name in SHELLS and len(argv) > 2 and argv[1].startswith("-") and argv[1].endswith("c"):
        _check_shell_line(name, argv[2], starts)


def _check_shell_line(shell: str, line: str, starts: Callable[[str], bool]) -> None:
    """Refuse a shell line that starts programs."""
    begins = [(match[1], match.start(1)) for match in re.finditer(_FIRST_WORD, line) if starts(match[1])]
    if not begins:
        return
    # Beside a known tool, the other programs prepare its input or process its output.
    tool, at = next((each for each in begins if has_adapter(each[0])), begins[0])
    hint = f"write: {line[:at]}millrace run -- {line[at:]}"
    if not has_adapter(tool) and re.search(_SHELL_SIGNS, line):
        hint = "run the tool by itself, as in: millrace run -- TOOL ... > FILE; and what comes before or after it in the shell"
    raise RefusedError(f"{shell} starts {tool}: millrace has to see the tool itself", hint)


def _find_started_program(argv: Sequence[str], is_program: Callable[[str], bool]) -> int:
    """Return the position of the program that the first word starts, directly or by others; 0: none."""
    if Path(argv[0]).name not in STARTERS:
        return 0
    return next((at for at, word in enumerate(argv) if Path(word).name not in STARTERS and is_program(word)), 0)


def _insert_millrace(argv: Sequence[str], at: int) -> str:
    return shlex.join([*argv[:at], "millrace", "run", "--", *argv[at:]])


def _split_words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def suggest_missing_program(name: str, argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return a hint for a missing program ``name``, the first word of ``argv``."""
    words = _split_words(name)
    if len(words) > 1 and shutil.which(words[0], path=environ.get("PATH")):
        return f"write the command without quotes around it: millrace run -- {shlex.join([*words, *argv[1:]])}"
    if re.match(_ASSIGNMENT, name):
        return f"set variables before millrace: {shlex.quote(name)} millrace run -- {shlex.join(argv[1:])}"
    # In many shells "time" is a keyword, and no program of that name is installed.
    if at := _find_started_program(argv, lambda word: shutil.which(word, path=environ.get("PATH")) is not None):
        return f"write: {_insert_millrace(argv, at)}"
    return (
        "install it, or give its path; millrace doctor lists what is there "
        "(an alias or a function of your shell is no program: type -a NAME tells)"
    )


def find_program(name: str, cwd: Path, environ: Mapping[str, str], argv: Sequence[str] = ()) -> Path:
    """Return the path of the program that the shell would start.

    Args:
        argv: The command that begins with it, for the hint.

    Raises:
        RefusedError: The name is empty.
        ToolError: There is no such program, or it is not executable.
    """
    if not name:
        raise RefusedError("the first word of the command is empty", "write the program's name after --")
    if "/" in name:
        path = cwd / name
        if path.is_dir() or not path.exists():
            raise ToolError(
                f"{name}: {'is a folder' if path.is_dir() else 'no such program'}",
                "check the path of the program after --",
            )
        if not os.access(path, os.X_OK):
            raise ToolError(f"{name}: not executable", f"make it so with: chmod +x {name}")
        return Path(os.path.normpath(path))
    found = shutil.which(name, path=environ.get("PATH"))
    if not found:
        raise ToolError(f"{name}: program not found on PATH", suggest_missing_program(name, argv or [name], environ))
    return Path(os.path.normpath(cwd / found))


def is_unknown_tool(use: ToolUse) -> bool:
    """Tell whether some options of the tool may treat records dependently, as far as Millrace knows."""
    return use.adapter in ("generic", "records") or use.adapter.startswith("file:") or use.is_doubtful


def is_untested_version(use: ToolUse) -> bool:
    """Tell whether the adapter was compared only with serial runs of other versions of the tool."""
    return bool(use.tested) and not any(
        re.search(rf"(?<![\d.]){re.escape(version)}(?!\.?\d)", use.version) for version in use.tested
    )


def explain_doubts(use: ToolUse, tool: str) -> str:
    """Explain why part of the input is verified even without ``--verify``; empty: it is not."""
    if use.is_doubtful:
        return f"not every option of {tool} was compared"
    if is_unknown_tool(use):
        return f"{tool} is not known to millrace"
    if is_untested_version(use):
        return f"{use.version or f'{tool}, which does not tell its version,'} was never tested with millrace"
    return ""


def check_script(job: JobSpec, use: ToolUse, command: UserCommand) -> None:
    """Refuse a script of awk, sed, perl or jq, unless it certainly treats each line by itself or the user says so.

    Raises:
        RefusedError: The script may keep state between records, count them, or read records of another file.
    """
    program = Path(command.argv[0]).name
    formats = {item.format for item in use.inputs}
    if use.adapter != "generic" or "files" in formats or job.independent or program not in SCRIPTED:
        return
    from millrace.adapters.one_liners import is_certainly_by_line, is_script_command  # no other start is to wait for it

    def read_text(name: str) -> str:
        with suppress(OSError):
            return (command.cwd / name).read_text(errors="replace")
        return ""

    arguments, inputs = command.argv[1:], [item.path for item in use.inputs]
    # A line may reach into the next record where records do not end with lines.
    is_of_lines = "nul" not in formats
    if not is_script_command(program, arguments) or (
        is_of_lines and is_certainly_by_line(program, arguments, inputs, read_text)
    ):
        return
    raise RefusedError(
        f"{program}: it is not certain that this script treats each record by itself: it may count lines or keep something "
        "from one to the next",
        "if each record is treated by itself, say so with --independent; both ends and a sample are then run again, cut "
        "elsewhere. If the script asks for the first line (NR == 1, 1d), name a format with a header, too: "
        "--input FILE:lines+header. If it needs the whole input, let millrace run the step before it, and pipe the result: "
        f"millrace run -- ... | {program}",
    )


def describe_untested_version(use: ToolUse, job: JobSpec, tool: str) -> tuple[str, ...]:
    """Return a note about a version that was never tested; none if it was."""
    if not is_untested_version(use):
        return ()
    check = "" if job.verify == 0 else "; parts of the input are run again, cut elsewhere, and must give the same bytes"
    return (f"{explain_doubts(use, tool)} (but {', '.join(use.tested)} were){check}",)


def describe_check(job: JobSpec, use: ToolUse) -> str:
    """Describe how the plan verifies that the output does not depend on the cuts; empty: no check is needed."""
    if job.verify == 0 or (job.verify is None and not is_unknown_tool(use) and not is_untested_version(use)):
        return "check: none, as asked with --verify 0" if is_unknown_tool(use) else ""
    share = "a sample" if job.verify is None else f"{job.verify:.0%} of the input"
    return f"check: both ends of the input and {share} are run again, cut elsewhere, and must give the same bytes"
