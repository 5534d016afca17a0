"""Runs of one command: whole, with threads, in pieces, in another order, and through ``millrace run``."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import msgspec

from census.program_files import CensusCommand
from census.records import cut_sizes, describe_difference, join_blocks, split_records

#: Longest time of one run.
MAX_SECONDS = 900

#: Records of a batch of ``millrace run``.
BATCH_RECORDS = 7

Outputs = dict[str, bytes]


class FailedRunError(Exception):
    """A program has failed, or has taken too long."""


class CommandResult(msgspec.Struct):
    """What was seen of one command."""

    program: str
    command: str
    #: ``exact``, ``refused``, ``stopped`` or ``wrong``; ``fails`` if it cannot be run here.
    verdict: str = "fails"
    #: ``millrace run`` and its options before ``--``.
    options: str = ""
    #: Two equal runs.
    twice: str = ""
    #: Other numbers of threads beside one.
    threads: dict[str, str] = {}
    #: Pieces of so many records, and those of the input in reversed order.
    pieces: dict[str, str] = {}
    #: First words of Millrace, where it does not end with the serial bytes.
    words: str = ""
    digest: str = ""
    n_records: int = 0
    note: str = ""

    @property
    def is_sum_of_parts(self) -> bool:
        """Whether all pieces gave the bytes of the whole."""
        return all(seen == "same" for seen in (self.twice, *self.pieces.values()))

    def list_equal_pieces(self) -> list[str]:
        """List the sizes of pieces that gave the bytes of the whole."""
        return [size for size, seen in self.pieces.items() if seen == "same"]


class CommandMeasurement:
    """Measures one command in a folder that has its inputs and databases."""

    def __init__(self, command: CensusCommand, base: Path, environ: dict[str, str], formats: dict[str, str]) -> None:
        self.command, self.base, self.environ, self.formats = command, base, environ, formats
        self.folder = base.parent / "run"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.names = set[str]()
        self.is_folder = any(name.endswith("/") for name in command.inputs)
        self.inputs = [] if self.is_folder else [(name, *split_records(base / name)) for name in command.inputs]

    def measure(self, program: str) -> CommandResult:
        """Run it in all ways."""
        command = self.command
        result = CommandResult(program, command.run, note=command.note)
        try:
            whole = self._run_whole()
        except FailedRunError as error:
            result.words = str(error)
            return result
        if not any(whole.values()):
            result.words = "writes nothing, which shows nothing"
            return result
        result.digest = blake2b(repr(sorted(whole.items())).encode(), digest_size=8).hexdigest()
        result.twice = self._describe(whole, self._run_whole)
        if command.has_threads:
            result.threads = {str(n): self._describe(whole, lambda n=n: self._run_whole(n)) for n in (2, 4)}
        if not self.is_folder:
            result.n_records = len(self.inputs[0][2])
            result.pieces = self._measure_pieces(whole, result.n_records)
        self._run_millrace(whole, result)
        return result

    # Runs of the program itself

    def _run_whole(self, threads: int = 1) -> Outputs:
        if self.is_folder:
            return self._run_each_file()
        return self._run(self.command.format_line(threads), [records for _, _, records in self.inputs])

    def _run_each_file(self) -> Outputs:
        folder = next(name for name in self.command.inputs if name.endswith("/")).rstrip("/")
        outputs: Outputs = {}
        for path in sorted((self.base / folder).iterdir()):
            line = self.command.format_line().replace(folder, f"{folder}/{path.name}", 1).replace("{stem}", path.stem)
            seen = self._run(line, [])
            outputs[""] = outputs.get("", b"") + seen.pop("", b"")
            outputs |= seen
        return outputs

    def _prepare_folder(self) -> None:
        """Make the folder what it was: as a copy at first, then by removing what a run has left there."""
        if not self.folder.exists():
            # A link that is removed counts as a change of the file, which a run over files of a folder would notice.
            shutil.copytree(self.base, self.folder, copy_function=shutil.copy2 if self.is_folder else os.link)
            self.names = {path.name for path in self.folder.iterdir()}
        for path in self.folder.iterdir():
            if path.name not in self.names:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, _, _ in self.inputs:
            (self.folder / name).unlink(missing_ok=True)
            os.link(self.base / name, self.folder / name)
        (self.folder / "out").mkdir()

    def _run(self, line: str, parts: list[list[bytes]]) -> Outputs:
        self._prepare_folder()
        for (name, header, _), records in zip(self.inputs, parts, strict=True):
            (self.folder / name).unlink()
            (self.folder / name).write_bytes(header + b"".join(records))
        done = self._start(line)
        if done.returncode and done.returncode not in self.command.ok:
            raise FailedRunError(f"exit status {done.returncode}: {_find_last_line(done.stderr)}")
        return self._read_outputs(done.stdout)

    def _start(self, line: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                ["bash", "-c", line], cwd=self.folder, env=self.environ, capture_output=True, check=False,
                stdin=subprocess.DEVNULL, timeout=MAX_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise FailedRunError(f"takes more than {MAX_SECONDS} s") from None

    def _read_outputs(self, stdout: bytes) -> Outputs:
        files = (path for path in self.folder.glob("out*") if path.is_file())
        below = (path for path in self.folder.glob("out/**/*") if path.is_file())
        outputs = {"": stdout} | {str(path.relative_to(self.folder)): path.read_bytes() for path in (*files, *below)}
        if not self.command.ignore:
            return outputs
        pattern = re.compile(self.command.ignore.encode(), re.MULTILINE)
        return {name: pattern.sub(b"", text) for name, text in outputs.items()}

    # Pieces

    def _measure_pieces(self, whole: Outputs, n_records: int) -> dict[str, str]:
        bad = n_records // 2 + 1
        seen = {
            str(size): self._describe(whole, lambda size=size: self._run_pieces(cut_sizes(n_records, size)))
            for size in dict.fromkeys((1, min(7, bad), bad))
        }
        try:
            turned = self._run(self.command.format_line(), [records[::-1] for _, _, records in self.inputs])
        except FailedRunError as error:
            return seen | {"reversed": str(error)}
        sizes = cut_sizes(n_records, max(1, n_records // 3))
        return seen | {"reversed": self._describe(turned, lambda: self._run_pieces(sizes, step=-1))}

    def _run_pieces(self, sizes: list[int], step: int = 1) -> dict[str, bytes | None]:
        blocks: list[Outputs] = []
        at = 0
        for size in sizes:
            parts = [records[::step][at : at + size] for _, _, records in self.inputs]
            blocks.append(self._run(self.command.format_line(), parts))
            at += size
        names = dict.fromkeys(name for block in blocks for name in block)
        return {
            name: join_blocks([block[name] for block in blocks if name in block], self._find_join(name))
            for name in names
        }

    def _find_join(self, output: str) -> str:
        for said in self.command.join:
            name, _, how = said.rpartition("=") if "=" in said.partition(":")[0] else ("", "", said)
            if name == (output or "-") or not name:
                return how
        return "concat"

    def _describe(self, whole: Outputs, run: Callable[[], Outputs] | Callable[[], dict[str, bytes | None]]) -> str:
        try:
            other = run()
        except FailedRunError as error:
            return str(error)
        for name in sorted(whole.keys() | other.keys()):
            seen = describe_difference(whole.get(name, b""), other.get(name, b""))
            if seen != "same":
                return f"{name}: {seen}" if name else seen
        return "same"

    # Through Millrace

    def _list_options(self, whole: Outputs) -> list[str]:
        command = self.command
        options = shlex.split(command.options)
        if command.known:
            return options
        piped = re.search(r"<\s*(\S+)", command.run)
        form = command.format or self.formats.get(Path(command.inputs[0]).suffix[1:], "")
        if piped:
            options += [
                "--format",
                form
                or {"fa": "fasta", "fq": "fastq", "smi": "smiles"}.get(Path(command.inputs[0]).suffix[1:], "lines"),
            ]
        else:
            for name in command.inputs:
                options += ["--input", name.rstrip("/") + (f":{form}" if form else "")]
            if self.is_folder:
                named = [word for word in shlex.split(command.run) if "{stem}" in word]
                options += [word for each in named for word in ("--output", each)]
            else:
                options += [word for name in sorted(whole) if name for word in ("--output", name)]
        for how in command.join:
            options += ["--join", how]
        for status in command.ok:
            options += ["--ok-status", str(status)]
        return options

    def _run_millrace(self, whole: Outputs, result: CommandResult) -> None:
        """Run it with small batches and no check: rules alone must make it exact; then with the check, if they do not."""
        options = self._list_options(whole)
        result.options = shlex.join(options)
        sizes = [] if self.is_folder else ["--batch", str(max(1, min(BATCH_RECORDS, result.n_records // 4)))]
        for verify in (["--verify", "0"], []):
            self._prepare_folder()
            try:
                done = self._start(
                    f"millrace run --slots 2 --quiet {shlex.join([*verify, *sizes, *options])} -- {self.command.format_line()}"
                )
            except FailedRunError as error:
                result.verdict, result.words = "stopped", str(error)
                return
            seen = self._describe(whole, lambda done=done: self._read_outputs(done.stdout))
            if done.returncode == 0 and seen == "same":
                result.verdict = "exact" if verify else "stopped"
                return
            result.words = _find_first_line(done.stderr) if done.returncode else seen
            result.verdict = {0: "wrong", 2: "refused"}.get(done.returncode, "stopped")
            if result.verdict != "wrong":
                return


def _find_last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1][:160] if lines else "without a word"


def _find_first_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return next((line for line in lines if line.startswith("millrace:")), lines[0] if lines else "")[:240]
