"""Runs a real tool serially and batch by batch, as the engine will, so that a test can compare bytes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from harness import LONGEST_SECONDS

from millrace import _core
from millrace.adapters.registry import find_adapter
from millrace.core.tool_use import DatabaseArg, InputArg, OutputArg, ScratchArg, ThreadsArg, ToolUse, UserCommand

#: Batch sizes that cut badly: one record, a few, a prime, all.
SIZES = (1, 2, 7, 1000)


def need(program: str) -> Path:
    """The program's path; skips where it is not installed."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return Path(path)


def understand(arguments: Sequence[str], cwd: Path, **more: object) -> ToolUse:
    """What the adapter of the program says of a command typed in ``cwd``."""
    command = UserCommand(
        argv=tuple(arguments),
        cwd=cwd,
        environ=dict(os.environ),
        exe=need(arguments[0]),
        **more,  # type: ignore[arg-type]
    )
    return find_adapter(arguments[0]).understand_command(command)


def cut(text: bytes, form: str) -> list[bytes]:
    """The records of an input; an independent, slow cutter."""
    if form in ("lines", "smiles"):
        return text.splitlines(keepends=True)
    if form == "sdf":
        return [part + b"$$$$\n" for part in text.split(b"$$$$\n")[:-1]]
    start = {"fasta": rb"^>", "cm": rb"^INFERNAL1/", "mol2": rb"^@<TRIPOS>MOLECULE"}[form]
    places = [match.start() for match in re.finditer(start, text, re.M)]
    return [text[a:b] for a, b in zip(places, [*places[1:], len(text)], strict=True)]


def arguments_of(
    use: ToolUse, names: dict[int, list[str]] | None = None, outs: dict[int, str] | None = None
) -> list[str]:
    """The tool's arguments with other names for inputs and outputs."""
    result: list[str] = []
    for token in use.argv:
        if isinstance(token, str):
            result.append(token)
        elif isinstance(token, InputArg):
            result += [token.prefix + name for name in (names or {}).get(token.index, [use.inputs[token.index].path])]
        elif isinstance(token, OutputArg):
            result.append(token.prefix + (outs or {}).get(token.index, use.outputs[token.index].path))
        elif isinstance(token, ThreadsArg):
            result.append("2")
        elif isinstance(token, ScratchArg):
            result.append("tmp")
        elif isinstance(token, DatabaseArg) and use.prepared:
            result.append(token.prefix + use.prepared.typed)
    return result


def call(arguments: Sequence[str], cwd: Path, use: ToolUse | None = None, stdin: bytes = b"") -> tuple[bytes, bytes]:
    """Run a tool to its end; its standard output and standard error."""
    environ = {**os.environ, **(use.env if use else {})}
    limits = [LONGEST_SECONDS]
    if Path(arguments[0]).name == "diamond":
        # With several threads, releases before 2.2.3 stand still now and then, also without us: its issue 732.
        limits = [LONGEST_SECONDS / 3, LONGEST_SECONDS]
    done = None
    while done is None:
        limit = limits.pop(0)
        with suppress(*[subprocess.TimeoutExpired] if limits else []):
            done = subprocess.run(
                arguments, cwd=cwd, env=environ, input=stdin, capture_output=True, check=False, timeout=limit
            )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout, done.stderr


def in_batches(use: ToolUse, text: bytes, size: int, folder: Path) -> dict[str, bytes]:
    """The joined bytes of every output when ``size`` records make a batch, each batch in a folder of its own."""
    source = use.inputs[0]
    records = cut(text, source.format)
    blocks: dict[str, list[tuple[int, bytes]]] = {output.name: [] for output in use.outputs}
    for first in range(0, len(records), size):
        batch = records[first : first + size]
        place = folder / f"batch-{size}-{first}"
        place.mkdir(parents=True)
        data = b"".join(batch)
        if not source.stdin:
            (place / Path(source.path).name).write_bytes(data)
        stdout, stderr = call(
            arguments_of(use, {0: [Path(source.path).name]}), place, use, data if source.stdin else b""
        )
        if use.records_said:
            said = re.findall(use.records_said.encode(), stderr, re.M)
            assert said and int(said[-1]) == len(batch), stderr.decode()
        for output in use.outputs:
            file = place / output.path
            if output.optional and not output.stdout and not file.exists():
                continue
            blocks[output.name].append((len(batch), stdout if output.stdout else file.read_bytes()))
    return {output.name: _core.join(output.join, blocks[output.name]) for output in use.outputs}


def still(output: bytes, volatile: Sequence[str]) -> bytes:
    """An output without what differs between two serial runs."""
    for pattern in volatile:
        output = re.sub(pattern.encode(), b"", output, flags=re.M)
    return output
