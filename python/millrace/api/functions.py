"""Pickling of functions for other processes: by name where another process can import them, else by value."""

from __future__ import annotations

import os
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

from millrace.api.identity import digest_value
from millrace.errors import RefusedError


def is_main_a_file() -> bool:
    """Tell whether the main program is a file: not a notebook, ``python -c`` or standard input."""
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is not None or os.path.isfile(getattr(main, "__file__", None) or "")


def pickle_function(function: Callable[..., Any]) -> tuple[bytes, bytes]:
    """Return a function as bytes that another process can load, and bytes that identify it across processes.

    A function of the main program is sent by name only if that program is a file. A function of a notebook, of
    ``python -c`` or of standard input is sent by value, with the classes defined there. So is a function without a
    name, or defined inside another function.

    Raises:
        RefusedError: It holds an object that cannot leave this process, such as an open file.
    """
    try:
        by_name = pickle.dumps(function)
        if b"__main__" not in by_name or is_main_a_file():
            return by_name, by_name
    except (pickle.PicklingError, AttributeError, TypeError):
        pass
    import cloudpickle

    sent = _SentFunction(function, {} if is_main_a_file() else _collect_main_classes())
    try:
        content: bytes = cloudpickle.dumps(sent)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        raise RefusedError(
            f"millrace.map: the function cannot be sent to another process: {error}",
            "open files, connections and locks inside the function, not outside of it",
        ) from error
    try:
        return content, digest_value((sent.function, sent.classes))
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return content, content  # then a kept run is resumed only for the very same bytes


def pickle_result(value: object) -> bytes:
    """Pickle a result, by value if another process cannot import its class."""
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle

        found: bytes = cloudpickle.dumps(value)
        return found


class _SentFunction:
    """A function sent by value, with the classes of a main program that is no file."""

    def __init__(self, function: Callable[..., Any], classes: dict[str, type]) -> None:
        self.function, self.classes = function, classes

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_function, (self.function, self.classes)


def _restore_function(function: Callable[..., Any], classes: dict[str, type]) -> Callable[..., Any]:
    """Return a received function, after putting its classes into ``__main__``, where pickled records look for them."""
    if classes:
        main = types.ModuleType("__main__")
        vars(main).update(classes)
        sys.modules["__main__"] = main
    return function


def _collect_main_classes() -> dict[str, type]:
    """Return the classes that the main program defines, by name, without those that cannot be pickled."""
    import cloudpickle

    found = {}
    for name, value in vars(sys.modules["__main__"]).items():
        if isinstance(value, type) and value.__module__ == "__main__":
            try:
                cloudpickle.dumps(value)
            except Exception:
                continue  # a record of this class is refused
            found[name] = value
    return found
