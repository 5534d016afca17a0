"""The files of a run directory: manifest, lock, journal, events, quarantine. All that a resume needs.

A run that a fresh start is to replace is backed up in its folder until nothing can refuse the start any more.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import Annotated

import msgspec

from millrace import _core
from millrace.core.errors import CorruptError, RefusedError
from millrace.core.tool_use import FrozenValue, ToolUse
from millrace.rundir.checksummed_json import HINT, encode_checksummed, read_checksummed

#: Layout version of the manifest.
VERSION = 1

#: Suffix of the names of run directories.
SUFFIX = ".millrace"

#: Names of journals: of a run on one machine, and of a rank in the n-th start on several.
JOURNAL = re.compile(r"journal(?:-(\d+)-(\d+))?\.mrj")


class RunManifest(FrozenValue, frozen=True):
    """The identity of a run: if manifests are equal, an earlier result may be used."""

    version: int
    millrace: str
    run_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    argv: tuple[str, ...]
    cwd: str
    exe: str
    use: ToolUse
    #: Record boundaries that the user defined.
    record_start: str
    record_end: str
    #: Fingerprints of everything that the result depends on, by name.
    fingerprints: dict[str, str]
    #: ``millrace.planning.dependency_files.digest_file_states`` at the last start; empty: something has changed since, and unsynced results in
    #: the journals must not be used.
    world: str = ""
    #: Digests of the environment that a program may read; see ``millrace.planning.result_fingerprint``. Empty: a known one reads
    #: none of it.
    environ: dict[str, str] = msgspec.field(default_factory=dict)
    #: Journals that were written under other paths, by name, each with the number of that form of the command.
    forms: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def frame_forms(self) -> dict[str, int]:
        """Those of ``forms`` whose results have other paths in what frames an output; the rest is joined alike."""
        if not self.forms:
            return {}
        from millrace.adapters.printed_paths import list_printed_paths  # few runs need it

        return self.forms if list_printed_paths(self.use).frame else {}


class RunCompletion(FrozenValue, frozen=True):
    """The end of a run that was completed."""

    run_id: str
    #: Bytes of each output that is one file.
    outputs: dict[str, int]
    #: Records without a result.
    quarantined: int
    #: Whether the user wants the directory kept.
    kept: bool
    #: Number of records that the outputs cover; None: the run ended under release 0.1.0, which did not note it.
    records: int | None = None


class RunDir(msgspec.Struct, frozen=True):
    """Paths in a run directory, and its small files. ``millrace.rundir.ownership`` has its ownership."""

    path: Path

    @property
    def manifest(self) -> Path:
        return self.path / "job.json"

    @property
    def journal(self) -> Path:
        """The journal of a run on one machine."""
        return self.path / "journal.mrj"

    def get_rank_journal(self, start: int, rank: int) -> Path:
        """Return the journal of one rank in one start on several machines.

        Each has a file of its own, which is never opened again for writing: a rank that was taken for dead and is
        not can do no harm, and no lock is needed, which not every shared filesystem has.
        """
        return self.path / f"journal-{start}-{rank}.mrj"

    def has_rank_journals(self) -> bool:
        """Return whether there was a start on several machines."""
        return any((match := JOURNAL.fullmatch(path.name)) and match[1] for path in self.list_journals())

    def list_journals(self) -> list[Path]:
        """Return all journals, in the order of the starts that wrote them."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.path):
                if match := JOURNAL.fullmatch(name):
                    found.append((int(match[1] or 0), int(match[2] or 0), self.path / name))
        return [path for _, _, path in sorted(found)]

    def choose_start_number(self) -> int:
        """Return a number for ``get_rank_journal`` that no earlier start had."""
        starts = [int(match[1] or 0) for path in self.list_journals() if (match := JOURNAL.fullmatch(path.name))]
        return max(starts, default=0) + 1

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def quarantine(self) -> Path:
        return self.path / "quarantine"

    @property
    def names(self) -> Path:
        """Positions, by name, of the entries of a database that nodes hold in pieces."""
        return self.path / "names"

    @property
    def cut(self) -> Path:
        """The records of one batch at a time, while batches are cut whose candidates are known."""
        return self.path / "cut"

    @property
    def distinct(self) -> Path:
        """The search of equal queries, once each, before the run; see ``millrace.extensions.reuse.equal_queries``."""
        return self.path / "distinct"

    @property
    def programs(self) -> Path:
        """The program on each architecture, by name; only if a job names several."""
        return self.path / "programs.json"

    @property
    def outputs(self) -> Path:
        """State of the outputs after a start that stopped in order; see ``millrace.output.saved_outputs``."""
        return self.path / "outputs.json"

    @property
    def unfit_results(self) -> Path:
        """Results that are inconsistent with others, and are computed again; see ``millrace.output.inconsistent_results``."""
        return self.path / "unfit.json"

    @property
    def written_marker(self) -> Path:
        """Exists once something may have been written to the outputs; see ``millrace.output.output_streams``."""
        return self.path / "written"

    @property
    def completion(self) -> Path:
        """Exists once everything is written; holds a ``RunCompletion``."""
        return self.path / "complete.json"

    @property
    def backup(self) -> Path:
        """Backup of a run that a fresh start is to replace, until nothing can refuse the start any more."""
        return self.path / "earlier"

    def has_results(self) -> bool:
        """Tell whether committed results that a resume could use exist, or may exist."""
        try:
            return any(_core.scan(str(path), False).tasks for path in self.list_journals())
        except (OSError, _core.CorruptJournal):
            return True

    def has_run(self) -> bool:
        return self.manifest.exists()

    def read_manifest(self) -> RunManifest:
        """Read the manifest of the run.

        Raises:
            RefusedError: There is no run.
            CorruptError: The manifest cannot be understood.
        """
        try:
            return read_checksummed(self.manifest, RunManifest, "the manifest of a run", VERSION)
        except FileNotFoundError as error:
            raise RefusedError(
                f"{self.path}: no run here ({error.strerror})",
                "give the .millrace folder of a run; millrace runs lists runs that have ended",
            ) from error

    def write_manifest(self, manifest: RunManifest) -> None:
        write_atomically(self.manifest, encode_checksummed(manifest))

    def read_complete(self, manifest: RunManifest) -> RunCompletion | None:
        """Read the end of the run; None if it was not completed.

        Raises:
            CorruptError: The file is damaged, or of another run.
        """
        try:
            found = read_checksummed(self.completion, RunCompletion, "the end of a run")
        except FileNotFoundError:
            return None
        if found.run_id != manifest.run_id:
            raise CorruptError(f"{self.completion}: is of another run", HINT)
        return found

    def write_complete(self, complete: RunCompletion) -> None:
        write_atomically(self.completion, encode_checksummed(complete))


