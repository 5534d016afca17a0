"""Packing of a result while its run goes on: the result itself is never written to a file.

The database is searched in one or more fragments for candidates, which are packed as they are found. At the end the
result is regenerated from the pack and compared with the journals: both go through pipes, and only the differences are
stored. The same command resumes a stopped run and makes the pack again from the journals: no partial pack is kept.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from millrace import __version__, lock, run_folder
from millrace.errors import CorruptError, ExitCode, RefusedError
from millrace.job import Job
from millrace.launch.supervisor_link import Supervision
from millrace.pack import codec as codecs
from millrace.pack import places, recipe, regenerate, regenerating, unpacking
from millrace.pack.codec import NotPackable
from millrace.pack.following import Follower
from millrace.pack.layout import MOST_BYTES, Kind, Writer
from millrace.pack.packing import Packing, Wishes, write_queries
from millrace.pack.pipes import PipeEnds, piped, through_pipes
from millrace.pack.plain import Packed
from millrace.pack.recipe import Original, Recipe
from millrace.plan.plan import Plan
from millrace.rundir import RunDir
from millrace.session import carry_out
from millrace.session.finished import Finished
from millrace.tools import registry

#: Longest wait for a process that only probes the lock.
LOOK_SECONDS = 2.0


class Place:
    """The files beside a pack while it grows; the names are the same at each start."""

    def __init__(self, dest: Path) -> None:
        self.dest = dest
        self.folder = dest.with_name(f".{dest.name}.packing")
        #: The incomplete pack.
        self.growing = self.folder / "pack"
        #: Held by the writing process.
        self.lock = self.folder / "lock"

        #: Folder of the regeneration.
        self.again = self.folder / "again"

    def clear(self) -> None:
        """Remove the files of a start that was killed."""
        self.growing.unlink(missing_ok=True)
        shutil.rmtree(self.again, ignore_errors=True)
        self.again.mkdir()

    def remove(self) -> None:
        """Remove all files; call this only with the lock held. The folder itself may stay until the lock is closed."""
        shutil.rmtree(self.folder, ignore_errors=True)


def job_for(job: Job, dest: Path) -> Job:
    """Return ``job`` as it is run for packing: its run directory is kept, and a failing record stops it."""
    family = codecs.find(registry.MODULES.get(Path(job.command[0]).name, ""))
    return msgspec.structs.replace(
        job, command=tuple(family.simpler(job.command)) if family else job.command, run_dir=job.run_dir or f"{dest}.millrace",
        keep_run_dir=True, on_failure="stop", verify=0.0 if family else job.verify,
    )  # fmt: skip


def run(
    plan: Plan, dest: Path, wishes: Wishes, say: Callable[[str], None], *, keep: bool
) -> tuple[Finished, Packed | None]:
    """Run ``plan``, made from the job of ``job_for``, and pack its outputs into ``dest``.

    Args:
        keep: Whether the user wants the run directory kept.

    Returns:
        The end of the run, and the summary of the pack; None if the run has failed.

    Raises:
        MillraceError: The run was not completed, or the pack cannot be written; the same command resumes.
    """
    place = Place(dest)
    if any(each.layout != "file" for each in plan.use.outputs) or not 0 < len(plan.use.outputs) <= 16:
        raise RefusedError("the command writes other than a few single files, which no pack holds", "run it without --pack-to")  # fmt: skip
    with ExitStack() as stack:
        places.take_folder(place.folder)
        stack.callback(places.remove_emptied, place.folder)  # when the lock in it is closed
        try:
            stack.callback(places.taken(place.lock, LOOK_SECONDS).close)
        except lock.HeldError as error:
            raise RefusedError(f"{dest}: another millrace ({error.words}) is packing into it", "wait for it") from error
        place.clear()
        stack.callback(place.remove)
        return _Live(plan, place, wishes, say).run(keep=keep)


class _Live:
    def __init__(self, plan: Plan, place: Place, wishes: Wishes, say: Callable[[str], None]) -> None:
        self._place, self._wishes, self._say = place, wishes, say
        blank = tuple(Original(name=use.name, bytes=0, sha256=recipe.UNKNOWN) for use in plan.use.outputs)
        self._packing: Packing | None = None
        self._why, use = "", plan.use
        try:
            self._packing = Packing(plan, (), blank, place.dest, wishes, say)
            use = use if use.fragmented else regenerate.in_one_fragment(use, plan.command)
            self._made = self._packing.recipe()
        except (NotPackable, RefusedError) as error:
            self._packing, self._why, use = None, error.message, plan.use
            self._made = Recipe(codec="zstd", millrace=__version__, outputs=blank)
        self._pipes = [PipeEnds() for _ in use.outputs]
        self._plan = through_pipes(msgspec.structs.replace(plan, use=use), self._pipes)

    def run(self, *, keep: bool) -> tuple[Finished, Packed | None]:
        writer = Together(Writer(self._place.dest, self._place.growing))
        try:
            writer.add(Kind.RECIPE, recipe.encode(self._made))
            finished, outputs = self._packed(writer, self._packing) if self._packing else self._plain(writer)
            if finished.code != ExitCode.DONE:
                return finished, None
            writer.add(Kind.OUTPUTS, recipe.encode_outputs(outputs))
            writer.finish(lambda path: self._check(path, outputs))
        finally:
            writer.give_up()
        if not keep:
            run_folder.remove(RunDir(self._plan.run_dir))
        sizes = writer.sizes
        return finished, Packed(
            sum(each.bytes for each in outputs), writer.size, sizes.get(Kind.HITS, 0), sizes.get(Kind.DIFFERENCE, 0), self._why
        )  # fmt: skip

    def _plain(self, writer: Together) -> tuple[Finished, tuple[Original, ...]]:
        """Run, and pack the outputs as plain bytes."""
        names = [use.name for use in self._plan.use.outputs]
        counted = [Counted(name, Plain(writer, number).take) for number, name in enumerate(names)]
        finished = self._carry_out([each.take for each in counted], _nothing)
        return finished, tuple(each.finish() for each in counted)

    def _packed(self, writer: Together, packing: Packing) -> tuple[Finished, tuple[Original, ...]]:
        """Run, and pack the hits; then the differences of the outputs from their regeneration."""
        if self._wishes.with_queries:
            write_queries(writer, packing.queries)
        counted = [Counted(use.name, _forget) for use in self._plan.use.outputs]
        follower = Follower(self._plan, packing.codec, writer, self._wishes.batch)
        try:
            finished = self._carry_out([each.take for each in counted], follower.begun.set)
            if finished.code == ExitCode.DONE:
                follower.finish()
        finally:
            follower.close()
        outputs = tuple(each.finish() for each in counted)
        if finished.code == ExitCode.DONE:
            self._say("comparing what is packed with what the run has written")
            regenerating.compare(packing, self._made, follower.batches, self._plan, self._place.again, writer)
        return finished, outputs

    def _carry_out(self, takers: Sequence[Callable[[bytes], None]], came: Callable[[], None]) -> Finished:
        """Run the plan, and pass its outputs to ``takers``."""
        with piped(self._pipes, takers, came):
            return carry_out.run(self._plan, Supervision({}))

    def _check(self, pack: Path, outputs: Sequence[Original]) -> None:
        """Check that the pack is complete and has all bytes that the run has written."""
        rundir = RunDir(self._plan.run_dir)
        complete = rundir.read_complete(rundir.read_manifest())
        written = {each.name: each.bytes for each in outputs}
        if unpacking.look(pack).outputs != tuple(outputs) or not complete or complete.outputs != written:
            raise CorruptError(f"{pack}: not all of the result is in it", "this must not happen: please report it")


class Counted:
    """An output whose bytes are counted and passed on."""

    def __init__(self, name: str, take: Callable[[bytes], None]) -> None:
        self._name, self._take, self._size, self._digest = name, take, 0, hashlib.sha256()

    def take(self, data: bytes) -> None:
        """Count and pass on bytes; empty bytes mark the end."""
        self._size += len(data)
        self._digest.update(data)
        self._take(data)

    def finish(self) -> Original:
        """Return name, size and SHA-256 of the output."""
        return Original(name=self._name, bytes=self._size, sha256=self._digest.hexdigest())


class Plain:
    """An output that is packed as plain bytes."""

    def __init__(self, writer: Together, output: int) -> None:
        self._writer, self._note, self._waiting = writer, bytes([output]), bytearray()

    def take(self, data: bytes) -> None:
        """Pack bytes; empty bytes mark the end."""
        self._waiting += data
        while len(self._waiting) >= MOST_BYTES or (self._waiting and not data):
            self._writer.add(Kind.PLAIN, bytes(self._waiting[:MOST_BYTES]), note=self._note)
            del self._waiting[:MOST_BYTES]


class Together:
    """A ``Writer`` to which several threads append."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self._lock = writer, threading.Lock()
        #: Bytes of the sections of each kind.
        self.sizes: dict[Kind, int] = {}
        self.finish, self.give_up = writer.finish, writer.give_up

    @property
    def size(self) -> int:
        """Return the bytes of the pack."""
        return self._writer.size

    def add(self, kind: Kind, data: bytes, reference: bytes = b"", note: bytes = b"") -> int:
        """Append a section, as ``Writer.add`` does."""
        with self._lock:
            size = self._writer.add(kind, data, reference, note)
            self.sizes[kind] = self.sizes.get(kind, 0) + size
            return size


def _forget(_: bytes) -> None:
    pass


def _nothing() -> None:
    pass
