"""What the ranks say, on its way to the user: output goes through once, whatever is started again."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: Open MPI frames what it has to say by lines of dashes; its daemons and libraries name themselves.
FRAME = re.compile(rb"-{60,}\s*")
LAUNCHERS = re.compile(rb"\[[^\]\s]+:\d+\] |\[[^\]\s]+\]\[\[\d+,\d+\],\d+\]|Error in MPI_|\[proxy:|\[mpiexec@|(prterun|prted|mpirun|mpiexec|srun|slurmstepd|orterun|ORTE|PRTE)\b|Abort\(")  # fmt: skip

#: Lines of a launcher that are kept.
KEPT = 40


class Output:
    """Standard output, which the coordinator writes to a file, in each start from the first byte on.

    It cannot come by the launcher's pipe: some write words of their own there when a node is lost.

    Args:
        path: The file.
        descriptor: Where its bytes go, each once.
        begins: Called before the first of them.
    """

    def __init__(self, path: Path, descriptor: int, begins: Callable[[], None] = lambda: None) -> None:
        self._path, self._to, self._begins = path, descriptor, begins
        #: Bytes passed on so far.
        self.passed = 0

    def pump(self) -> None:
        """Pass on what is new.

        Raises:
            BrokenPipeError: Nobody reads any more.
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


class Words:
    """What comes by the launcher's pipes, which is for standard error: what a launcher says of the end of its ranks is kept, for the case that this says why."""

    def __init__(self, descriptor: int, *, all_of_it: bool) -> None:
        self._to, self._all = descriptor, all_of_it
        self._rest = b""
        self._framed = False
        #: The last that the launcher said in this start.
        self.kept: deque[str] = deque(maxlen=KEPT)

    def begin(self) -> None:
        """A new start begins a line, and has said nothing."""
        self._rest, self._framed = b"", False
        self.kept.clear()

    def quoted(self) -> str:
        """What was kept, as lines to put below a message."""
        return "".join(f"\n  {line}" for line in self.kept if line and not FRAME.fullmatch(line.encode()))

    def take(self, content: bytes) -> None:
        """Pass on the whole lines that are the run's own; no content is the end."""
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
            with suppress(OSError):  # words that nobody can read must not end a run that goes well
                os.write(self._to, line)
