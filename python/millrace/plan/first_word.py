"""The first word of a command where it is not the tool: a whole line in quotes, ``nice``, ``bash -c``, an alias."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace.errors import RefusedError
from millrace.tools.registry import MODULES

#: Programs that start another, which then is the tool.
STARTERS = frozenset(
    [
        "time",
        "nice",
        "ionice",
        "nohup",
        "env",
        "timeout",
        "stdbuf",
        "taskset",
        "numactl",
        "setsid",
        "chrt",
        "sudo",
        "command",
        "exec",
    ]
)
SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "fish"])

#: What makes a line more than one command of plain words.
_SHELL_SIGNS = re.compile(r"[|;&<>$`(){}*?\n]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def check_starters(argv: Sequence[str]) -> None:
    """Refuse a known tool that is started by another program: nothing would be known of it.

    Raises:
        RefusedError: With the line that works.
    """
    name = Path(argv[0]).name
    if name in STARTERS:
        for at, word in enumerate(argv[1:], start=1):
            if _known(word):
                line = shlex.join([*argv[:at], "millrace", "run", "--", *argv[at:]])
                raise RefusedError(f"{name} starts {word}: millrace has to see the tool itself", f"write: {line}")
    if name in SHELLS and len(argv) > 2 and argv[1].startswith("-") and argv[1].endswith("c"):
        words = _words(argv[2])
        if words and _known(words[0]):
            raise RefusedError(
                f"{name} starts {words[0]}: millrace has to see the tool itself", _without_shell(argv[2])
            )


def _without_shell(line: str) -> str:
    if not _SHELL_SIGNS.search(line):
        return f"write: millrace run -- {line}"
    return (
        "run the tool by itself, as in: millrace run -- TOOL ... > FILE; and what comes before or after it in the shell"
    )


def _known(word: str) -> bool:
    return Path(word).name in MODULES


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def missing_hint(name: str, argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """What helps where there is no program ``name``, the first word of ``argv``."""
    words = _words(name)
    if len(words) > 1 and shutil.which(words[0], path=environ.get("PATH")):
        return f"write the command without quotes around it: millrace run -- {shlex.join([*words, *argv[1:]])}"
    if _ASSIGNMENT.match(name):
        return f"set variables before millrace: {shlex.quote(name)} millrace run -- {shlex.join(argv[1:])}"
    return (
        "install it, or give its path; millrace doctor lists what is there "
        "(an alias or a function of your shell is no program: type -a NAME tells)"
    )
