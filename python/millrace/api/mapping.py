"""A Python function over many records, on all slots: journaled, resumable, in order."""

from __future__ import annotations

import hashlib
import inspect
import multiprocessing.spawn
import os
import pickle
import shutil
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from millrace.api.running import Run
from millrace.errors import RefusedError
from millrace.own import replace_whole, take_private

T = TypeVar("T")
R = TypeVar("R")

#: In the folder of a map: the function, and the records.
CALL, RECORDS = "call", "records.txt"


def map(
    function: Callable[[T], R],
    records: Iterable[T] | str | os.PathLike[str],
    *,
    slots: int | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    format: str = "",
) -> Iterator[R]:
    """Call ``function`` for each record, in processes that stay alive, and give the results in the order of the records.

    Args:
        function: One of a module, or of the program's main file, as for `multiprocessing`. Its result depends on the record
            alone.
        records: Values that can be pickled, such as Biopython's records; or the path of a file, whose records come as bytes.
        slots: Processes; default: the cores that this process may use.
        run_dir: A folder that keeps what is done: the same call goes on from there. Default: nothing is kept.
        format: Record format of the file; default: told by the file.

    Yields:
        Results, as soon as they and all before are there.

    Raises:
        Exception: What the function has raised, at the place of its record. With ``run_dir`` it stays there.
        RefusedError: The function cannot be found by another process, or ``run_dir`` may be another user's.
        RunError: The run did not end well, such as by a process that died; all results before are right.

    >>> list(map(len, ["a", "bcd"]))
    [1, 3]
    """
    path = Path(os.fspath(records)) if isinstance(records, str | os.PathLike) else None
    folder = Path(run_dir).absolute() if run_dir else Path(tempfile.mkdtemp(prefix="millrace-map-"))
    try:
        _take(folder)
        call = pickle.dumps((_surroundings(), _pickled(function), path is not None))
        _keep(folder / CALL, call)
        if path is None:
            assert not isinstance(records, str | os.PathLike)
            _keep(folder / RECORDS, b"".join(b64encode(pickle.dumps(each)) + b"\n" for each in records))
        left = _left(function, kept=bool(run_dir))
        yield from _results(folder, digest_of(call), function, path, slots, format, left)
    finally:
        if not run_dir:
            shutil.rmtree(folder, ignore_errors=True)


def digest_of(call: bytes) -> str:
    """The digest by which a worker knows that the function it loads is the one that it was started for."""
    return hashlib.blake2b(call, digest_size=32).hexdigest()


def _take(folder: Path) -> None:
    """Make the folder of a map: functions and results in it are loaded, so nobody else may have put them there.

    Raises:
        RefusedError: Somebody else may have.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        take_private(folder, is_users=True)
    except PermissionError as error:
        raise RefusedError(
            f"millrace.map: {folder}: {(error.strerror or '').lower()}, and what is in it would be run",
            "name a folder of your own with run_dir",
        ) from error


def _results(
    folder: Path,
    digest: str,
    function: Callable[[Any], Any],
    path: Path | None,
    slots: int | None,
    form: str,
    left: str,
) -> Iterator[Any]:
    if (folder / RECORDS).is_file() and not (folder / RECORDS).stat().st_size:
        return
    options = ["--records", "--run-dir", str(folder / "run"), "--verify", "0", "--on-failure", "stop", "--keep-run-dir"]
    options += ["--input", str(path.absolute())] if path else ["--input", f"{folder / RECORDS}:lines"]
    options += ["--format", form] if path and form else []
    options += ["--slots", str(slots)] if slots else []
    # A change of the function is noticed, as that of a program.
    with suppress(TypeError):
        options += ["--shared", str(Path(inspect.getsourcefile(function) or "").resolve(strict=True))]
    with Run([sys.executable, "-m", "millrace.api.worker", str(folder / CALL), digest], options, left=left) as running:
        for line in running:
            result = pickle.loads(b64decode(line))
            if isinstance(result, Raised):
                raise result.error
            yield result


def _left(function: Callable[[Any], Any], *, kept: bool) -> str:
    """What to say where the program ends while results are still to be read."""
    name = getattr(function, "__name__", "function")
    on = "the same call goes on with it" if kept else "nothing of it is kept"
    return (
        f"millrace.map({name}, ...): was left before its last result, and told to stop; {on}: "
        "read all results, or call close() of what map gave"
    )


class Raised:
    """What a function has raised instead of giving a result."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _surroundings() -> dict[str, Any]:
    """What another process needs to find the function: path and main module, as for `multiprocessing`."""
    found = multiprocessing.spawn.get_preparation_data("millrace")
    return {name: found[name] for name in ("sys_path", "init_main_from_path", "init_main_from_name") if name in found}


def _pickled(function: Callable[[Any], Any]) -> bytes:
    try:
        return pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise RefusedError(
            f"millrace.map: the function cannot be found by another process: {error}",
            "define it at the top of a module or of the program's main file: no lambda, nothing inside a function",
        ) from error


def _keep(path: Path, content: bytes) -> None:
    """Write a file, unless it is there already: its time of change tells whether a run may go on."""
    if not path.is_file() or path.read_bytes() != content:
        replace_whole(path, content)
