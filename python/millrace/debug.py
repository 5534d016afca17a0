"""The debug log: each message and event, and each decision with its input.

The scheduler is pure and has no log. Its calls are logged at the engine's edge, by proxies. While the log is off,
nothing here has an effect, and ``logging`` is not imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from millrace.errors import RefusedError
from millrace.terminal import escape

#: The environment variable that names the log file.
VARIABLE = "MILLRACE_LOG"

#: Whether the log is on.
on = False

#: Most letters of a text and most items of a list in the log, and the deepest nesting.
MOST_LETTERS, MOST_ITEMS, DEPTH = 120, 8, 3

_log: Callable[[str, str], None]


def begin(path: str, rank: int | None) -> None:
    """Turn the log on.

    Args:
        path: The log file, to whose name a rank adds its number; empty: standard error.
        rank: Rank of this process; None: it is the only one.

    Raises:
        RefusedError: The file cannot be written.
    """
    global on, _log
    import logging

    name = path if rank is None or not path else f"{path}.{rank}"
    try:
        handler = logging.FileHandler(name, delay=False) if name else logging.StreamHandler(sys.stderr)
    except OSError as error:
        raise RefusedError(f"{VARIABLE}: {name}: {error.strerror}", "name a file that can be written") from error
    who = f"{os.uname().nodename} {'-' if rank is None else f'rank {rank}'} pid {os.getpid()}"

    class Line(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return escape(super().format(record))  # log files are read on terminals

    line = Line(f"%(asctime)s.%(msecs)03d {who.replace('%', '%%')} %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")
    handler.setFormatter(line)
    root = logging.getLogger("millrace")
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    root.propagate = False
    loggers = {part: root.getChild(part) for part in ("plan", "decision", "slots", "event", "mpi", "launch", "said")}

    def log(part: str, text: str) -> None:
        loggers[part].debug("%s", text)

    on, _log = True, log


def note(part: str, text: str) -> None:
    """Log a line of text."""
    if on:
        _log(part, text)


def message(way: str, rank: int, value: object) -> None:
    """Log a message that goes ``to`` a rank or comes ``from`` it, as ``way`` says."""
    if on:
        _log("mpi", f"{way} rank {rank}: {brief(value)}")


def told(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that calls ``say`` and also logs its text; while the log is off, ``say`` itself."""
    if not on:
        return say

    def both(text: str) -> None:
        note("said", text)
        say(text)

    return both


def watch(engine: Any) -> None:
    """Log the calls of the engine to the scheduler, the slots and the event log."""
    if on:
        actions = engine.actions
        actions.scheduler = _Watched(actions.scheduler, "decision", ("handle",))
        engine.node = actions.node = _Watched(
            engine.node, "slots", ("submit", "withdraw", "kill_all", "no_more", "events")
        )
        engine.events = actions.events = _Watched(engine.events, "event", ("write",))


class _Watched:
    """A proxy of an object that logs the calls of some of its methods, with their results."""

    def __init__(self, target: Any, part: str, methods: Iterable[str]) -> None:
        self.__dict__.update(
            _target=target, _part=part, **{name: self._logged(getattr(target, name), part) for name in methods}
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)

    @staticmethod
    def _logged(method: Callable[..., Any], part: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            found = method(*arguments, **named)
            if method.__name__ == "events":
                for each in found:
                    _log(part, brief(each))
            elif method.__name__ == "handle":
                if found or type(arguments[0]).__name__ != "Turn":  # the tick comes many times a second
                    _log(part, f"{brief(arguments[0])}" + (f" -> {brief(found, DEPTH + 1)}" if found else ""))
            else:
                words = [*map(brief, arguments), *(f"{name}={brief(value)}" for name, value in named.items())]
                _log(part, f"{method.__name__}({', '.join(words)})" + (f" -> {brief(found)}" if found else ""))
            return found

        return call


def brief(value: Any, depth: int = DEPTH) -> str:
    """Format ``value`` as one line, without bytes of records and without environments; cut long texts and lists.

    >>> brief([b"MKV", "x", {"SECRET": "1"}, *range(9)])
    "[<3 bytes>, 'x', <1 entry>, 0, 1, 2, 3, 4, ... 12 in all]"
    """
    match value:
        case Enum():
            return value.name
        case None | bool() | int() | float():
            return f"{value:.6g}" if isinstance(value, float) else repr(value)
        case str():
            return repr(value if len(value) <= MOST_LETTERS else f"{value[:MOST_LETTERS]}...")
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case dict():
            return f"<{len(value)} {'entry' if len(value) == 1 else 'entries'}>"
    names = (
        getattr(value, "_fields", None)
        or getattr(value, "__struct_fields__", None)
        or getattr(value, "__match_args__", None)
    )
    if names:
        if not depth:
            return f"{type(value).__name__}(...)"
        words = (f"{name}={brief(getattr(value, name), depth - 1)}" for name in names)
        return f"{type(value).__name__}({', '.join(words)})"
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [brief(item, depth - 1) if depth else "..." for item in list(value)[:MOST_ITEMS]]
        more = f", ... {len(value)} in all" if len(value) > MOST_ITEMS else ""
        return f"[{', '.join(items)}{more}]"
    return f"<{type(value).__name__}>"
