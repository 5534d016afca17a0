"""Outputs of a run, one for each stream: opening, truncating, and writing of the joined bytes.

A file that is opened with ``>>`` keeps the results of an earlier start, and the whole output would follow them. Batch
systems open the log of a job like that, which may hold only messages: so the files with results are recorded, and
only these are refused.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from millrace import _core
from millrace.adapters.adapter_base import expand_record_path
from millrace.core.errors import CorruptError, MisfitError, RefusedError
from millrace.core.tasks import CommittedRecords
from millrace.core.text_format import escape_unprintable, format_records
from millrace.core.tool_use import OutputUse, ToolUse
from millrace.host.file_lock import SHARED, find_filesystem_kind
from millrace.host.permissions import open_beneath
from millrace.rundir.paths import RunDir, sync_folder

#: First line of the record. Releases without a record left the file empty.
HEAD = "standard output (device, file)"


def begin_record(rundir: RunDir) -> None:
    """Record that outputs are written from now on, as yet none to standard output."""
    with rundir.written_marker.open("a") as file:
        if not file.tell():
            file.write(f"{HEAD}\n")


def record_stdout(rundir: RunDir) -> None:
    """Record the file behind standard output, if it is one, as one with results."""
    with suppress(OSError):  # the run directory was removed
        if (name := _identify_stdout_file()) and rundir.path.is_dir():
            begin_record(rundir)
            with rundir.written_marker.open("a") as file:
                file.write(f"{name}\n")
                file.flush()
                os.fsync(file.fileno())


def refuse_appending(use: ToolUse, rundir: RunDir) -> None:
    """Check that standard output does not append to a file with results of an earlier start.

    Raises:
        RefusedError: It appends: the file would hold these results twice.
    """
    if all(output.layout != "file" or (output.to or output.path) != "-" for output in use.outputs):
        return
    with suppress(OSError):
        appends = fcntl.fcntl(1, fcntl.F_GETFL) & os.O_APPEND and os.fstat(1).st_size
        if appends and _is_recorded(rundir, _identify_stdout_file()):
            raise RefusedError(
                "standard output goes behind what is in a file (>>), where what an earlier start of this run has written would "
                "stand twice",
                "type the same command with > and the name of a new file, which gets all of it, and take out of this one what "
                "the first start wrote",
            )


def _is_recorded(rundir: RunDir, name: str) -> bool:
    try:
        lines = rundir.written_marker.read_text().splitlines()
    except FileNotFoundError:
        return False
    return name in lines if HEAD in lines else bool(name) and rundir.has_results()


def _identify_stdout_file() -> str:
    """Return device and inode of the regular file on standard output; empty: it is something else."""
    about = os.fstat(1)
    return f"{about.st_dev} {about.st_ino}" if stat.S_ISREG(about.st_mode) else ""


#: Hint where results cannot be joined.
MISFIT_HINT = (
    "the same command computes again what does not fit the rest; if it ends so again, the tool writes there what is another "
    "each time or for each batch (a time, a host, a warning): let it leave that out, or say with --join what frames its output"
)


def resolve_destination(output: OutputUse, cwd: Path) -> Path | None:
    """Return the path at which an output is written; None is standard output."""
    return None if (path := output.to or output.part or output.path) == "-" else cwd / path


def resolve_final_path(output: OutputUse, cwd: Path) -> Path | None:
    """Return the path of an output that is whole; None is standard output."""
    return None if (path := output.to or output.path) == "-" else cwd / path


def publish_outputs(outputs: Sequence[OutputUse], cwd: Path) -> None:
    """Give outputs that are whole, and on the disk, their names; one that was there before keeps its mode."""
    folders = set[Path]()
    for output in outputs:
        part, path = resolve_destination(output, cwd), resolve_final_path(output, cwd)
        if part and path and part != path:
            with suppress(FileNotFoundError):
                os.chmod(part, stat.S_IMODE(os.stat(path).st_mode))
            part.replace(path)
            folders.add(path.parent)
    for folder in folders:
        sync_folder(folder)


@contextmanager
def name_output_in_errors(output: OutputUse, where: str = "") -> Iterator[None]:
    """Add the name of the output, and of the records, to an error of the operating system or of the join."""
    name = "standard output" if output.path == "-" else output.path
    try:
        yield
    except BrokenPipeError:
        raise
    except _core.Misfit as error:
        raise MisfitError(f"{name}: {where}: {error}", MISFIT_HINT) from error
    except _core.CorruptJournal as error:
        raise CorruptError(f"{name}: {error}") from error
    except OSError as error:
        text = f"{name}: {error.strerror or error}".partition(" (os error")[0]
        raise (_core.DiskFull(text) if isinstance(error, _core.DiskFull) else OSError(text)) from error


def is_replaceable(path: Path) -> bool:
    """Return whether a new file can be put in place of a regular one, with nobody left behind at the old one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    alone = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()
    return alone and os.access(path.parent, os.W_OK)


