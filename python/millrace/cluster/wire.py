"""Messages as bytes, and back.

Unpickling runs what the bytes name. So they may name nothing but what messages are made of: values, which do nothing when they
are made. Whoever gets at the network of a job can say wrong things, but run nothing.
"""

from __future__ import annotations

import pickle
import sys
from enum import Enum
from functools import cache
from pathlib import PosixPath
from typing import Any

from millrace import _core
from millrace.errors import CorruptError, ExitCode
from millrace.model import Frozen

#: Modules whose values travel.
MODULES = frozenset(
    {"millrace.cluster.messages", "millrace.cluster.keeper", "millrace.model", "millrace.node.batch", "millrace.output.parts", "millrace.plan.staging", "millrace.plan.world", "millrace.tasks"}
)  # fmt: skip

#: What else they contain.
OTHERS = (PosixPath, ExitCode, _core.BlockRef, _core.TaskRef)


def dumps(message: object) -> bytes:
    """A message as bytes."""
    return pickle.dumps(message, protocol=5)


def loads(content: bytes | bytearray) -> Any:
    """The message that `dumps` made bytes of.

    Raises:
        CorruptError: They name what no message contains.
    """
    return _Unpickler(_Reader(content)).load()


@cache
def _known() -> dict[tuple[str, str], Any]:
    """By module and name; values of `MODULES` are added as they come."""
    return {(each.__module__, each.__qualname__): each for each in OTHERS}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _known()
        found = known.get((module, name))
        if found is None:
            found = known[module, name] = _value(module, name)
        return found


def _value(module: str, name: str) -> type:
    """A class of values: made where it is looked for, without behaviour when it is made."""
    found = vars(sys.modules[module]).get(name) if module in MODULES and module in sys.modules else None
    if not isinstance(found, type) or found.__module__ != module or not issubclass(found, tuple | Frozen | Enum):
        raise CorruptError(
            f"a message of the job names {module}.{name}, which no message contains",
            "did a process that is none of this job's send it? see the network in docs/security.md",
        )
    return found


class _Reader:
    """Bytes as a file, without a copy of them, which for a large batch would cost more than all the rest."""

    __slots__ = ("_at", "_content")

    def __init__(self, content: bytes | bytearray) -> None:
        self._content, self._at = memoryview(content), 0

    def read(self, n: int) -> bytes:
        begun, self._at = self._at, self._at + n
        return bytes(self._content[begun : self._at])

    def readinto(self, buffer: memoryview) -> int:
        piece = self._content[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def readline(self) -> bytes:
        raise pickle.UnpicklingError("a message is not text")
