"""Searches a database in fragments, task after task, as the engine does, so that a test can compare bytes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tool_batches import cut, need

from millrace import _core
from millrace.model import Command, DatabaseArg, InputArg, OutputArg, Token, ToolUse
from millrace.node import fragments
from millrace.tools.base import Fragmenting
from millrace.tools.registry import find


def understand(arguments: Sequence[str], cwd: Path, n: int, environ: Mapping[str, str] | None = None) -> ToolUse:
    """What the adapter says of a command with its database in ``n`` fragments."""
    environ = dict(os.environ if environ is None else environ)
    command = Command(argv=tuple(arguments), cwd=cwd, environ=environ, exe=need(arguments[0]))
    adapter = find(arguments[0])
    assert isinstance(adapter, Fragmenting)
    use = adapter.understand(command)
    assert adapter.fragmentable(use, command).why_not == ""
    return adapter.fragment(use, command, n)


def in_fragments(use: ToolUse, size: int, cwd: Path, folder: Path) -> dict[str, bytes]:
    """The joined bytes of every output when ``size`` records make a batch."""
    assert use.fragmented is not None
    kind = fragments.find(use.fragmented.kind)
    prepared = folder / "fragments"
    prepared.mkdir(parents=True)
    databases = kind.prepare(use.fragmented, prepared, cwd, os.environ)
    records = cut((cwd / use.inputs[0].path).read_bytes(), use.inputs[0].format)
    blocks: dict[str, list[tuple[int, bytes]]] = {output.name: [] for output in use.outputs}
    for first in range(0, len(records), size):
        batch = records[first : first + size]
        place = folder / f"batch{first}"
        (place / "candidates").mkdir(parents=True)
        query = place / Path(use.inputs[0].path).name
        query.write_bytes(b"".join(batch))
        found = []
        for number, (fragment, database) in enumerate(zip(use.fragmented.fragments, databases, strict=True)):
            out = place / f"found{number}"
            _run(fragment.argv, query, database, [str(out)], cwd)
            found.append(out.read_bytes())
        name = kind.candidates(use.fragmented, place / "candidates", cwd, os.environ, found)
        path = str(place / "candidates" / name)
        outs = [str(place / output.name) for output in use.outputs]
        stdout = _run(use.fragmented.finish, query, path, outs, cwd)
        for output, out_path in zip(use.outputs, outs, strict=True):
            data = stdout if output.stdout else Path(out_path).read_bytes()
            data = data.replace(path.encode(), use.fragmented.database.encode())
            blocks[output.name].append((len(batch), data))
    assert not kind.patch(use.fragmented, folder), "patches are the engine's"
    return {output.name: _core.join(output.join, blocks[output.name]) for output in use.outputs}


def _run(argv: Sequence[Token], query: Path, database: str, outs: Sequence[str], cwd: Path) -> bytes:
    arguments = []
    for token in argv:
        match token:
            case InputArg():
                arguments.append(token.prefix + str(query))
            case OutputArg():
                arguments.append(token.prefix + outs[token.index])
            case DatabaseArg():
                arguments.append(token.prefix + database)
            case _:
                arguments.append(token)
    done = subprocess.run(arguments, cwd=cwd, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout
