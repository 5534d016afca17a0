"""What earlier runs learnt of the cost of tools: a small file in the user's state folder, and never needed.

It holds numbers and digests, no names. Of several runs that write at the same time, one may lose what it learnt.
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

#: Tools with their options and databases that are remembered, the latest ones.
MOST = 200

#: Larger than that many ever are: a file that is something else is not read.
MOST_BYTES = 1 << 20


class Memory(msgspec.Struct):
    """The file's content, the latest last."""

    #: Digest of tool, options and databases: what was learnt.
    tools: Annotated[dict[str, Learnt], msgspec.Meta(max_length=10 * MOST)] = {}


def recall(key: str, environ: Mapping[str, str]) -> Learnt | None:
    """What was learnt under ``key``; None if nothing was, or it cannot be read."""
    path = _path(environ)
    return _read(path).tools.get(key) if path else None


def remember(key: str, learnt: Learnt, environ: Mapping[str, str]) -> None:
    """Keep ``learnt``; a folder that cannot be written only means that the next run measures again."""
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
