"""``millrace.map``: a Python function applied to many records on all slots; journaled, resumable, in order."""

from __future__ import annotations

import hashlib
import inspect
import multiprocessing.spawn
import os
import pickle
import shutil
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar, overload

from millrace.api import function_transfer
from millrace.api.running import Run, StrPath
from millrace.core.errors import RefusedError
from millrace.host.permissions import claim_private_folder, replace_file
from millrace.host.python_launch import make_python_command

T = TypeVar("T")
R = TypeVar("R")

#: Files in the folder of a map: the pickled function, and its identity.
CALL, IDENTITY = "call", "identity"


@overload
def map(
    function: Callable[[bytes], R], records: StrPath, *, slots: int | None = None, run_dir: StrPath | None = None,
    format: str = "",
) -> Iterator[R]: ...  # fmt: skip
@overload
def map(
    function: Callable[[T], R], records: Iterable[T], *, slots: int | None = None, run_dir: StrPath | None = None,
) -> Iterator[R]: ...  # fmt: skip
def map(
    function: Callable[[Any], R],
    records: Iterable[Any] | StrPath,
    *,
    slots: int | None = None,
    run_dir: StrPath | None = None,
    format: str = "",
) -> Iterator[R]:
    """Call ``function`` for each record, in processes that stay alive, and yield the results in the order of the
    records.

    Args:
        function: Any function, also one of a notebook's cell, of ``python -c``, or without a name. Its result must
            depend on the record alone.
        records: Values that can be pickled, such as Biopython's records, read as the slots need them; or the path of a
            file, whose records are passed as bytes.
        slots: Number of processes; default: the cores that this process may use.
        run_dir: A folder that keeps the results: the same call resumes from there. Default: nothing is kept.
        format: Record format of the file; default: detected from the file.

    Yields:
        Results, each as soon as it and all before it are computed.

    Raises:
        Exception: The error that the function has raised, at the place of its record. With ``run_dir`` it is kept.
        RefusedError: The function cannot be sent to another process, or ``run_dir`` may be another user's.
        RunError: The run failed, for example because a process died; all results before are right.

    >>> list(map(len, ["a", "bcd"]))
    [1, 3]
    """
    path = Path(os.fspath(records)) if isinstance(records, str | os.PathLike) else None
    folder = Path(run_dir).absolute() if run_dir else Path(tempfile.mkdtemp(prefix="millrace-map-"))
    try:
        _claim_folder(folder)
        digest = _save_call(folder, function, is_raw=path is not None)
        lines = None
        if path is None:
            assert not isinstance(records, str | os.PathLike)
            values = iter(records)
            if not (first := [*islice(values, 1)]):
                return
            lines = (b64encode(pickle.dumps(each)) + b"\n" for each in chain(first, values))
        left = _format_left_warning(function, kept=bool(run_dir))
        yield from _read_results(folder, digest, function, path, slots, format, left, lines)
    finally:
        if not run_dir:
            shutil.rmtree(folder, ignore_errors=True)


def digest_call(call: bytes) -> str:
    """Return the digest by which a worker checks that it loads the function for which it was started."""
    return hashlib.blake2b(call, digest_size=32).hexdigest()


def _claim_folder(folder: Path) -> None:
    """Make the folder of a map private to this user: the pickles in it are loaded, which can run any code.

    Raises:
        RefusedError: Another user may have written to it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        claim_private_folder(folder, is_users=True)
    except PermissionError as error:
        raise RefusedError(
            f"millrace.map: {folder}: {(error.strerror or '').lower()}, and what is in it would be run",
            "name a folder of your own with run_dir",
        ) from error


def _read_results(
    folder: Path, digest: str, function: Callable[[Any], Any], path: Path | None, slots: int | None, form: str, left: str,
    lines: Iterable[bytes] | None,
) -> Iterator[Any]:  # fmt: skip
    """Start the run of a map and yield its results; raise the error of a record at its place."""
    options = ["--no-store", "--records", "--verify", "0", "--on-failure", "stop", "--keep-run-dir"]
    options += ["--run-dir", str(folder / "run")]
    options += ["--input", str(path.absolute())] if path else ["--format", "lines"]
    options += ["--format", form] if path and form else []
    options += ["--slots", str(slots)] if slots else []
    # The run notices a changed source file as it notices a changed program; a notebook has no file.
    with suppress(TypeError, OSError):
        options += ["--shared", str(Path(inspect.getsourcefile(function) or "").resolve(strict=True))]
    with Run(
        make_python_command("-m", "millrace.api.worker", str(folder / CALL), digest), options, left=left, feed=lines
    ) as running:
        for line in running:
            result = pickle.loads(b64decode(line))
            if isinstance(result, FunctionFailure):
                raise result.error
            yield result


def _format_left_warning(function: Callable[[Any], Any], *, kept: bool) -> str:
    """Return the warning for a caller that drops the iterator before the last result."""
    name = getattr(function, "__name__", "function")
    on = "the same call goes on with it" if kept else "nothing of it is kept"
    return (
        f"millrace.map({name}, ...): was left before its last result, and told to stop; {on}: "
        "read all results, or call close() of what map gave"
    )


class FunctionFailure:
    """An exception that the function has raised, in the place of its result."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _collect_surroundings() -> dict[str, Any]:
    """Return import path and main module for the process that loads the function, as ``multiprocessing`` does."""
    found = multiprocessing.spawn.get_preparation_data("millrace")
    names = (
        ("sys_path", "init_main_from_path", "init_main_from_name")
        if function_transfer.is_main_a_file()
        else ("sys_path",)
    )
    return {name: found[name] for name in names if name in found}


def _save_call(folder: Path, function: Callable[[Any], Any], *, is_raw: bool) -> str:
    """Write the function for the workers, unless the same one is there already; a changed file stops a resume.

    Returns:
        The digest of the file; see ``digest_call``.
    """
    content, identity = function_transfer.pickle_function(function)
    surroundings = _collect_surroundings()
    same = pickle.dumps((surroundings, identity, is_raw))
    noted = folder / IDENTITY
    if not (folder / CALL).is_file() or not noted.is_file() or noted.read_bytes() != same:
        replace_file(folder / CALL, pickle.dumps((surroundings, content, is_raw)))
        replace_file(noted, same)
    return digest_call((folder / CALL).read_bytes())