def _replace_file(path: Path) -> None:
    """Put a new, empty file in place of ``path``, of another inode number, as the old one is there until then."""
    import tempfile  # only for starts that resume a run of several nodes

    descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise
    finally:
        os.close(descriptor)


def withdraw_outputs(outputs: Sequence[OutputUse], cwd: Path, journals: Sequence[Path]) -> None:
    """Remove outputs that may be wrong, so that none looks finished; the journals keep the results.

    A file with several hard links, or behind a symbolic link, is emptied instead. Devices and pipes stay.
    """
    paths: set[Path] = set()
    for number, output in enumerate(outputs):
        place = resolve_destination(output, cwd)
        if output.layout == "file":
            paths.update([place] if place else [])
            continue
        folder = cwd if output.layout == "record" else place or cwd
        tasks = (task for journal in journals for task in _core.scan(journal, False).tasks if not task.fragment)
        paths.update(
            folder / os.fsdecode(block.name) for task in tasks for block in task.blocks if block.stream == number
        )
    for path in paths:
        if path.is_file():
            if path.is_symlink() or path.stat().st_nlink > 1:
                os.truncate(path, 0)
            else:
                path.unlink()


class OutputStreams:
    """All outputs of a run, written batch by batch in input order.

    Args:
        outputs: The streams, numbered by their position.
        cwd: The user's working directory.
        only: Name of the one stream to write; empty: all.
        to: Destination of that stream in place of its own; ``-`` is standard output.
        fresh: Whether this run has not written to these outputs yet: ``OutputStreams.truncate_old_outputs`` truncates them. A resumed run
            writes the same bytes over its own, so that a reader of a file sees it only grow.
        files: Input files that are one record each, with outputs of their own; empty: records are not files.
        wrote: Called with the path of each complete file of one record.
        writes_stdout: Called before the first byte of a result goes to standard output.
        forms: See ``RunManifest.frame_forms``.
        replaces: Whether outputs in which two runs of the tool differ get new files, as a process of an earlier start, on a
            node that does not answer, may still write to the old ones.

    Raises:
        OSError: An output cannot be opened or written.
    """

    def __init__(
        self, outputs: Sequence[OutputUse], cwd: Path, only: str = "", to: str = "", fresh: bool = False,
        files: Sequence[str] = (), wrote: Callable[[str], None] | None = None,
        writes_stdout: Callable[[], None] | None = None, replaces: bool = False, forms: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self._forms = forms or {}
        self._outputs, self._cwd, self._wrote = outputs, cwd, wrote
        self._writers: dict[int, _core.StreamWriter] = {}
        self._folders: dict[int, Path] = {}
        self._writes_stdout = writes_stdout
        #: Streams that go to standard output.
        self._on_stdout: set[int] = set()
        self._places: list[Path] = []
        self._fresh, self._files = fresh, files
        #: Whether the user names the folder: names in the journal, which may be untrusted, must then stay below it.
        self._is_elsewhere = bool(to)
        #: Files and folders that did not exist before.
        self._new: list[Path] = []
        #: Folders that are known to exist.
        self._made: set[str] = set()
        #: A folder on each filesystem with outputs in folders.
        self._filesystems: dict[int, str] = {}
        for number, output in enumerate(outputs):
            if only and output.name != only:
                continue
            place = (None if to == "-" else Path(to)) if to else resolve_destination(output, cwd)
            if output.layout == "file":
                if place:
                    self._places.append(place)
                    if not place.exists():
                        self._new.append(place)
                    elif replaces and output.volatile and is_replaceable(place):
                        _replace_file(place)
                else:
                    self._on_stdout.add(number)
                prompt = place is not None and find_filesystem_kind(place.parent) not in SHARED
                self._writers[number] = _core.StreamWriter(output.join, str(place) if place else None, prompt=prompt)
            else:
                self._folders[number] = folder = self._make_output_folder(output, place, bool(to))
                self._filesystems.setdefault(folder.stat().st_dev, str(folder))

    def _make_output_folder(self, output: OutputUse, place: Path | None, elsewhere: bool) -> Path:
        by_name = output.layout == "record" and not elsewhere
        named = os.path.dirname(output.path) if by_name else ""
        folder = self._cwd / named if by_name else place or self._cwd
        if "{" not in named:  # else each record has its own folder; tasks must find it too
            if not folder.exists():
                self._new.append(folder)
            folder.mkdir(parents=True, exist_ok=True)
        return self._cwd if by_name else folder  # names of blocks are paths as the user would type them

    def truncate_old_outputs(self) -> None:
        """Prepare for the first write: truncate the files if their content is of another run."""
        self._new.clear()
        for place in self._places:
            if self._fresh and place.is_file():
                os.truncate(place, 0)

    def remove_new_outputs(self) -> None:
        """Remove new files and folders if nothing was written."""
        for place in self._new:
            with suppress(OSError):
                place.rmdir() if place.is_dir() else place.unlink()
        self._new.clear()

    def skip_streams(self, numbers: Iterable[int]) -> None:
        """Leave these files to other processes; their folders are still synced."""
        for number in numbers:
            del self._writers[number]

    def append_task(self, n_records: int, task: CommittedRecords) -> None:
        """Write the blocks of one task; for a quarantined one, remove files of an earlier run.

        Raises:
            CorruptError: A block differs from the committed bytes.
        """
        if task.quarantined and self._files:
            self._remove_record_outputs(self._files[task.first : task.last])
        try:
            for block in task.blocks:
                if (writer := self._writers.get(block.stream)) is not None:
                    if self._writes_stdout and block.length and block.stream in self._on_stdout:
                        self._writes_stdout()
                        self._writes_stdout = None
                    with name_output_in_errors(self._outputs[block.stream], format_records(task.first, task.last)):
                        if self._forms:
                            writer.set_form(self._forms.get(block.journal.name, 0))
                        writer.append(n_records, block)
                elif (folder := self._folders.get(block.stream)) is not None:
                    if self._is_elsewhere:
                        _extract_beneath(block, folder)
                        continue
                    path = os.path.join(folder, os.fsdecode(block.name))
                    if (parent := os.path.dirname(path)) not in self._made:
                        os.makedirs(parent, exist_ok=True)
                        self._made.add(parent)
                        self._filesystems.setdefault(os.stat(parent).st_dev, parent)
                    _core.extract(block, path)
                    if self._wrote:
                        self._wrote(path)
        except _core.CorruptJournal as error:
            raise CorruptError(str(error)) from error

    def _remove_record_outputs(self, files: Sequence[str]) -> None:
        """Remove files of these records by an earlier run, which would be taken for results of this one."""
        for number in self._folders:
            output = self._outputs[number]
            for name in files if output.layout == "record" else ():
                with suppress(FileNotFoundError):
                    os.unlink(self._cwd / expand_record_path(output.path, name))

    def flush(self) -> None:
        """Flush written bytes to the operating system, so that readers see them."""
        for number, writer in self._writers.items():
            with name_output_in_errors(self._outputs[number]):
                writer.flush()

    def find_changed_outputs(self) -> dict[str, str]:
        """Return changes to files by others since they were opened, in words, by name; after ``OutputStreams.finish_outputs``."""
        found = {self._outputs[number].name: writer.changed() for number, writer in self._writers.items()}
        return {name: words for name, words in found.items() if words}

    def finish_outputs(self) -> dict[str, int]:
        """Write the ends of the outputs and sync them; return the bytes of each stream.

        Raises:
            CorruptError: The last blocks lack a part of a complete output.
        """
        try:
            sizes = {self._outputs[number].name: writer.finish() for number, writer in self._writers.items()}
        except _core.CorruptJournal as error:
            raise CorruptError(str(error)) from error
        # The journal is removed when this returns: sync names of files too.
        for folder in {place.parent for place in self._places}:
            sync_folder(folder)
        for on_it in self._filesystems.values():
            with suppress(FileNotFoundError):  # removed by others: missing files are written again
                _core.sync_filesystem(on_it)
        return sizes


def _extract_beneath(block: _core.BlockRef, folder: Path) -> None:
    """Write a file that a block names below ``folder``.

    Raises:
        RefusedError: Its name leads outside ``folder``.
    """
    name = os.fsdecode(block.name)
    try:
        file = open_beneath(folder, name)
    except PermissionError as error:
        raise RefusedError(
            f"{folder}: the journal has a file for {escape_unprintable(name)}: {error.strerror}",
            "name a new folder with -o; what the run wrote by absolute names, or above its folder, is not gathered elsewhere",
        ) from error
    try:
        _core.extract(block, f"/proc/self/fd/{file}")
    finally:
        os.close(file)
