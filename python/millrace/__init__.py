"""Millrace: any serial tool on every core you have, with the same bytes."""

# Nothing is imported here, not even `typing`: a Ctrl-C meanwhile would show a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from millrace._core import __version__
    from millrace.api.mapping import map
    from millrace.api.running import Run, RunError, run
    from millrace.api.serving import records, write
    from millrace.core.errors import RefusedError

__all__ = ["RefusedError", "Run", "RunError", "__version__", "map", "records", "run", "write"]

#: Where each name is.
_NAMES = {
    "RefusedError": "millrace.core.errors",
    "Run": "millrace.api.running",
    "RunError": "millrace.api.running",
    "__version__": "millrace._core",
    "map": "millrace.api.mapping",
    "records": "millrace.api.serving",
    "run": "millrace.api.running",
    "write": "millrace.api.serving",
}


def __getattr__(name: str) -> object:
    # Loaded when it is asked for: `millrace.__main__` sees to Ctrl-C first, and few programs need all.
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_NAMES[name]), name)
    return value