def delete_entry(path: Path) -> None:
    """Remove the file or folder at ``path``, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a small file atomically and durably: after a crash it is complete or missing."""
    fresh = path.with_name(path.name + ".new")
    if fresh.is_symlink() or not fresh.is_file():
        delete_entry(fresh)  # a folder, a pipe, or a link through which another file would be written
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        fresh.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # an error of writing an open file has no name
        raise
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to disk, where its filesystem can."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # EINVAL: not every filesystem supports it
            os.fsync(folder)
    finally:
        os.close(folder)


def back_up_run(rundir: RunDir) -> None:
    """Make room for a fresh start: delete the content, but keep a run in ``RunDir.backup`` for ``restore_run`` or ``delete_backup``.

    The manifest is moved first: after a kill, the rest is moved back.
    """
    if not _is_folder(rundir.backup):
        delete_entry(rundir.backup)
    if not rundir.manifest.is_file():
        _clear_directory(rundir)
        return
    rundir.backup.mkdir(0o700)
    for entry in reversed(_list_entries(rundir)):
        entry.rename(rundir.backup / entry.name)


def restore_run(rundir: RunDir) -> bool:
    """Restore the run that was set aside, in place of one that has not begun; return whether there was one.

    The manifest is deleted last and restored last.
    """
    if not _is_folder(rundir.backup):
        return False
    manifest = rundir.backup / rundir.manifest.name
    if not manifest.exists():  # all of it is restored, or it is being deleted
        delete_entry(rundir.backup)
        return False
    if rundir.manifest.exists():
        _clear_directory(rundir)
    for entry in sorted(rundir.backup.iterdir(), key=lambda entry: entry == manifest):
        entry.rename(rundir.path / entry.name)
    rundir.backup.rmdir()
    return True


def delete_backup(rundir: RunDir) -> None:
    """Delete the run that was set aside, its manifest first."""
    if _is_folder(rundir.backup):
        delete_entry(rundir.backup / rundir.manifest.name)
    delete_entry(rundir.backup)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _list_entries(rundir: RunDir) -> list[Path]:
    """Return all entries but the lock and ``RunDir.backup``; the manifest last."""
    own = ("lock", "lock.taking", rundir.backup.name)
    return sorted(
        (entry for entry in rundir.path.iterdir() if entry.name not in own), key=lambda entry: entry == rundir.manifest
    )


def _clear_directory(rundir: RunDir) -> None:
    delete_entry(rundir.completion)
    for entry in _list_entries(rundir):
        delete_entry(entry)
