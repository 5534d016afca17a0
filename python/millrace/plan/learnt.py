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
from millrace.model import Learnt
from millrace.own import replace_whole

#: Most entries (a tool with options and databases) that are kept, the latest ones.
MOST = 200

#: Most bytes that are read, more than all entries ever take.
MOST_BYTES = 1 << 20


class Memory(msgspec.Struct):
    """Content of the file, the latest entry last."""

    #: Learnt costs by the digest of tool, options and databases.
    tools: Annotated[dict[str, Learnt], msgspec.Meta(max_length=10 * MOST)] = {}


def recall(key: str, environ: Mapping[str, str]) -> Learnt | None:
    """Return the cost that was learnt under ``key``; None: there is none, or the file cannot be read."""
    path = _path(environ)
    return _read(path).tools.get(key) if path else None


def remember(key: str, learnt: Learnt, environ: Mapping[str, str]) -> None:
    """Keep ``learnt`` under ``key``; if the folder cannot be written, the next run measures again."""
    path = _path(environ)
    if not path:
        return
    tools = _read(path).tools
    tools.pop(key, None)
    tools[key] = learnt
    latest = dict(list(tools.items())[-MOST:])
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_whole(path, msgspec.json.encode(Memory(tools=latest)), 0o600)


def _read(path: Path) -> Memory:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MOST_BYTES), type=Memory)
    except (OSError, msgspec.MsgspecError):
        return Memory()


def _path(environ: Mapping[str, str]) -> Path | None:
    home = state.folder(environ)
    return home / "learnt.json" if home else None
