"""Files that a tool writes and nobody collects: results that would be lost."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from millrace.errors import LostOutputError
from millrace.model import Command, ToolUse
from millrace.plan.doubts import is_unknown
from millrace.tasks import Ended

#: What may be a path in a script.
_WORD = re.compile(r"[^\s'\"`()<>|;&{}\[\],=]+")


class Strays:
    """Looks for them when tasks end.

    Args:
        tool: Name of the tool.
    """

    def __init__(self, command: Command, use: ToolUse, tool: str) -> None:
        self._command, self._use, self._tool = command, use, tool
        self._is_unknown = is_unknown(use)
        #: Paths below folders that the command names, and at which nothing is yet.
        self._to_come = [*dict.fromkeys(_to_come(command, use))] if self._is_unknown else []
        #: A file of the working directory that was not kept, and whether anything was.
        self._left, self._has_output = "", False

    def look(self, ended: Ended) -> None:
        """Look at what a task left.

        Raises:
            LostOutputError: The command names a file that it wrote.
        """
        if lost := named_in(self._command.argv, ended.extra) or next(filter(self._is_there, self._to_come), ""):
            raise _lost(self._tool, lost, "which is no output of this run: it would be lost")
        self._left = next(iter(ended.extra), self._left)
        self._has_output |= bool(ended.committed and any(block.length for block in ended.committed.blocks))

    def look_at_all(self) -> None:
        """Look at what all tasks gave.

        Raises:
            LostOutputError: What they wrote is nothing but files that were not kept.
        """
        if self._left and not self._has_output and self._is_unknown:
            raise _lost(self._tool, self._left, "and nothing to the outputs of this run: it would be lost")

    def _is_there(self, path: str) -> bool:
        return os.path.lexists(self._command.cwd / path)


def named_in(argv: Sequence[str], written: Sequence[str]) -> str:
    """The first of the files that the tool has written, and nobody collects, of which its command speaks; else empty.

    >>> named_in(["minimap2", "-o", "a.sam", "ref", "q.fa"], ["q.fa.tmp", "a.sam"])
    'a.sam'
    >>> named_in(["awk", "{print > \\"even.txt\\"}"], ["even.txt"])
    'even.txt'
    >>> named_in(["tool", "in.fa"], ["a", "fa", "in"])
    ''
    """
    for name in written:
        alone = re.compile(rf"(?<![\w./-])(?:\./)?{re.escape(name)}(?![\w/-]|\.\w)")
        if any(alone.search(word) for word in argv[1:]):
            return name
    return ""


def _to_come(command: Command, use: ToolUse) -> Iterator[str]:
    read = {each.partition(":")[0] for each in command.inputs} | {*command.shared} | command.growing
    written = [os.path.realpath(command.cwd / output.path) for output in use.outputs]
    for word in (found for text in command.argv[1:] for found in _WORD.findall(text)):
        folder, name = os.path.split(word)
        if not (folder and name) or word in read or not os.path.isdir(command.cwd / folder):
            continue
        real = os.path.realpath(command.cwd / word)
        # Names there are of what a process has open, and nothing comes to be.
        is_device = os.path.abspath(command.cwd / word).startswith(("/dev/", "/proc/"))
        is_output = is_device or any(f"{real}/".startswith(f"{path}/") for path in written)
        if not is_output and not os.path.lexists(real):
            yield word


def _lost(tool: str, name: str, why: str) -> LostOutputError:
    return LostOutputError(
        f"{tool} writes {name}, {why}", f"name it: --output {name}, and each other file that the command writes"
    )
