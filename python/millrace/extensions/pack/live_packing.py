"""Packing of a result while its run goes on: the result itself is never written to a file.

The database is searched in one or more fragments for candidates, which are packed as they are found: a follower reads
the journals of the run. At the end the result is regenerated from the pack and compared with the journals: both go
through pipes, and only the differences are stored. The same command resumes a stopped run and makes the pack again
from the journals: no partial pack is kept.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from millrace import __version__, _core
from millrace.adapters import registry
from millrace.core.errors import CorruptError, ExitCode, RefusedError
from millrace.core.job import JobSpec
from millrace.core.journal_blocks import map_blocks
from millrace.core.tasks import SearchTask, decode_task_kind
from millrace.execution import plan_execution
from millrace.execution.resume import FinishedRun
from millrace.extensions.pack import hits, layout, pack_destinations, pack_unpacker, regeneration_run, replay_diff
from millrace.extensions.pack import result_codec as codecs
from millrace.extensions.pack.difference import SectionSink
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.layout import MAX_SECTION_BYTES, OriginalOutput, PackRecipe, PackWriter, SectionKind
from millrace.extensions.pack.pack_destinations import PipeEnds, forward_pipes, redirect_to_pipes
from millrace.extensions.pack.result_codec import NotPackableError, ResultCodec
from millrace.extensions.pack.result_files import PackSummary
from millrace.extensions.pack.result_packer import PackOptions, ResultPacker, pack_queries
from millrace.host import file_lock
from millrace.launch.supervisor_link import SupervisorLink
from millrace.output.output_parts import select_effective_tasks
from millrace.planning.run_plan import RunPlan
from millrace.rundir import ownership
from millrace.rundir.paths import RunDir

#: The journals are read at intervals of at least so many seconds, and of this share of the elapsed time: a long run is
#: read about as often as a short one, so its hits make few sections.
POLL_INTERVAL_SECONDS, POLL_INTERVAL_SHARE = 0.5, 0.02

#: Batches in one section.
MAX_SECTION_BATCHES = 4096


class JournalFollower:
    """A thread that writes the hits of finished batches to a pack, in input order, while the run goes on.

    Args:
        most: Queries up to which neighbours are merged into one batch.
    """

    def __init__(self, plan: RunPlan, codec: ResultCodec, writer: SectionSink, most: int) -> None:
        assert plan.use.fragmented  # what has no candidates is not followed
        self._rundir, self._writer, self._most = RunDir(plan.run_dir), writer, most
        self._fragments = range(1, plan.use.n_fragments + 1)
        self._hits_of = codec.make_candidate_reader(plan.use, plan.command)
        #: Records whose hits are written, or wait to be merged.
        self.reached = 0
        self._waiting: list[BatchHits] = []
        #: The batches that are written.
        self.batches: list[BatchHits] = []
        #: Set once the journals are those of this run.
        self.begun = threading.Event()
        self.error: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._poll_journals, name="pack", daemon=True)
        self._thread.start()

    def write_remaining_hits(self) -> None:
        """Write the remaining hits, after the end of the run.

        Raises:
            MillraceError: The journals cannot be read, or are incomplete.
        """
        self.close()
        if self.error:
            raise self.error
        self._write_new_hits(last=True)

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()

    def _poll_journals(self) -> None:
        started = time.monotonic()
        try:
            while not self._end.wait(max(POLL_INTERVAL_SECONDS, POLL_INTERVAL_SHARE * (time.monotonic() - started))):
                if self.begun.is_set():
                    self._write_new_hits()
        except BaseException as error:
            self.error = error

    def _write_new_hits(self, *, last: bool = False) -> None:
        tasks = [task for path in self._rundir.list_journals() for task in _core.scan(str(path), False).tasks]
        found: dict[tuple[int, int], dict[int, _core.BlockRef]] = {}
        for task in tasks:
            if isinstance(kind := decode_task_kind(task.fragment), SearchTask):
                found.setdefault((task.first, task.last), {}).setdefault(kind.fragment, task.blocks[0])
        fresh: list[BatchHits] = []
        for done in select_effective_tasks(tasks):
            if done.first > self.reached:
                break
            if done.last > self.reached:
                fresh.append(self._collect_batch_hits(done.first, done.last, found))
                self.reached = done.last
        fresh = merge_small_batches([*self._waiting, *fresh], self._most)
        # The last may still become larger.
        self._waiting = [fresh.pop()] if fresh and not last and fresh[-1].queries < self._most else []
        self.batches += fresh
        if len(self.batches) > hits.MAX_BATCHES:
            raise NotPackableError(
                "the result is of more batches of queries than a pack may have", "run it with a larger --batch"
            )
        for at in range(0, len(fresh), MAX_SECTION_BATCHES):
            self._writer.add(SectionKind.HITS, hits.encode_hits(fresh[at : at + MAX_SECTION_BATCHES]))

    def _collect_batch_hits(
        self, first: int, last: int, found: dict[tuple[int, int], dict[int, _core.BlockRef]]
    ) -> BatchHits:
        blocks = found.get((first, last), {})
        if any(fragment not in blocks for fragment in self._fragments):
            raise CorruptError(
                f"{self._rundir.path}: what was found for records {first + 1} to {last} is not in the journals",
                "this must not happen: please report it",
            )
        with map_blocks([blocks[fragment] for fragment in self._fragments]) as texts:
            return self._hits_of(last - first, texts)


def merge_small_batches(batches: Sequence[BatchHits], most: int) -> list[BatchHits]:
    """Merge neighbours that have up to ``most`` queries in all; an entry that several have hit is kept once.

    >>> merge_small_batches([BatchHits(1, [4]), BatchHits(2, [1, 4]), BatchHits(9, [7])], 3)
    [BatchHits(queries=3, entries=[1, 4], more=b''), BatchHits(queries=9, entries=[7], more=b'')]
    """
    found: list[BatchHits] = []
    for batch in batches:
        before = found[-1] if found else None
        if before and before.queries + batch.queries <= most:
            entries = sorted({*before.entries, *batch.entries})
            found[-1] = BatchHits(before.queries + batch.queries, entries, before.more + batch.more)
        else:
            found.append(batch)
    return found


#: Longest wait for a process that only probes the lock.
LOCK_WAIT_SECONDS = 2.0


class LivePackFolder:
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


def make_packable_job(job: JobSpec, dest: Path) -> JobSpec:
    """Return ``job`` as it is run for packing: its run directory is kept, and a failing record stops it."""
    family = codecs.find_result_codec(registry.MODULES.get(Path(job.command[0]).name, ""))
    return msgspec.structs.replace(
        job, command=tuple(family.drop_speed_options(job.command)) if family else job.command, run_dir=job.run_dir or f"{dest}.millrace",
        keep_run_dir=True, on_failure="stop", verify=0.0 if family else job.verify,
    )  # fmt: skip


def run_and_pack(
    plan: RunPlan, dest: Path, wishes: PackOptions, say: Callable[[str], None], *, keep: bool
) -> tuple[FinishedRun, PackSummary | None]:
    """Run ``plan``, made from the job of ``make_packable_job``, and pack its outputs into ``dest``.

    Args:
        keep: Whether the user wants the run directory kept.

    Returns:
        The end of the run, and the summary of the pack; None if the run has failed.

    Raises:
        MillraceError: The run was not completed, or the pack cannot be written; the same command resumes.
    """
    place = LivePackFolder(dest)
    if any(each.layout != "file" for each in plan.use.outputs) or not 0 < len(plan.use.outputs) <= 16:
        raise RefusedError("the command writes other than a few single files, which no pack holds", "run it without --pack-to")  # fmt: skip
    with ExitStack() as stack:
        pack_destinations.claim_folder(place.folder)
        stack.callback(pack_destinations.remove_emptied_folder, place.folder)  # when the lock in it is closed
        try:
            stack.callback(pack_destinations.wait_for_lock(place.lock, LOCK_WAIT_SECONDS).close)
        except file_lock.LockHeldError as error:
            raise RefusedError(f"{dest}: another millrace ({error.words}) is packing into it", "wait for it") from error
        place.clear()
        stack.callback(place.remove)
        return _LivePacker(plan, place, wishes, say).run(keep=keep)


class _LivePacker:
    def __init__(self, plan: RunPlan, place: LivePackFolder, wishes: PackOptions, say: Callable[[str], None]) -> None:
        self._place, self._wishes, self._say = place, wishes, say
        blank = tuple(OriginalOutput(name=use.name, bytes=0, sha256=layout.UNKNOWN) for use in plan.use.outputs)
        self._packing: ResultPacker | None = None
        self._why, use = "", plan.use
        try:
            self._packing = ResultPacker(plan, (), blank, place.dest, wishes, say)
            use = use if use.fragmented else regeneration_run.treat_as_one_fragment(use, plan.command)
            assert use.fragmented  # see ``treat_as_one_fragment``
            # Every batch has candidates, from which the pack is made.
            every = msgspec.structs.replace(use.fragmented, is_for_tail=False)
            use = msgspec.structs.replace(use, fragmented=every)
            self._made = self._packing.make_recipe()
        except (NotPackableError, RefusedError) as error:
            self._packing, self._why, use = None, error.message, plan.use
            self._made = PackRecipe(codec="zstd", millrace=__version__, outputs=blank)
        self._pipes = [PipeEnds() for _ in use.outputs]
        self._plan = redirect_to_pipes(msgspec.structs.replace(plan, use=use), self._pipes)

    def run(self, *, keep: bool) -> tuple[FinishedRun, PackSummary | None]:
        writer = SharedPackWriter(PackWriter(self._place.dest, self._place.growing))
        try:
            writer.add(SectionKind.RECIPE, layout.encode_recipe(self._made))
            finished, outputs = (
                self._pack_by_hits(writer, self._packing) if self._packing else self._pack_as_plain(writer)
            )
            if finished.code != ExitCode.DONE:
                return finished, None
            writer.add(SectionKind.OUTPUTS, layout.encode_outputs(outputs))
            writer.finish(lambda path: self._check_complete(path, outputs))
        finally:
            writer.give_up()
        if not keep:
            ownership.remove_run_directory(RunDir(self._plan.run_dir))
        sizes = writer.sizes
        return finished, PackSummary(
            sum(each.bytes for each in outputs), writer.size, sizes.get(SectionKind.HITS, 0), sizes.get(SectionKind.DIFFERENCE, 0), self._why
        )  # fmt: skip

    def _pack_as_plain(self, writer: SharedPackWriter) -> tuple[FinishedRun, tuple[OriginalOutput, ...]]:
        """Run, and pack the outputs as plain bytes."""
        names = [use.name for use in self._plan.use.outputs]
        counted = [CountedOutput(name, PlainOutput(writer, number).add_bytes) for number, name in enumerate(names)]
        finished = self._carry_out_plan([each.add_bytes for each in counted], _do_nothing)
        return finished, tuple(each.describe_output() for each in counted)

    def _pack_by_hits(
        self, writer: SharedPackWriter, packing: ResultPacker
    ) -> tuple[FinishedRun, tuple[OriginalOutput, ...]]:
        """Run, and pack the hits; then the differences of the outputs from their regeneration."""
        if self._wishes.with_queries:
            pack_queries(writer, packing.queries)
        counted = [CountedOutput(use.name, _discard_bytes) for use in self._plan.use.outputs]
        follower = JournalFollower(self._plan, packing.codec, writer, self._wishes.batch)
        try:
            finished = self._carry_out_plan([each.add_bytes for each in counted], follower.begun.set)
            if finished.code == ExitCode.DONE:
                follower.write_remaining_hits()
        finally:
            follower.close()
        outputs = tuple(each.describe_output() for each in counted)
        if finished.code == ExitCode.DONE:
            self._say("comparing what is packed with what the run has written")
            replay_diff.compare_with_run(packing, self._made, follower.batches, self._plan, self._place.again, writer)
        return finished, outputs

    def _carry_out_plan(self, takers: Sequence[Callable[[bytes], None]], came: Callable[[], None]) -> FinishedRun:
        """Run the plan, and pass its outputs to ``takers``."""
        with forward_pipes(self._pipes, takers, came):
            return plan_execution.run_plan(self._plan, SupervisorLink({}))

    def _check_complete(self, pack: Path, outputs: Sequence[OriginalOutput]) -> None:
        """Check that the pack is complete and has all bytes that the run has written."""
        rundir = RunDir(self._plan.run_dir)
        complete = rundir.read_complete(rundir.read_manifest())
        written = {each.name: each.bytes for each in outputs}
        if pack_unpacker.read_recipe(pack).outputs != tuple(outputs) or not complete or complete.outputs != written:
            raise CorruptError(f"{pack}: not all of the result is in it", "this must not happen: please report it")


class CountedOutput:
    """An output whose bytes are counted and passed on."""

    def __init__(self, name: str, take: Callable[[bytes], None]) -> None:
        self._name, self._take, self._size, self._digest = name, take, 0, hashlib.sha256()

    def add_bytes(self, data: bytes) -> None:
        """Count and pass on bytes; empty bytes mark the end."""
        self._size += len(data)
        self._digest.update(data)
        self._take(data)

    def describe_output(self) -> OriginalOutput:
        """Return name, size and SHA-256 of the output."""
        return OriginalOutput(name=self._name, bytes=self._size, sha256=self._digest.hexdigest())


class PlainOutput:
    """An output that is packed as plain bytes."""

    def __init__(self, writer: SharedPackWriter, output: int) -> None:
        self._writer, self._note, self._waiting = writer, bytes([output]), bytearray()

    def add_bytes(self, data: bytes) -> None:
        """Pack bytes; empty bytes mark the end."""
        self._waiting += data
        while len(self._waiting) >= MAX_SECTION_BYTES or (self._waiting and not data):
            self._writer.add(SectionKind.PLAIN, bytes(self._waiting[:MAX_SECTION_BYTES]), note=self._note)
            del self._waiting[:MAX_SECTION_BYTES]


class SharedPackWriter:
    """A ``PackWriter`` to which several threads append."""

    def __init__(self, writer: PackWriter) -> None:
        self._writer, self._lock = writer, threading.Lock()
        #: Bytes of the sections of each kind.
        self.sizes: dict[SectionKind, int] = {}
        self.finish, self.give_up = writer.finish, writer.discard_unfinished

    @property
    def size(self) -> int:
        """Return the bytes of the pack."""
        return self._writer.size

    def add(self, kind: SectionKind, data: bytes, reference: bytes = b"", note: bytes = b"") -> int:
        """Append a section, as ``PackWriter.add`` does."""
        with self._lock:
            size = self._writer.add(kind, data, reference, note)
            self.sizes[kind] = self.sizes.get(kind, 0) + size
            return size


def _discard_bytes(_: bytes) -> None:
    pass


def _do_nothing() -> None:
    pass
