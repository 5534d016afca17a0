"""Description of a job in phases, parsed from its file: commands, files, dependencies.

A function that it names is looked up in source text, without running any of it.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec, check_known_keys, make_job
from millrace.core.tool_use import FrozenValue


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


#: ``command``: a run of Millrace; ``filter``: a shell command from one file to another; ``python``: a function.
Kind: TypeAlias = Literal["command", "filter", "python"]

KINDS: tuple[Kind, ...] = ("command", "filter", "python")

#: Keys of a phase besides the options of a job.
OWN = ("after", "stdin", "stdout", "filter", "python", "options")

#: Options of a job that are allowed only in a phase.
NOT_FOR_ALL = frozenset(
    {"command", "input", "output", "join", "shared", "ok-status", "format", "record-start", "record-end"}
)

#: Options that are allowed only outside the phases.
OF_ALL = frozenset(
    {"run-dir", "fresh", "keep-run-dir", "progress", "metrics", "notify", "verbosity", "slots", "hosts", "store"}
)

#: Files in the folder of a job, beside which a phase has a folder of its name.
_FILES, _SUFFIXES = ("lock", "workflow", "done"), ("json", "jsonl", "out", "done", "files", "hsp")
_TAKEN = re.compile(rf"{'|'.join(_FILES)}|.*\.({'|'.join(_SUFFIXES)})")

#: Keys of a filter or function.
BETWEEN = frozenset({"after", "input", "output", "format", "shared", "options", "filter", "python"})


class PhaseDescription(FrozenValue, frozen=True):
    """The description of one phase. Files are as typed, relative to the working folder."""

    name: str
    kind: Kind
    #: The job; for ``command`` with the command itself.
    job: JobSpec
    text: str = ""
    #: Phases that must end before this one begins.
    after: tuple[str, ...] = ()
    stdin: str = ""
    stdout: str = ""
    #: Arguments of the function, by name.
    options: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def reads(self) -> tuple[str, ...]:
        """Words that may name files that this phase reads."""
        job = self.job
        typed = (each.rpartition(":")[0] or each for each in job.input)
        arguments = [part for word in job.command[1:] for part in (word, word.partition("=")[2]) if part]
        return (*filter(None, (self.stdin,)), *job.input, *typed, *job.shared, *arguments)


class WorkflowDescription(FrozenValue, frozen=True):
    """All phases, in the order of the file; each may read only outputs of earlier ones."""

    phases: tuple[PhaseDescription, ...]
    #: Options that hold for all phases.
    job: JobSpec

    def get_phase(self, name: str) -> PhaseDescription:
        """Return the phase of this name."""
        return next(phase for phase in self.phases if phase.name == name)


def parse_workflow(values: Mapping[str, Any], where: str) -> WorkflowDescription:
    """Check and parse the values of a job file, merged with the options of the command line.

    Args:
        values: Values by their names in a job file; ``phase`` has the tables.
        where: The file, for messages.

    Raises:
        RefusedError: A value is unknown, missing or contradictory.
    """
    tables = values["phase"]
    common = {name: value for name, value in values.items() if name not in ("phase", "command")}
    if not isinstance(tables, dict) or not tables or not all(isinstance(table, dict) for table in tables.values()):
        raise RefusedError(f"{where}: phase: expected tables", "begin each phase with [phase.NAME]")
    if values.get("command"):
        raise RefusedError(f"{where}: a command beside phases", "make the command a phase: [phase.NAME] command = ...")
    for name in sorted(NOT_FOR_ALL & common.keys()):
        if common[name]:
            raise RefusedError(
                f"{where}: {name}: belongs to one phase", f"say it below [phase.NAME], for each that has {name}"
            )
    check_known_keys(common, JobSpec.__struct_encode_fields__, where)
    phases: list[PhaseDescription] = []
    for name, table in tables.items():
        phases.append(
            _parse_phase(name, table, common, f"{where}: phase {name}", [phase.name for phase in phases], list(tables))
        )
    return WorkflowDescription(phases=tuple(phases), job=make_job({**common, "command": ["workflow"]}, where))


def _parse_phase(
    name: str, table: dict[str, Any], common: dict[str, Any], where: str, earlier: Sequence[str], names: Sequence[str]
) -> PhaseDescription:
    """Parse the table of one phase.

    Args:
        common: Values outside the phases.
        earlier: Names of the phases before it.
        names: Names of all phases.
    """
    try:
        check_phase_name(name)
    except RefusedError as error:
        raise RefusedError(f"{where}: {error.message}", error.hint) from error
    known = {*JobSpec.__struct_encode_fields__} - OF_ALL
    check_known_keys(table, {*known, *OWN}, where)
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1:
        raise RefusedError(
            f"{where}: {' and '.join(kinds) or 'nothing to run'}",
            "say one of command, filter (a shell line) and python (FILE.py:FUNCTION)",
        )
    kind = kinds[0]
    after = _parse_after(table.get("after", ()), where, earlier, names)
    texts = {key: table.get(key, "") for key in ("stdin", "stdout", *KINDS[1:])}
    if wrong := next((key for key, value in texts.items() if not isinstance(value, str)), ""):
        raise RefusedError(f"{where}: {wrong}: expected text", "give one name")
    options = table.get("options", {})
    if not isinstance(options, dict):
        raise RefusedError(f"{where}: options: expected a table", "as in: options = { evalue = 1e-5 }")
    passed = {**{key: value for key, value in common.items() if key not in OF_ALL - {"slots", "verbosity"}}, **table}
    job_values = {key: value for key, value in passed.items() if key not in OWN}
    if kind == "command":
        _refuse_options(options, where)
        job = make_job(job_values, where)
    else:
        if unused := sorted(table.keys() - BETWEEN):
            raise RefusedError(
                f"{where}: {unused[0]} belongs to a command", f"a {kind} takes {', '.join(sorted(BETWEEN - {*KINDS}))}"
            )
        if kind == "filter":
            _refuse_options(options, where)
        job = make_job({**{key: table[key] for key in table if key in known}, "command": [texts[kind] or "?"]}, where)
        _check_filter(kind, texts[kind], job, where)
    return PhaseDescription(name=name, kind=kind, job=job, text=texts["filter"] or texts["python"], after=after,
                 stdin=texts["stdin"], stdout=texts["stdout"], options=options)  # fmt: skip


def check_phase_name(name: str) -> None:
    """Check that a phase may have this name.

    Raises:
        RefusedError: It is no name, or that of a file in the folder of a job.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) or _TAKEN.fullmatch(name):
        hint = f"use letters, digits, - and _: it is the name of a folder, beside {', '.join(_FILES)} and *.{', *.'.join(_SUFFIXES)}"
        raise RefusedError("not a name", hint)


