"""Places of run directories, and the history of ended runs that ``millrace runs`` lists.

The place follows from the user's option, the outputs or the command. The history is in the user's state folder, and
never needed: each run has a folder there with its logs and a small description. The folder of all runs is made for
this user alone, and used only if it is. An error here is no fault of a run: then nothing is kept.
"""

from __future__ import annotations

import os
import shutil
import time
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace.adapters.adapter_base import is_stream_path
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.tool_use import FrozenValue, OutputUse, ToolUse
from millrace.host import permissions, site_defaults
from millrace.rundir.checksummed_json import encode_checksummed, read_checksummed
from millrace.rundir.paths import SUFFIX, RunDir


def choose_run_dir(
    wanted: str, use: ToolUse, argv: tuple[str, ...], cwd: Path, environ: Mapping[str, str], stored: str = ""
) -> Path:
    """Choose the run directory: ``OUTPUT.millrace`` beside the first output that has a name.

    A run to standard output has it in the current folder, or in the user's state folder where that cannot be written.

    Args:
        wanted: The user's choice; empty: none.
        stored: Path without suffix in the user's store; empty: there is none.
    """
    if wanted:
        return cwd / wanted
    if stored:
        return cwd / (stored + SUFFIX)
    for output in use.outputs:
        if output.path != "-" and not is_stream_path(output.path):
            return cwd / (_strip_placeholders(output) + SUFFIX)
    here, base = cwd / _make_digest_name(argv), permissions.find_state_folder(environ)
    if _is_writable_folder(cwd) or here.exists() or not base:
        return here
    there = next(folder for folder in (base, *base.parents) if folder.exists())
    return base / "unfinished" / _make_digest_name((str(cwd), *argv), argv[0]) if _is_writable_folder(there) else here


def resolve_run_dir(name: str, environ: Mapping[str, str]) -> Path:
    """Return the run directory with this name, or that of the output of this name: the one beside it, or in the store."""
    path, beside = Path(name), Path(name.rstrip("/") + SUFFIX)
    if RunDir(path).has_run() or (path.suffix == SUFFIX and path.is_dir()):
        return path
    return beside if beside.is_dir() else _find_stored_run(name, environ) or path


def _find_stored_run(name: str, environ: Mapping[str, str]) -> Path | None:
    """Return the run directory in the store whose run has last written this output, or would lie beside it; None: there is none."""
    store = site_defaults.find_store(environ)
    wanted, found = os.path.realpath(name.rstrip("/")).removesuffix(SUFFIX), []
    for path in list_run_dirs(Path(store)) if store else ():
        with suppress(MillraceError, OSError):  # damaged, or another user's
            manifest = RunDir(path).read_manifest()
            outputs = (os.path.join(manifest.cwd, _strip_placeholders(each)) for each in manifest.use.outputs)
            if wanted in map(os.path.realpath, outputs):
                found.append((RunDir(path).manifest.stat().st_mtime_ns, path))
    return max(found)[1] if found else None


def list_run_dirs(folder: Path) -> list[Path]:
    """List the run directories in a folder, by name."""
    return [path for path in sorted(folder.glob(f"*{SUFFIX}")) if path.is_dir()]


