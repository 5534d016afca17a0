"""A folder with tools, input and the installed command, in which a shell line is run and watched."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness import dead_work, wait_until

#: Before a command, lets it do no more than an ordinary user: root may read and write everything.
PLAIN = "setpriv --bounding-set=-dac_override,-dac_read_search" if os.geteuid() == 0 else ""

#: Ten-line tools: what a program may do wrong, in as few words as possible.
TOOLS = {
    "copy": 'exec cat "$@"',
    "bad2": 'text=$(cat); case $text in *r2*) echo "cannot do r2" >&2; exit 7;; esac; printf "%s\\n" "$text"',
    "segv2": 'text=$(cat); case $text in *r2*) kill -SEGV $$;; esac; printf "%s\\n" "$text"',
    "segv": "kill -SEGV $$",
    "hang2": 'text=$(cat); case $text in *r2*) sleep 600;; esac; printf "%s\\n" "$text"',
    "slow": "cat; sleep 600",
    "nodb": 'echo x >> "$COUNT"; echo "Error: database nr not found" >&2; exit 2',
    "nothing": "cat > /dev/null",
    "noise": 'printf "\\377\\376 warn\\0ing\\033[31m\\n" >&2; exec cat',
    "noisyfail": 'printf "\\377\\376 bad\\0 news\\n" >&2; exit 9',
    "tee2": 'cat "$1" > "$2"',
    "args": 'cat > /dev/null; printf "%s\\n" "$@"',
    "count": "echo $#; cat > /dev/null",
}

RECORDS = ">r1\nMKV\n>r2\nMAA\n>r3\nMLL\n"


@dataclass(frozen=True)
class Ended:
    """How a shell line ended."""

    code: int
    out: str
    err: str

    @property
    def shown(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


@dataclass(frozen=True)
class Shell:
    """A new folder: ``work/`` (the working directory, with ``in.fa``) and ``bin/`` (tools and millrace)."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    def prepare(self) -> None:
        for name in ("work", "bin"):
            (self.root / name).mkdir()
        for name, body in TOOLS.items():
            self.tool(name, body)
        self.tool("millrace", f'exec {shlex.quote(sys.executable)} -m millrace "$@"')
        (self.work / "in.fa").write_text(RECORDS)

    def tool(self, name: str, body: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(self, line: str, seconds: float = 300) -> Ended:
        """Run ``line`` in bash with standard input from /dev/null; a pipe fails if any part of it does."""
        environ = {
            **os.environ,
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "COUNT": str(self.root / "count"),
            "MILLRACE_RUN_PROGRESS": "none",
            "MARK": str(self.root),
        }
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=self.work, env=environ, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=seconds, check=False,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def processes(self) -> list[str]:
        """Processes of this folder's runs that live on."""
        mark = f"MARK={self.root}".encode()
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return found

    def run_dirs(self) -> list[str]:
        return sorted(path.name for path in self.work.glob("*.millrace"))

    def wait_for_none_left(self, known: frozenset[Path]) -> None:
        """Nothing may live on or lie about but ``known`` work directories: waits for that, then tells what does.

        The wait is long because another run on a busy machine, such as a test that kills watchdogs, may leave a work
        directory that only the next run sweeps away.
        """
        if not wait_until(lambda: not self.processes() and not dead_work() - known):
            raise AssertionError(f"left over: {self.processes()}, {dead_work() - known}")
