"""Costs of tools that earlier runs measured: a small, optional file in the user's state folder.

It holds numbers and digests, no names. If several runs write at the same time, one may lose its measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from millrace import state
from millrace.model import CostSums
from millrace.own import replace_file

#: Most entries (a tool with options and databases) that are kept, the latest ones.
MAX_TOOLS = 200

#: Most bytes that are read, more than all entries ever take.
MAX_FILE_BYTES = 1 << 20


class CostMemory(msgspec.Struct):
    """Content of the file, the latest entry last."""

    #: Learnt costs by the digest of tool, options and databases.
    tools: Annotated[dict[str, CostSums], msgspec.Meta(max_length=10 * MAX_TOOLS)] = {}


def recall_learnt_cost(key: str, environ: Mapping[str, str]) -> CostSums | None:
    """Return the cost that was learnt under ``key``; None: there is none, or the file cannot be read."""
    path = _find_memory_path(environ)
    return _read_cost_memory(path).tools.get(key) if path else None


def remember_learnt_cost(key: str, learnt: CostSums, environ: Mapping[str, str]) -> None:
    """Keep ``learnt`` under ``key``; if the folder cannot be written, the next run measures again."""
    path = _find_memory_path(environ)
    if not path:
        return
    tools = _read_cost_memory(path).tools
    tools.pop(key, None)
    tools[key] = learnt
    latest = dict(list(tools.items())[-MAX_TOOLS:])
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, msgspec.json.encode(CostMemory(tools=latest)), 0o600)


def _read_cost_memory(path: Path) -> CostMemory:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_FILE_BYTES), type=CostMemory)
    except (OSError, msgspec.MsgspecError):
        return CostMemory()


def _find_memory_path(environ: Mapping[str, str]) -> Path | None:
    home = state.find_state_folder(environ)
    return home / "learnt.json" if home else None
