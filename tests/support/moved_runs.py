"""Runs that are killed in one folder and go on in another. Used by tests and ``bench.moved``.

Each tool stands behind a wrapper that notes the batch of each execution, and from one execution on waits. A search for
candidates has another number of arguments than the user's command, and so is another execution of its batch.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import harness
from exact_cases import MODELS, make_hairpins

from millrace.node import work_dir

#: A plain wrapper of a tool. Only what tasks do is noted: they alone have the token of a run.
WRAPPER = """#!/bin/sh
if [ -n "${{{token}}}" ]; then
    echo "$(cksum < "$MOVED_INPUT") $#" >> "$MOVED_LOG"
    if [ -n "$MOVED_HOLD" ] && [ "$(wc -l < "$MOVED_LOG")" -ge "$MOVED_HOLD" ]; then
        until [ -e "$MOVED_LOG.go" ]; do sleep 0.05; done
    fi
fi
exec {tool} "$@"
"""


@dataclass(frozen=True)
class MovedTool:
    """One command, with the places of its files left open."""

    #: Words; ``IN``, ``DB`` and ``OUT0``, ``OUT1``... stand for paths.
    words: tuple[str, ...]
    #: File or prefix of the database, beside the input.
    database: str
    n_outputs: int = 1
    #: Records of a batch.
    batch: int = 2
    #: Whether the output shows paths in its frame: one batch more is computed twice.
    is_framed: bool = False
    #: Whether the path of the database may be another one.
    moves_database: bool = True


TOOLS = {
    "blastp-rows": MovedTool(
        ("blastp", "-query", "IN", "-db", "DB", "-evalue", "1e-3", "-outfmt", "6", "-out", "OUT0"), "db"
    ),
    "blastp-xml": MovedTool(
        ("blastp", "-query", "IN", "-db", "DB", "-outfmt", "5", "-out", "OUT0"), "db", moves_database=False
    ),
    "hmmscan": MovedTool(
        ("hmmscan", "--tblout", "OUT0", "-o", "OUT1", "DB", "IN"), "profiles.hmm", 2, 12, is_framed=True
    ),
    "minimap2": MovedTool(("minimap2", "-a", "-o", "OUT0", "DB", "IN"), "ref.fa", 1, 3, is_framed=True),
    "cmscan": MovedTool(("cmscan", "--tblout", "OUT0", "-o", "OUT1", "DB", "IN"), "m.cm", 2, 2, is_framed=True),
    "prodigal": MovedTool(("prodigal", "-q", "-p", "meta", "-i", "IN", "-f", "gff", "-o", "OUT0", "-a", "OUT1"), "ref.fa", 2, 4),
    "diamond": MovedTool(
        ("diamond", "blastp", "-q", "IN", "-d", "DB", "--outfmt", "101", "--out", "OUT0"), "db.dmnd", 1, 4,
        is_framed=True,
    ),
    "diamond-rows": MovedTool(
        ("diamond", "blastp", "-q", "IN", "-d", "DB", "--outfmt", "6", "--out", "OUT0"), "db.dmnd", 1, 4
    ),
}  # fmt: skip


def make_inputs(folder: Path, data: Path, names: Collection[str] = tuple(TOOLS)) -> None:
    """Make ``in.fa`` and the database of each named tool below ``folder/TOOL``, and the wrappers in ``folder/bin``."""
    (folder / "bin").mkdir(parents=True)
    for program in {TOOLS[name].words[0] for name in names}:
        path = folder / "bin" / program
        path.write_text(WRAPPER.format(tool=shutil.which(program), token=work_dir.TOKEN_NAME))
        path.chmod(0o755)
    for name in names:
        here, tool = folder / name, TOOLS[name]
        here.mkdir()
        if tool.words[0] == "cmscan":
            make_hairpins(here / "in.fa")
            shutil.copyfile(MODELS, here / "m.cm")
            subprocess.run(["cmpress", "m.cm"], cwd=here, check=True, capture_output=True)
            continue
        if tool.words[0] in ("minimap2", "prodigal"):
            harness.take(data / "contigs.fna", here / "ref.fa", 4)
            reads = (here / "ref.fa").read_text().split(">")[1:]
            sequences = ["".join(read.split("\n")[1:]) for read in reads]
            parts = [sequence[at : at + 400] for sequence in sequences for at in range(0, 4000, 400)]
            (here / "in.fa").write_text("".join(f">r{k}\n{part}\n" for k, part in enumerate(parts) if part))
            continue
        harness.take(data / "proteins_queries.faa", here / "in.fa", 120 if name == "hmmscan" else 24)
        if name == "hmmscan":
            for path in data.glob("profiles.hmm*"):
                shutil.copyfile(path, here / path.name)
            make = ["hmmpress", "-f", "profiles.hmm"]
        else:
            harness.take(data / "proteins_db.faa", here / "db.faa", 600)
            make = ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"]
            if tool.words[0] == "diamond":
                make = ["diamond", "makedb", "--in", "db.faa", "-d", "db.dmnd", "--quiet"]
        subprocess.run(make, cwd=here, check=True, capture_output=True)


@dataclass
class MovedRun:
    """One run, which is started in several folders.

    Args:
        tool: What is run.
        source: Folder of its input and database, from ``make_inputs``.
        root: A folder of its own.
        place: Option and value that say where its state is.
    """

    tool: MovedTool
    source: Path
    root: Path
    place: tuple[str, ...] = ()
    slots: int = 2
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """Batch and number of arguments of each execution, a line each; outside all folders that a task sees a view of."""
        return self.root.with_name(f"{self.root.name}.executions")

    @property
    def executions(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def computed_twice(self) -> int:
        """How many executions of a batch, with as many arguments, came after its first."""
        return sum(n - 1 for n in Counter(self.executions).values())

    def prepare_folder(self, name: str, typed: str, database: str, *, link: bool = True) -> Path:
        """Make a folder in which the input is ``typed`` and the database ``database``, as links or copies."""
        folder = self.root / name
        (folder / typed).parent.mkdir(parents=True, exist_ok=True)
        place = shutil.copyfile if not link else lambda source, path: Path(path).symlink_to(source)
        place(self.source / "in.fa", folder / typed)
        (folder / database).parent.mkdir(exist_ok=True)
        for path in self.source.glob(f"{self.tool.database}*"):
            here = folder / (database + path.name.removeprefix(self.tool.database))
            if not here.exists():
                here.symlink_to(path)
        return folder

    def fill_words(self, typed: str, database: str, outputs: tuple[str, ...]) -> list[str]:
        """Return the serial command with these paths."""
        paths = {"IN": typed, "DB": database, **{f"OUT{k}": path for k, path in enumerate(outputs)}}
        return [paths.get(word, word) for word in self.tool.words]

    def make_environ(self, typed: str, hold: int = 0) -> dict[str, str]:
        """Return the environment of a start; ``hold``: from which execution on tools wait, 0: none."""
        return {
            **os.environ, **self.environ, "PATH": f"{self.source.parent / 'bin'}:{os.environ['PATH']}", "MOVED_INPUT": typed,
            "MOVED_LOG": str(self.log), "MOVED_HOLD": str(hold or ""), harness.MARK: str(self.root),
        }  # fmt: skip

    def compute_serially(self, folder: Path, words: list[str], typed: str, outputs: tuple[str, ...]) -> list[bytes]:
        """Run the tool by itself there; return what it writes, without what differs between two serial runs."""
        environ = {**self.make_environ(typed), "MOVED_LOG": "/dev/null"}
        subprocess.run(words, cwd=folder, env=environ, check=True, capture_output=True)
        found = self.read_outputs(folder, words, outputs)
        for path in outputs:
            (folder / path).unlink()
        return found

    def read_outputs(self, folder: Path, words: list[str], outputs: tuple[str, ...]) -> list[bytes]:
        """Return the outputs without what differs between two serial runs."""
        case = harness.Case("", folder, (), tuple(words), outputs, harness.volatile_of(tuple(words), folder))
        return [case.mask((folder / path).read_bytes()) for path in outputs]

    def start(self, folder: Path, words: list[str], typed: str, hold: int = 0) -> subprocess.Popen[str]:
        """Start Millrace there."""
        command = [sys.executable, "-m", "millrace", "run", "--slots", str(self.slots), "--batch", str(self.tool.batch)]
        return subprocess.Popen(
            [*command, *self.place, "--", *words], cwd=folder, env=self.make_environ(typed, hold), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def kill_at(self, process: subprocess.Popen[str], n_executions: int, number: int = signal.SIGKILL) -> str:
        """Send a signal once so many executions have begun, unless the run is over before; return what it said."""
        harness.wait_until(lambda: len(self.executions) >= n_executions, process)
        process.send_signal(number)
        _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
        return said

    def run(self, folder: Path, words: list[str], typed: str) -> tuple[int, str]:
        """Run it there to its end; return exit code and words."""
        process = self.start(folder, words, typed)
        _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
        return process.returncode, said
