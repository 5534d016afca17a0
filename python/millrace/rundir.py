"""The run directory: manifest, lock, journal, events, quarantine. All that a resume needs."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from millrace import _core
from millrace.errors import CorruptError, RefusedError
from millrace.lock import HeldError, Lock, is_held, take
from millrace.model import Frozen, ToolUse
from millrace.own import why_not_own
from millrace.sealed import HINT, seal, unseal

#: Layout version of the manifest.
VERSION = 1

#: How names of files begin that are removed while they are open: on NFS, and on filesystems in user space.
STILL_OPEN = (".nfs", ".fuse_hidden")

#: Names of journals: of a run on one machine, and of a rank in the n-th start on several.
_JOURNAL = re.compile(r"journal(?:-(\d+)-(\d+))?\.mrj")


class Manifest(Frozen, frozen=True):
    """What a run is: equal manifests mean that an earlier result may be used."""

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
    #: Fingerprint of everything that the result depends on, by what it is.
    fingerprints: dict[str, str]
    #: `millrace.plan.world.identity` at the last start; empty: something has changed since, and what was not yet sure in
    #: the journals is not to be used.
    world: str = ""


class Complete(Frozen, frozen=True):
    """How a run ended that got to its end."""

    run_id: str
    #: Bytes of each output.
    outputs: dict[str, int]
    #: Whether the user wants the directory kept.
    kept: bool


@dataclass(frozen=True)
class RunDir:
    """Paths in a run directory; makes nothing by itself."""

    path: Path

    @property
    def manifest(self) -> Path:
        return self.path / "job.json"

    @property
    def journal(self) -> Path:
        """The journal of a run on one machine."""
        return self.path / "journal.mrj"

    def journal_of(self, start: int, rank: int) -> Path:
        """The journal of one rank in one start on several machines.

        Each has a file of its own, which nobody ever opens again to write: a rank that was taken for dead and is
        not can do no harm, and no lock is needed, which not every shared filesystem has.
        """
        return self.path / f"journal-{start}-{rank}.mrj"

    def journals(self) -> list[Path]:
        """All journals, in the order of the starts that wrote them."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.path):
                if match := _JOURNAL.fullmatch(name):
                    found.append((int(match[1] or 0), int(match[2] or 0), self.path / name))
        return [path for _, _, path in sorted(found)]

    def next_start(self) -> int:
        """A number for `journal_of` that no start had before."""
        starts = [int(match[1] or 0) for path in self.journals() if (match := _JOURNAL.fullmatch(path.name))]
        return max(starts, default=0) + 1

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def quarantine(self) -> Path:
        return self.path / "quarantine"

    @property
    def programs(self) -> Path:
        """What the program is on each architecture, by the name of it; only where a job names several."""
        return self.path / "programs.json"

    @property
    def outputs(self) -> Path:
        """How outputs were left by a start that stopped in order; see `millrace.output.left`."""
        return self.path / "outputs.json"

    @property
    def unfit(self) -> Path:
        """Results that do not fit the others, and are computed again; see `millrace.output.unfit`."""
        return self.path / "unfit.json"

    @property
    def complete(self) -> Path:
        """Exists once everything is written; holds a `Complete`."""
        return self.path / "complete.json"

    def lock(self, mode: int = 0o700, job: str = "", *, fresh: bool = False) -> Lock:
        """Make the directory if needed and take it for this process.

        Args:
            mode: With which it is made, if it is not there.
            job: See `millrace.lock.take`.
            fresh: Whatever is in it is to go, also a folder in the place of the lock.

        Raises:
            RefusedError: Another process has it, or it is something else's.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RefusedError(f"{self.path}: is not a folder", "name another with --run-dir")
        if name := self.foreign():
            raise RefusedError(
                f"{self.path}: holds {name}, which is not of a run", "name another folder with --run-dir"
            )
        while True:
            try:
                self.path.mkdir(mode, parents=True, exist_ok=True)
                # Another's could hold results that nobody computed, and links to files of this user.
                if why := why_not_own(self.path):
                    raise RefusedError(f"{self.path}: {why}", "name another folder with --run-dir")
                lock = take(self.path / "lock", job)
                with contextlib.suppress(OSError):
                    _delete(self._old_lock)
                return lock
            except FileNotFoundError:
                continue  # an ending run removed the folder just now
            except HeldError as error:
                raise RefusedError(
                    f"{self.path}: another millrace ({error.words}) is running this now",
                    f"wait for it, or look at it with: millrace status {self.path}",
                ) from error
            except IsADirectoryError as error:
                if fresh:
                    _delete(self.path / "lock")
                    continue
                raise RefusedError(f"{self.path / 'lock'}: is a folder, not the lock of a run", HINT) from error
            except OSError as error:
                raise RefusedError(
                    f"{self.path}: {error.strerror}", "name a place that can be written with --run-dir"
                ) from error

    def is_running(self, job: str = "") -> bool:
        """Whether a process that is not of ``job`` has the directory now."""
        return is_held(self.path / "lock", job)

    @property
    def earlier(self) -> Path:
        """Where the run lies that a fresh start is to replace, until nothing can refuse that any more."""
        return self.path / "earlier"

    def set_aside(self) -> None:
        """Make room for a fresh start: what is there goes, but a run waits in `earlier` for `put_back` or `forget`.

        What says that there is a run is moved first: killed halfway, the rest is moved back.
        """
        if not self.manifest.is_file():
            self._clear()
            return
        self.earlier.mkdir(0o700)
        for entry in reversed(self._entries()):
            entry.rename(self.earlier / entry.name)

    def put_back(self) -> bool:
        """Let the run that was set aside be there again, in the place of one that has not begun; whether there was one.

        What says that there is a run goes last and comes last.
        """
        if not self.earlier.is_dir():
            return False
        manifest = self.earlier / self.manifest.name
        if manifest.exists() and self.manifest.exists():
            self._clear()
        for entry in sorted(self.earlier.iterdir(), key=lambda entry: entry == manifest):
            entry.rename(self.path / entry.name)
        self.earlier.rmdir()
        return True

    def forget(self) -> None:
        """The run that was set aside is not wanted any more."""
        _delete(self.earlier)

    def _entries(self) -> list[Path]:
        """All but the lock and `earlier`; what says that there is a run last."""
        own = ("lock", "lock.taking", self.earlier.name)
        return sorted(
            (entry for entry in self.path.iterdir() if entry.name not in own), key=lambda entry: entry == self.manifest
        )

    def _clear(self) -> None:
        _delete(self.complete)
        for entry in self._entries():
            _delete(entry)

    def remove(self) -> None:
        """Remove the directory of a run that is done.

        What says so goes last: killed halfway, the next start finds a complete run and removes the rest.
        """
        for entry in self.path.iterdir():
            if entry.name not in ("lock", self.manifest.name, self.complete.name):
                _delete(entry)
        for path in (self.manifest, self.complete):
            path.unlink(missing_ok=True)
        # A network filesystem keeps a file that is open, as this process has the lock, under another name where it was.
        lock = self._old_lock
        try:
            (self.path / "lock").rename(lock)
        except OSError:
            lock = self.path / "lock"  # not a folder to write in
        _delete(lock)  # of which somebody may have made a folder
        _remove_folder(self.path)

    @property
    def _old_lock(self) -> Path:
        """The name of the lock in the last moments of a run; killed in them, it leaves it to the next start."""
        return self.path.with_name(f".{self.path.name}.done")

    def holds_results(self) -> bool:
        """Whether something was committed that a resume could use, or may have been."""
        try:
            return any(_core.scan(str(path), False).tasks for path in self.journals())
        except (OSError, _core.CorruptJournal):
            return True

    def holds_a_run(self) -> bool:
        return self.manifest.exists()

    def foreign(self) -> str:
        """Name of an entry that is none of ours, or empty: such a folder is not used, and never cleared."""
        ours = {"lock", "lock.taking", "job.json", "job.json.new", "events.jsonl", "quarantine", "complete.json",
                "complete.json.new", "programs.json", "programs.json.new", "outputs.json", "outputs.json.new", "unfit.json", "unfit.json.new", "report.html",
                "report.html.new", "earlier"}  # fmt: skip
        try:
            names = os.listdir(self.path)
            return next(
                (
                    name
                    for name in names
                    if name not in ours
                    and not _JOURNAL.fullmatch(name.removesuffix(".new"))
                    and not name.startswith(STILL_OPEN)
                ),
                "",
            )
        except OSError:
            return ""  # not there yet; or not to be read, which taking the lock tells

    def read_manifest(self) -> Manifest:
        """Read what the run is.

        Raises:
            RefusedError: There is no run.
            CorruptError: The manifest cannot be understood.
        """
        try:
            return unseal(self.manifest, Manifest, "the manifest of a run", VERSION)
        except FileNotFoundError as error:
            raise RefusedError(
                f"{self.path}: no run here ({error.strerror})", "give the .millrace folder of a run"
            ) from error

    def write_manifest(self, manifest: Manifest) -> None:
        write_whole(self.manifest, seal(manifest))

    def read_complete(self, manifest: Manifest) -> Complete | None:
        """How the run ended; None if it has not got to its end.

        Raises:
            CorruptError: The file is not what was written, or of another run.
        """
        try:
            found = unseal(self.complete, Complete, "the end of a run")
        except FileNotFoundError:
            return None
        if found.run_id != manifest.run_id:
            raise CorruptError(f"{self.complete}: is of another run", HINT)
        return found

    def write_complete(self, complete: Complete) -> None:
        write_whole(self.complete, seal(complete))


def _delete(path: Path) -> None:
    """Remove what has this name, if anything has, be it a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    """Remove an empty folder; where files that this process still has open stay under other names, once it closes them."""
    try:
        path.rmdir()
    except OSError:
        if not all(name.startswith(STILL_OPEN) for name in os.listdir(path)):
            raise
        atexit.register(_remove_at_last, path)


def _remove_at_last(path: Path) -> None:
    gc.collect()  # closes what nobody has any more
    with contextlib.suppress(OSError):
        path.rmdir()


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that after a crash it is there whole, or not at all."""
    fresh = path.with_name(path.name + ".new")
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where its filesystem can."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # EINVAL: not every filesystem knows how
            os.fsync(folder)
    finally:
        os.close(folder)
