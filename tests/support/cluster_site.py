"""A folder with a tool to run on several nodes, and what runs it there."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import marking_tool
import namespace_nodes
import process_lookup

#: The nodes of namespaces; the first is where the user types.
NAMES = ("head", "node1", "node2", "node3")

#: The last records of a run that is held.
N_HELD = 32

TOOL = """#!/bin/sh
# tool IN OUT: takes its time, and more for the records that are named in the file, while it is there
in=$1
[ "$1" != - ] || { in=$(mktemp); trap 'rm "$in"' EXIT; cat > "$in"; }
sleep "${SLEEP:-0.1}"
while grep -qsxFf "{hold}" "$in"; do : > "{hold}.reached"; sleep 0.05; done
sed 's/^>/>seen /' "$in" > "${2:-/dev/stdout}"
"""


@dataclass
class Site(marking_tool.Site):
    """Its words for ``millrace run``, and what such a run has written."""

    script = TOOL
    letters = 90

    n: int = 96

    def __post_init__(self) -> None:
        super().__post_init__()
        (self.folder / "tool").write_text(TOOL.replace("{hold}", str(self.hold)))

    @property
    def hold(self) -> Path:
        """While it is there, tools do not end for the records whose names it has."""
        return self.folder.with_name(f"{self.folder.name}.hold")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let a run that is started inside get `under_way` and not to its end, whatever is done to it, however long that takes."""
        self.hold.write_text("".join(f">record{k}\n" for k in range(self.n - N_HELD, self.n)))
        try:
            yield
        finally:
            self.hold.unlink(missing_ok=True)
            self.reached.unlink(missing_ok=True)

    @property
    def under_way(self) -> bool:
        """Whether a run that is held has come to what is held: most is done, and is in journals."""
        return self.reached.exists()

    @property
    def reached(self) -> Path:
        return self.hold.with_name(f"{self.hold.name}.reached")

    @property
    def written(self) -> int:
        """Bytes of output so far."""
        return self.output.stat().st_size if self.output.exists() else 0

    def options(self, *more: str) -> list[str]:
        """Of ``run``, and the command."""
        return ["--slots", "2", "--batch", "2", "--progress", "none", *more, "--input", "in.fa", "--output", "out.fa",
                "--", "./tool", "in.fa", "out.fa"]  # fmt: skip

    def left_over(self) -> list[str]:
        """Files that a run which is done leaves behind."""
        return sorted(path.name for path in self.folder.glob("out.fa.*"))


def installation(mpi: str) -> str:
    """The command of an installation with the wheel of an MPI, which the tests of MPI share; skips where it cannot be had."""
    from mpi_jobs import environment  # which needs pytest

    return str(environment(mpi) / "bin" / "millrace")


def find_millrace() -> str:
    """The command of an installation that has MPI: this one, or that of ``installation``."""
    own = Path(sys.executable).parent / "millrace"
    if importlib.util.find_spec("mpi4py") and shutil.which(
        "mpirun", path=f"{own.parent}{os.pathsep}{os.environ['PATH']}"
    ):
        return str(own)
    return installation("openmpi")


def get_marks(site: Site) -> Path:
    """Return the folder of the marks of tools: beside the working folder, in which what a tool writes is its own."""
    marks = site.folder.with_name(f"{site.folder.name}-marks")
    marks.mkdir(exist_ok=True)
    marks.chmod(0o777)
    return marks


@dataclass
class Cluster:
    """Runs ``millrace`` at the head on the other nodes."""

    nodes: namespace_nodes.Nodes
    millrace: str
    site: Site

    def start(self, *options: str, sleep: str = "0.1") -> subprocess.Popen[bytes]:
        """Start it; a task takes ``sleep`` seconds."""
        words = " ".join([self.millrace, "run", "--hosts", ",".join(NAMES[1:]), *self.site.options(*options)])
        return self.start_command(words, sleep)

    def start_command(self, words: str, sleep: str = "0.1") -> subprocess.Popen[bytes]:
        """Start a command at the head, in the site's folder."""
        command = f"cd {self.site.folder}; exec env MILLRACE_RSH={self.nodes.rsh} SLEEP={sleep} {words}"
        with (self.site.folder / "said").open("wb") as said:
            return subprocess.Popen(self.nodes.command("head", command), stdin=subprocess.DEVNULL, stderr=said)

    @property
    def said(self) -> str:
        return (self.site.folder / "said").read_text(errors="replace")

    def find(self, name: str, words: str) -> list[int]:
        """Processes of a node with ``words`` in their arguments; see `process_lookup.with_words`."""
        return process_lookup.with_words(self.nodes.pids(name), words)

    def find_one(self, name: str, words: str) -> int:
        """The one process of a node with ``words`` in its arguments."""
        return process_lookup.only(self.find(name, words))

    def left_over(self) -> list[str]:
        """Processes other than those that make the nodes."""
        return [f"{name}: {process_lookup.arguments(pid)}" for name in NAMES for pid in self.nodes.inhabitants(name)]