def _is_writable_folder(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _strip_placeholders(output: OutputUse) -> str:
    """Remove placeholders of records from the path of an output; the result lies outside the folder of the outputs.

    >>> _strip_placeholders(OutputUse(name="o", path="a/hits.tsv")), _strip_placeholders(OutputUse(name="o", path="a/{stem}.txt", layout="record"))
    ('a/hits.tsv', 'a.stem.txt')
    """
    folder, _, rest = output.path.rstrip("/").partition("{")
    folder, slash, begin = folder.rpartition("/")
    if not rest or output.layout != "record":
        return output.path.rstrip("/")
    name = (begin + rest).replace("{", "").replace("}", "").replace("/", ".")
    return f"{folder}.{name}" if folder else slash + name


def _make_digest_name(words: tuple[str, ...], program: str = "") -> str:
    digest = blake2b("\0".join(words).encode(errors="surrogateescape"), digest_size=4).hexdigest()
    return f"{Path(program or words[0]).name}-{digest}{SUFFIX}"


#: Most runs to keep, the latest ones, and most bytes of all of them together.
MAX_RUNS, MAX_RUN_BYTES = 50, 64 << 20

#: Fewest letters that may abbreviate a name.
MIN_NAME_LETTERS = 4

#: Prefix of an unfinished folder, and the age in seconds at which its writer is taken for dead.
_NEW, _MAX_WRITE_SECONDS = ".new-", 3600.0

#: The event log of a run in its folder.
EVENTS = "events.jsonl"


class EndedRun(FrozenValue, frozen=True):
    """A run that has ended."""

    run_id: str
    #: When, as ISO 8601.
    ended: str
    argv: tuple[str, ...]
    host: str
    cwd: str
    run_dir: str
    #: ``done``, ``quarantined``, ``interrupted`` or ``stopped``, and the exit code.
    status: str
    exit_code: int
    #: The final error message; empty if all went well.
    message: str
    records_done: int
    quarantined: int
    #: Number of starts, and their running time in seconds.
    n_starts: int
    wall: float

    @property
    def name(self) -> str:
        """Its name in lists."""
        return self.run_id[:8]


class ArchivedRun(msgspec.Struct, frozen=True):
    """A ``EndedRun`` run, and the folder that keeps it."""

    past: EndedRun
    folder: Path


def archive_run(past: EndedRun, logs: Mapping[str, Path], environ: Mapping[str, str]) -> None:
    """Keep ``past`` with its logs; replaces an earlier start of the same run.

    Args:
        logs: Files, by their names in the folder of this run.
    """
    with suppress(OSError):
        home = _find_archive_folder(environ, make=True)
        new = home / f"{_NEW}{os.urandom(8).hex()}"
        new.mkdir(mode=0o700)
        try:
            (new / "run.json").write_bytes(encode_checksummed(past))
            for name, log in logs.items():
                (new / name).parent.mkdir(mode=0o700, exist_ok=True)
                shutil.copyfile(log, new / name)
            place = home / past.run_id
            shutil.rmtree(place, ignore_errors=True)
            new.rename(place)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
        _prune_oldest_runs(home)


def sweep_unfinished(environ: Mapping[str, str]) -> None:
    """Remove unfinished folders whose writers have died."""
    with suppress(OSError):
        _remove_unfinished(_find_archive_folder(environ))


def list_archived_runs(environ: Mapping[str, str]) -> list[ArchivedRun]:
    """List all kept runs, the one that ended last at the end."""
    try:
        return _read_archived_runs(_find_archive_folder(environ))
    except OSError:
        return []


def find_archived_run(run: str, environ: Mapping[str, str]) -> ArchivedRun:
    """Find a run by its name, or by the path of its run directory or of its output; the latest, if there are several.

    Raises:
        RefusedError: There is none, or an abbreviated name is ambiguous.
    """
    runs = list_archived_runs(environ)
    path = os.path.abspath(run)
    if there := [each for each in runs if each.past.run_dir in (path, path + SUFFIX)]:
        return there[-1]
    named = [each for each in runs if each.past.run_id.startswith(run)] if len(run) >= MIN_NAME_LETTERS else []
    if len(named) == 1:
        return named[0]
    if named:
        raise RefusedError(f"{run}: {len(named)} runs begin so", "give more letters: millrace runs lists them")
    raise RefusedError(
        f"{run}: no run here",
        "give the .millrace folder of a run, or a name that millrace runs lists; of a run in a store, name this by --store",
    )


def find_run_logs(run: str, environ: Mapping[str, str]) -> tuple[Path, EndedRun | None]:
    """Return the folder with the logs of a run, and the run if it is a kept one.

    The folder is the run directory, or if that is gone the kept one.

    Raises:
        RefusedError: As in ``find_archived_run``.
    """
    folder = resolve_run_dir(run, environ)
    if folder.is_dir():
        return folder, None
    ended = find_archived_run(run, environ)
    return ended.folder, ended.past


def _find_archive_folder(environ: Mapping[str, str], *, make: bool = False) -> Path:
    """Return the folder of all kept runs.

    Raises:
        OSError: It does not exist, or is not this user's alone.
    """
    base = permissions.find_state_folder(environ)
    if not base:
        raise FileNotFoundError
    home = base / "runs"
    if make:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
    os.close(permissions.open_private_folder(home))
    return home


def _list_run_folders(home: Path) -> list[Path]:
    """List the folders of runs, the latest last."""
    found = []
    for entry in os.scandir(home):
        if not entry.name.startswith(_NEW):
            with suppress(FileNotFoundError):  # another run is removing it
                found.append((entry.stat().st_mtime_ns, Path(entry.path)))
    return [path for _, path in sorted(found)]


def _read_archived_runs(home: Path) -> list[ArchivedRun]:
    found = []
    for folder in _list_run_folders(home):
        with suppress(OSError, MillraceError):  # being removed, or written by another release
            found.append(ArchivedRun(read_checksummed(folder / "run.json", EndedRun, "a run that has ended"), folder))
    return found


def _prune_oldest_runs(home: Path) -> None:
    """Remove the oldest runs beyond the limits, and unfinished folders of dead writers."""
    _remove_unfinished(home)
    room = MAX_RUN_BYTES
    for number, folder in enumerate(reversed(_list_run_folders(home))):
        room -= _measure_folder(folder)
        if number >= MAX_RUNS or room < 0:
            shutil.rmtree(folder, ignore_errors=True)


def _measure_folder(folder: str | Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(
        _measure_folder(entry.path) if entry.is_dir(follow_symlinks=False) else entry.stat().st_size
        for entry in os.scandir(folder)
    )


def _remove_unfinished(home: Path) -> None:
    for folder in home.glob(f"{_NEW}*"):
        if time.time() - folder.stat().st_mtime > _MAX_WRITE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
