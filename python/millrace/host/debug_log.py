"""The debug log: each message and event, and each decision with its input.

The scheduler is pure and has no log. Its calls are logged at the engine's edge, by proxies. While the log is off,
nothing here has an effect, and ``logging`` is not imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, TypeVar, cast

from millrace.core.errors import RefusedError
from millrace.core.text_format import escape_controls

#: The environment variable that names the log file.
VARIABLE = "MILLRACE_LOG"

#: Whether the log is on.
on = False

#: Most letters of a text and most items of a list in the log, and the deepest nesting.
MAX_LETTERS, MAX_ITEMS, MAX_DEPTH = 120, 8, 3

_log: Callable[[str, str], None]

T = TypeVar("T")


def start_debug_log(path: str, rank: int | None) -> None:
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
            return escape_controls(super().format(record))  # log files are read on terminals

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


def log_note(part: str, text: str) -> None:
    """Log a line of text."""
    if on:
        _log(part, text)


def log_message(way: str, rank: int, value: object) -> None:
    """Log a message that goes ``to`` a rank or comes ``from`` it, as ``way`` says."""
    if on:
        _log("mpi", f"{way} rank {rank}: {format_brief(value)}")


def tee_to_log(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that calls ``say`` and also logs its text; while the log is off, ``say`` itself."""
    if not on:
        return say

    def log_and_say(text: str) -> None:
        log_note("said", text)
        say(text)

    return log_and_say


def log_calls(target: T, part: str, methods: Iterable[str]) -> T:
    """Return a proxy of ``target`` that logs the calls of some of its methods; while the log is off, ``target`` itself."""
    return cast(T, _LoggingProxy(target, part, methods)) if on else target


class _LoggingProxy:
    """A proxy of an object that logs the calls of some of its methods, with their results."""

    def __init__(self, target: Any, part: str, methods: Iterable[str]) -> None:
        self.__dict__.update(
            _target=target, _part=part, **{name: self._wrap_method(getattr(target, name), part) for name in methods}
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)

    @staticmethod
    def _wrap_method(method: Callable[..., Any], part: str) -> Callable[..., Any]:
        def call_and_log(*arguments: Any, **named: Any) -> Any:
            found = method(*arguments, **named)
            if method.__name__ == "wait_for_events":
                for each in found:
                    _log(part, format_brief(each))
            elif method.__name__ == "handle":
                if found or type(arguments[0]).__name__ != "TickEnded":  # the tick comes many times a second
                    _log(
                        part,
                        f"{format_brief(arguments[0])}"
                        + (f" -> {format_brief(found, MAX_DEPTH + 1)}" if found else ""),
                    )
            else:
                words = [
                    *map(format_brief, arguments),
                    *(f"{name}={format_brief(value)}" for name, value in named.items()),
                ]
                _log(part, f"{method.__name__}({', '.join(words)})" + (f" -> {format_brief(found)}" if found else ""))
            return found

        return call_and_log


def format_brief(value: Any, depth: int = MAX_DEPTH) -> str:
    """Format ``value`` as one line, without bytes of records and without environments; cut long texts and lists.

    >>> format_brief([b"MKV", "x", {"SECRET": "1"}, *range(9)])
    "[<3 bytes>, 'x', <1 entry>, 0, 1, 2, 3, 4, ... 12 in all]"
    """
    match value:
        case Enum():
            return value.name
        case None | bool() | int() | float():
            return f"{value:.6g}" if isinstance(value, float) else repr(value)
        case str():
            return repr(value if len(value) <= MAX_LETTERS else f"{value[:MAX_LETTERS]}...")
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
        words = (f"{name}={format_brief(getattr(value, name), depth - 1)}" for name in names)
        return f"{type(value).__name__}({', '.join(words)})"
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [format_brief(item, depth - 1) if depth else "..." for item in list(value)[:MAX_ITEMS]]
        more = f", ... {len(value)} in all" if len(value) > MAX_ITEMS else ""
        return f"[{', '.join(items)}{more}]"
    return f"<{type(value).__name__}>"
