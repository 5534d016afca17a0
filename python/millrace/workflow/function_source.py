"""Search for a function of a job file in source text, without running any of it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from millrace.errors import RefusedError


def check_function_exists(text: str, cwd: Path) -> None:
    """Check that the function ``FILE.py:NAME`` or ``MODULE:NAME`` exists, without loading the module.

    Raises:
        RefusedError: It does not exist, or the source is no Python.
    """
    place, _, name = text.rpartition(":")
    path = cwd / place if place.endswith(".py") else _find_module_source(place)
    if path is None:
        return  # compiled: only loading it could tell
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _build_load_error(place, f"{type(error).__name__}: {error}") from error
    names = set(_list_bound_names(tree.body))
    if name not in names and "*" not in names:
        raise RefusedError(f"{place}: has no function {name}", "say FILE.py:FUNCTION")


def _find_module_source(module: str) -> Path | None:
    """Find the source file of a module; None: it has none.

    Raises:
        RefusedError: There is no such module.
    """
    first, *rest = module.split(".")
    spec = _find_top_level_module(first)
    for number, part in enumerate(rest, start=1):
        places = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(".".join([first, *rest[: number - 1], part]), places) if places else None
    if spec is None:
        raise _build_load_error(module, f"ModuleNotFoundError: No module named {module!r}")
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def _find_top_level_module(name: str) -> ModuleSpec | None:
    """Find a top-level module; this loads nothing."""
    if loaded := sys.modules.get(name):
        return loaded.__spec__
    return importlib.util.find_spec(name)


def _list_bound_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names that the statements of a module bind; ``*`` for a star import."""
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (each.asname or each.name.partition(".")[0] for each in names)
            case _:
                yield from (
                    node.id
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                )
                for inner in ("body", "orelse", "finalbody"):
                    yield from _list_bound_names(getattr(statement, inner, []))
                for handler in getattr(statement, "handlers", []):
                    yield from _list_bound_names(handler.body)


def _build_load_error(place: str, why: str) -> RefusedError:
    """Build the error for a module that cannot be loaded."""
    return RefusedError(f"{place}: cannot be loaded: {why}", "see that python can run it")