def _refuse_options(options: dict[str, Any], where: str) -> None:
    """Refuse ``options`` for a phase that is no function."""
    if options:
        raise RefusedError(f"{where}: options are arguments of a Python function", "write them into the command")


def _parse_after(given: Any, where: str, earlier: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Parse ``after``: names of phases that come earlier in the file."""
    found = (given,) if isinstance(given, str) else tuple(given)
    for name in found:
        if name not in names:
            check_known_keys([name], names, f"{where}: after")
        if name not in earlier:
            raise RefusedError(
                f"{where}: after {name}, which comes later in the file", f"move [phase.{name}] before it"
            )
    return found


def _check_filter(kind: Kind, text: str, job: JobSpec, where: str) -> None:
    """Refuse a filter or function without exactly one input and output, or with an invalid text."""
    if len(job.input) != 1 or len(job.output) != 1:
        raise RefusedError(
            f"{where}: a {kind} reads one input and writes one output",
            'say input = "FILE" and output = "FILE" (a folder ends with /)',
        )
    if kind == "python" and not re.fullmatch(r"[^:]+\.py:[A-Za-z_]\w*|[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise RefusedError(f"{where}: python: {text!r} names no function", "say FILE.py:FUNCTION or MODULE:FUNCTION")
    if kind == "filter" and (not text.strip() or job.output[0].endswith("/")):
        raise RefusedError(
            f"{where}: a filter writes one file", "give it a name without / at the end, or use a Python function"
        )
