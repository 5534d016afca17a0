"""A folder with a small tool of our own, and Millrace in front of it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
import marking_tool

#: Copies its records and notes each execution; environment variables make it slow or worse. Execution ``HOLD``
#: and those after it wait until they may go on (``$GO`` is there, or `Site.release`): as many as there are slots.
TOOL = """#!/bin/sh
# tool IN OUT
echo "$$" >> "$LOG"
[ -z "$HOLD" ] || [ "$(grep -nx "$$" "$LOG" | tail -1 | cut -d: -f1)" -lt "$HOLD" ] || until [ -e "${GO:-$LOG.go}" ]; do sleep 0.1; done
[ -z "$SLEEP" ] || sleep "$SLEEP"
[ -z "$BAD" ] || ! grep -q "$BAD" "$1" || { echo "bad record" >&2; exit 1; }
sed 's/^>/>seen /' "$1" > "$2" || exit 9
[ -z "$RANDOMLY" ] || od -An -N8 -tx8 /dev/urandom >> "$2"
"""


#: The same with a header and a footer around its records.
FRAMED = TOOL.replace("sed", "{ echo '# framed'; sed", 1).replace(' > "$2"', """; echo '# end'; } > "$2\"""", 1)


@dataclass
class Site(marking_tool.Site):
    """Millrace's command in front of the tool, and the tool's log of executions."""

    script = TOOL
    letters = 50

    n: int = 40
    environ: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ("--slots", "2", "--batch", "4")

    @property
    def log(self) -> Path:
        """What the tool notes, outside its working directory: there, it would be a file that all tasks share."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def executions(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def release(self) -> None:
        """Let tools go on that wait."""
        self.log.with_name(f"{self.log.name}.go").touch()

    def wait_for_work(self, process: subprocess.Popen[Any], n_executions: int) -> None:
        """Wait until a run has begun so many executions."""
        begun = harness.wait_until(lambda: self.executions >= n_executions, process)
        assert begun, f"{self.executions} of {n_executions} executions; exit code {process.poll()}"

    def command(self, *more: str) -> list[str]:
        return [
            sys.executable, "-m", "millrace", "run", *self.options, *more,
            "--input", "in.fa", "--output", "out.fa", "--", "./tool", "in.fa", "out.fa",
        ]  # fmt: skip

    def start(self, *more: str, mark: str = "", wrap: tuple[str, ...] = (), **environ: str) -> subprocess.Popen[str]:
        """Start it, with the folder's name as its mark if it has no other."""
        return subprocess.Popen(
            [*wrap, *self.command(*more)], cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
            env={**os.environ, **self.environ, **environ, "LOG": str(self.log), harness.MARK: mark or str(self.folder)},
        )  # fmt: skip

    def run(self, *more: str, wrap: tuple[str, ...] = (), **environ: str) -> tuple[int, str]:
        """Exit code and what was said."""
        process = self.start(*more, wrap=wrap, **environ)
        _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
        return process.returncode, said
