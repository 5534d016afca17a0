"""Searches a database in fragments, task after task, as the engine does, so that a test can compare bytes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tool_batches import cut, need

from millrace import _core
from millrace.adapters import database_backend
from millrace.adapters.adapter_base import FragmentingAdapter
from millrace.adapters.registry import find_adapter
from millrace.core.tool_use import ArgumentToken, DatabaseArg, InputArg, OutputArg, ToolUse, UserCommand


def command_of(arguments: Sequence[str], cwd: Path, environ: Mapping[str, str] | None = None) -> UserCommand:
    """A command as the user types it in ``cwd``."""
    environ = dict(os.environ if environ is None else environ)
    return UserCommand(argv=tuple(arguments), cwd=cwd, environ=environ, exe=need(arguments[0]))


def why_not(command: UserCommand) -> str:
    """Why the adapter does not have the command's database searched in fragments; empty: it does."""
    adapter = find_adapter(command.argv[0])
    assert isinstance(adapter, FragmentingAdapter)
    found = adapter.examine_database(adapter.understand_command(command), command)
    return (found.count() if found.count else found).why_not


def understand(command: UserCommand, sizes: Sequence[int]) -> ToolUse:
    """What the adapter says of a command with its database in fragments of these sizes, to each other."""
    assert why_not(command) == ""
    adapter = find_adapter(command.argv[0])
    assert isinstance(adapter, FragmentingAdapter)
    return adapter.plan_fragments(adapter.understand_command(command), command, sizes)


def unequal(n: int) -> list[int]:
    """Sizes of ``n`` fragments as a plan may have them: equal ones, and some that are twice as large."""
    return [1 + (n > 3 and k < n // 2) for k in range(n)]


def serial(command: UserCommand) -> bytes:
    """What the command writes to standard output by itself."""
    return _call(command.argv, command)


def in_fragments(
    command: UserCommand, n: int, size: int, folder: Path, found: dict[object, list[bytes]] | None = None
) -> bytes:
    """The joined standard output when ``size`` records make a batch and the database is in ``n`` fragments.

    ``found`` keeps what fragments found, for commands that differ only in what is made of it.
    """
    use = understand(command, unequal(n))
    fragmented = use.fragmented
    assert fragmented is not None
    kind = database_backend.find_backend(fragmented)
    (folder / "fragments").mkdir(parents=True)
    databases = kind.prepare_fragments(fragmented, folder / "fragments", command.cwd, command.environ)
    records = cut((command.cwd / use.inputs[0].path).read_bytes(), use.inputs[0].format)
    blocks = []
    found = {} if found is None else found
    for first in range(0, len(records), size):
        place = folder / f"batch{first}"
        (place / "database").mkdir(parents=True)
        part = records[first : first + size]
        batch = b"".join(part)
        query = place / Path(use.inputs[0].path).name
        query.write_bytes(batch)
        key = (batch, tuple((fragment.argv, fragment.first, fragment.last) for fragment in fragmented.fragments))
        if key not in found:
            found[key] = []
            for number, (fragment, database) in enumerate(zip(fragmented.fragments, databases, strict=True)):
                out = place / f"found{number}"
                _call(_filled(fragment.argv, query, database, out), command)
                found[key].append(out.read_bytes())
        name = kind.make_candidates(fragmented, place / "database", command.cwd, command.environ, found[key], len(part))
        path = str(place / "database" / name)
        stdout = _call(_filled(fragmented.finish, query, path, place / "out"), command)
        blocks.append((len(part), stdout.replace(path.encode(), fragmented.database.encode())))
    assert not kind.list_patches(fragmented, folder), "patches are the engine's"
    return _core.join(use.outputs[0].join, blocks)


def _filled(argv: Sequence[ArgumentToken], query: Path, database: str, out: Path) -> list[str]:
    arguments = []
    for token in argv:
        match token:
            case InputArg():
                arguments.append(token.prefix + str(query))
            case OutputArg():
                arguments.append(token.prefix + str(out))
            case DatabaseArg():
                arguments.append(token.prefix + database)
            case _:
                arguments.append(token)
    return arguments


def _call(arguments: Sequence[str], command: UserCommand) -> bytes:
    done = subprocess.run(arguments, cwd=command.cwd, env=command.environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout
