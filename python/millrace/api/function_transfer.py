"""Pickling of functions for other processes, and digests that are the same in every process.

A function goes by name where another process can import it, else by value. The bytes of cloudpickle differ: they
contain file names, line numbers, sets in some order and random ids of classes. So digests are made of the parts of a
function.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, ClassVar

from millrace.core.errors import RefusedError

#: Attributes of a class that Python adds by itself.
_AUTOMATIC = {"__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__", "_abc_impl"}  # fmt: skip


def digest_value(value: object) -> bytes:
    """Return a digest (16 bytes) of functions, classes and values: of their code, not of its place in a file.

    Raises:
        PicklingError, AttributeError, TypeError: It contains an object that cannot be pickled.
    """
    stream = io.BytesIO()
    _IdentityPickler(stream, protocol=4).dump(value)
    return blake2b(stream.getvalue(), digest_size=16).digest()


class _NamedShape:
    """A stand-in for a function, class or module in the digest: only its name and parts count."""


class _IdentityPickler(pickle._Pickler):
    """A pickler for digests; its output is never loaded."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def reducer_override(self, value: Any) -> Any:
        """Reduce functions and classes to their names and parts; see ``pickle.Pickler.reducer_override``."""
        if isinstance(value, types.ModuleType):
            return _NamedShape, (value.__name__,)
        if isinstance(value, property):
            return _NamedShape, ("property",), [value.fget, value.fset, value.fdel]
        if isinstance(value, staticmethod | classmethod):
            return _NamedShape, (type(value).__name__,), [value.__func__]
        if isinstance(value, type | types.FunctionType) and not _is_importable(value):
            return (
                _NamedShape,
                (value.__qualname__,),
                _list_class_parts(value) if isinstance(value, type) else _list_function_parts(value),
            )
        return NotImplemented

    def save_set(self, value: frozenset[object]) -> None:
        """Write the elements in an order that does not depend on hashes."""
        self.save((type(value).__name__, sorted(map(digest_value, value))))  # type: ignore[attr-defined,unused-ignore]

    dispatch[set] = dispatch[frozenset] = save_set


def _is_importable(value: type | types.FunctionType) -> bool:
    """Tell whether another process can import a class or function; never for one of ``__main__``."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value and value.__module__ != "__main__"


def _list_class_parts(of: type) -> list[object]:
    """Return the bases and members of a class, without those that Python adds."""
    members = {name: each for name, each in vars(of).items() if name not in _AUTOMATIC}
    slots = {each for each in vars(of).get("__slots__", ()) if isinstance(each, str)}
    return [of.__bases__, {name: each for name, each in members.items() if name not in slots}]


def _list_function_parts(function: types.FunctionType) -> list[object]:
    """Return code, defaults, attributes, closure and used globals of a function."""
    code = function.__code__
    globals_ = {name: function.__globals__[name] for name in _list_global_names(code) if name in function.__globals__}
    return [_list_code_parts(code), function.__defaults__, function.__kwdefaults__, vars(function),
            [*_read_cells(function.__closure__ or ())], globals_]  # fmt: skip


def _read_cells(cells: tuple[types.CellType, ...]) -> Iterator[object]:
    """Yield the contents of closure cells; None for an empty one."""
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            yield None


def _list_global_names(code: types.CodeType) -> list[str]:
    """Return the names that code, and code nested in it, may look up as globals; sorted."""
    inner = [name for each in code.co_consts if isinstance(each, types.CodeType) for name in _list_global_names(each)]
    return sorted({*code.co_names, *inner})


def _list_code_parts(code: types.CodeType) -> list[object]:
    """Return bytecode, names, flags, argument counts and constants of a code object, without file and lines."""
    constants = [_list_code_parts(each) if isinstance(each, types.CodeType) else each for each in code.co_consts]
    names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    return [code.co_code, names, code.co_flags, code.co_argcount, code.co_kwonlyargcount, constants]


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
