"""Files that a tool writes but no output collects: results that would be lost."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from millrace.core.errors import LostOutputError
from millrace.core.tasks import TaskEnded
from millrace.core.tool_use import ToolUse, UserCommand
from millrace.planning.program_lookup import is_unknown_tool

#: Words of a script that may be paths.
_WORD = re.compile(r"[^\s'\"`()<>|;&{}\[\],=]+")


class UndeclaredOutputs:
    """Checks for undeclared outputs when tasks end.

    Args:
        tool: Name of the tool.
    """

    def __init__(self, command: UserCommand, use: ToolUse, tool: str) -> None:
        self._command, self._use, self._tool = command, use, tool
        self._is_unknown = is_unknown_tool(use)
        #: Paths that the command names, in existing folders, at which there is no file yet.
        self._to_come = [*dict.fromkeys(_find_missing_paths(command, use))] if self._is_unknown else []
        #: A file of the working directory that was not kept; whether any output has bytes.
        self._left, self._has_output = "", False

    def check_task(self, ended: TaskEnded) -> None:
        """Check the files that a task left.

        Raises:
            LostOutputError: The command names a file that it wrote.
        """
        if lost := find_named_file(self._command.argv, ended.extra) or next(
            filter(self._has_appeared, self._to_come), ""
        ):
            raise _build_lost_output_error(self._tool, lost, "which is no output of this run: it would be lost")
        self._left = next(iter(ended.extra), self._left)
        self._has_output |= bool(ended.committed and any(block.length for block in ended.committed.blocks))

    def check_all_tasks(self) -> None:
        """Check the files of all tasks, at the end of the run.

        Raises:
            LostOutputError: The tasks wrote only files that were not kept.
        """
        if self._left and not self._has_output and self._is_unknown:
            raise _build_lost_output_error(
                self._tool, self._left, "and nothing to the outputs of this run: it would be lost"
            )

    def include_backup(self, paths: Sequence[str]) -> bool:
        """Tell whether a path is a backup, such as ``o~``, which a tool makes only where its output already exists."""
        names = tuple(os.path.basename(output.path) for output in self._use.outputs if not output.stdout)
        return any(os.path.basename(path).startswith(names) for path in paths)

    def _has_appeared(self, path: str) -> bool:
        return os.path.lexists(self._command.cwd / path)


def find_named_file(argv: Sequence[str], written: Sequence[str]) -> str:
    """Return the first of the ``written`` files that the command names; else empty.

    >>> find_named_file(["minimap2", "-o", "a.sam", "ref", "q.fa"], ["q.fa.tmp", "a.sam"])
    'a.sam'
    >>> find_named_file(["awk", "{print > \\"even.txt\\"}"], ["even.txt"])
    'even.txt'
    >>> find_named_file(["tool", "in.fa"], ["a", "fa", "in"])
    ''
    """
    for name in written:
        alone = re.compile(rf"(?<![\w./-])(?:\./)?{re.escape(name)}(?![\w/-]|\.\w)")
        if any(alone.search(word) for word in argv[1:]):
            return name
    return ""


def _find_missing_paths(command: UserCommand, use: ToolUse) -> Iterator[str]:
    read = {each.partition(":")[0] for each in command.inputs} | {*command.shared} | command.growing
    written = [os.path.realpath(command.cwd / output.path) for output in use.outputs]
    for word in (found for text in command.argv[1:] for found in _WORD.findall(text)):
        folder, name = os.path.split(word)
        if not (folder and name) or word in read or not os.path.isdir(command.cwd / folder):
            continue
        real = os.path.realpath(command.cwd / word)
        # Names there are devices or open files of a process; no file is created there.
        is_device = os.path.abspath(command.cwd / word).startswith(("/dev/", "/proc/"))
        is_output = is_device or any(f"{real}/".startswith(f"{path}/") for path in written)
        if not is_output and not os.path.lexists(real):
            yield word


def _build_lost_output_error(tool: str, name: str, why: str) -> LostOutputError:
    return LostOutputError(
        f"{tool} writes {name}, {why}", f"name it: --output {name}, and each other file that the command writes"
    )
