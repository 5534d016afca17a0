"""A Python function over many records, on all slots: journaled, resumable, in order."""

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

from millrace.api import functions
from millrace.api.run_options import StrPath
from millrace.api.running import Run
from millrace.errors import RefusedError
from millrace.own import replace_whole, take_private
from millrace.own_python import python_command

T = TypeVar("T")
R = TypeVar("R")

#: In the folder of a map: the function, and what tells whether another one is the same.
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
    """Call ``function`` for each record, in processes that stay alive, and give the results in the order of the records.

    Args:
        function: Any function, also one of a notebook's cell, of ``python -c``, or without a name. Its result depends on the
            record alone.
        records: Values that can be pickled, such as Biopython's records, read as the slots need them; or the path of a file,
            whose records come as bytes.
        slots: Processes; default: the cores that this process may use.
        run_dir: A folder that keeps what is done: the same call goes on from there. Default: nothing is kept.
        format: Record format of the file; default: told by the file.

    Yields:
        Results, as soon as they and all before are there.

    Raises:
        Exception: What the function has raised, at the place of its record. With ``run_dir`` it stays there.
        RefusedError: The function cannot be sent to another process, or ``run_dir`` may be another user's.
        RunError: The run did not end well, such as by a process that died; all results before are right.

    >>> list(map(len, ["a", "bcd"]))
    [1, 3]
    """
    path = Path(os.fspath(records)) if isinstance(records, str | os.PathLike) else None
    folder = Path(run_dir).absolute() if run_dir else Path(tempfile.mkdtemp(prefix="millrace-map-"))
    try:
        _take(folder)
        digest = _keep_call(folder, function, is_raw=path is not None)
        lines = None
        if path is None:
            assert not isinstance(records, str | os.PathLike)
            values = iter(records)
            if not (first := [*islice(values, 1)]):
                return
            lines = (b64encode(pickle.dumps(each)) + b"\n" for each in chain(first, values))
        left = _left(function, kept=bool(run_dir))
        yield from _results(folder, digest, function, path, slots, format, left, lines)
    finally:
        if not run_dir:
            shutil.rmtree(folder, ignore_errors=True)


def digest_call(call: bytes) -> str:
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
    folder: Path, digest: str, function: Callable[[Any], Any], path: Path | None, slots: int | None, form: str, left: str,
    lines: Iterable[bytes] | None,
) -> Iterator[Any]:  # fmt: skip
    options = ["--records", "--run-dir", str(folder / "run"), "--verify", "0", "--on-failure", "stop", "--keep-run-dir"]
    options += ["--input", str(path.absolute())] if path else ["--format", "lines"]
    options += ["--format", form] if path and form else []
    options += ["--slots", str(slots)] if slots else []
    # A change of the function is noticed, as that of a program; one of a notebook has no file.
    with suppress(TypeError, OSError):
        options += ["--shared", str(Path(inspect.getsourcefile(function) or "").resolve(strict=True))]
    with Run(
        python_command("-m", "millrace.api.worker", str(folder / CALL), digest), options, left=left, feed=lines
    ) as running:
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
    names = ("sys_path", "init_main_from_path", "init_main_from_name") if functions.main_is_file() else ("sys_path",)
    return {name: found[name] for name in names if name in found}


def _keep_call(folder: Path, function: Callable[[Any], Any], *, is_raw: bool) -> str:
    """Write the function for the workers, unless the same one is there already: the file tells whether a run may go on.

    Returns:
        The digest of the file.
    """
    content, identity = functions.pickled(function)
    surroundings = _surroundings()
    same = pickle.dumps((surroundings, identity, is_raw))
    noted = folder / IDENTITY
    if not (folder / CALL).is_file() or not noted.is_file() or noted.read_bytes() != same:
        replace_whole(folder / CALL, pickle.dumps((surroundings, content, is_raw)))
        replace_whole(noted, same)
    return digest_call((folder / CALL).read_bytes())
