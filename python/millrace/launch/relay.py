"""The relay of the ranks' output to the user: each byte of standard output once, over all restarts."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: Open MPI frames its messages by lines of dashes; its daemons and libraries begin lines with their names.
FRAME = re.compile(rb"-{60,}\s*")
LAUNCHERS = re.compile(rb"\[[^\]\s]+:\d+\] |\[[^\]\s]+\]\[\[\d+,\d+\],\d+\]|Error in MPI_|\[proxy:|\[mpiexec@|(prterun|prted|mpirun|mpiexec|srun|slurmstepd|orterun|ORTE|PRTE)\b|Abort\(")  # fmt: skip

#: Most lines of a launcher that are kept.
MAX_KEPT_LINES = 40


class StdoutRelay:
    """The relay of standard output, which the coordinator writes to a file, in each start from the first byte on.

    The launcher's pipe cannot carry it: some launchers write messages of their own there when a node is lost.

    Args:
        path: The file.
        descriptor: Receives its bytes, each once.
        begins: Called before the first byte.
    """

    def __init__(self, path: Path, descriptor: int, begins: Callable[[], None] = lambda: None) -> None:
        self._path, self._to, self._begins = path, descriptor, begins
        #: Bytes passed on so far.
        self.passed = 0

    def relay_new_output(self) -> None:
        """Write the new bytes of the file to the descriptor.

        Raises:
            BrokenPipeError: The reader has closed the pipe.
        """
        with self._path.open("rb", buffering=0) as file:
            file.seek(self.passed)
            while content := memoryview(file.read(1 << 20)):
                if not self.passed:
                    self._begins()
                while content:
                    written = os.write(self._to, content)
                    self.passed += written
                    content = content[written:]


class LauncherOutputRelay:
    """The relay of the launcher's pipes to standard error.

    Messages of the launcher itself are kept apart, to be quoted when a start fails: they may tell the cause.

    Args:
        descriptor: Receives the lines.
        all_of_it: Whether lines of the launcher are relayed, too.
    """

    def __init__(self, descriptor: int, *, all_of_it: bool) -> None:
        self._to, self._all = descriptor, all_of_it
        self._rest = b""
        self._framed = False
        #: The last lines of the launcher in this start.
        self.kept: deque[str] = deque(maxlen=MAX_KEPT_LINES)

    def reset_for_start(self) -> None:
        """Forget the kept lines and the partial line of an earlier start."""
        self._rest, self._framed = b"", False
        self.kept.clear()

    def quote_kept_lines(self) -> str:
        """Return the kept lines, indented, to be put below a message."""
        return "".join(f"\n  {line}" for line in self.kept if line and not FRAME.fullmatch(line.encode()))

    def relay_content(self, content: bytes) -> None:
        """Relay the complete lines of the run itself; empty content marks the end of the pipe."""
        content = content.replace(b"\0", b"")  # which Open MPI sends for a lost process
        lines = (self._rest + content).splitlines(keepends=True)
        self._rest = b""
        if content and lines and not lines[-1].endswith((b"\n", b"\r")):
            self._rest = lines.pop()
        for line in lines:
            frame = FRAME.fullmatch(line) is not None
            if frame:
                self._framed = not self._framed
            if frame or self._framed or LAUNCHERS.match(line):
                self.kept.append(line.decode(errors="replace").rstrip())
                if not self._all:
                    continue
            with suppress(OSError):  # a closed stderr must not end a run that goes well
                os.write(self._to, line)
