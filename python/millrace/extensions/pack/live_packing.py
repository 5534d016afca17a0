"""Packing of a result while its run goes on: the result itself is never computed here.

The database is searched in one or more fragments for candidates. The nodes list them (``hit_lists``), and the coordinator joins the
lists into sections of the pack, in input order, as they come. A finish elsewhere gives the result from these, as it
would here. So the pack has neither its size nor its digest, but the texts that no other machine gives. The same command resumes
a stopped run and makes the pack again from the journals: no partial pack is kept.
"""

from __future__ import annotations

import dataclasses
import filecmp
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from millrace import __version__
from millrace.adapters import registry
from millrace.core.errors import CorruptError, ExitCode, RefusedError, ToolError
from millrace.core.job import JobSpec
from millrace.core.text_format import format_count
from millrace.execution.resume import FinishedRun
from millrace.extensions.pack import (
    hit_lists,
    hits,
    layout,
    pack_destinations,
    pack_unpacker,
    regeneration_run,
    result_codec,
)
from millrace.extensions.pack import result_codec as codecs
from millrace.extensions.pack.difference import SectionSink
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.layout import MAX_SECTION_BYTES, OriginalOutput, PackRecipe, PackWriter, SectionKind
from millrace.extensions.pack.pack_destinations import PipeEnds, forward_pipes, redirect_to_pipes
from millrace.extensions.pack.result_codec import NotPackableError
from millrace.extensions.pack.result_files import PackSummary
from millrace.extensions.pack.result_packer import PackOptions, ResultPacker, pack_queries
from millrace.host import file_lock
from millrace.launch.sweep import NAME as JOB
from millrace.planning.run_plan import RunPlan
from millrace.rundir import ownership
from millrace.rundir.paths import RunDir

#: Hits are written at intervals of at least so many seconds, and of this share of the elapsed time: those of a long run
#: make about as many sections as those of a short one.
WRITE_INTERVAL_SECONDS, WRITE_INTERVAL_SHARE = 0.5, 0.02

#: Batches in one section.
MAX_SECTION_BATCHES = 4096


class HitCollector:
    """A writer of the hits that arrive from the run, in input order, to a pack.

    Args:
        entries: Entries of the database.
        most: Queries up to which neighbours are merged into one batch.
        verified: Share of the batches that are kept, to verify them.
    """

    def __init__(self, writer: SectionSink, entries: int, most: int, verified: float) -> None:
        self._writer, self._most, self._verified = writer, most, verified
        self._blocks = hit_lists.BlockReader(entries)
        self._started = self._written = time.monotonic()
        #: Batches that no section has yet; the last may still become larger.
        self._waiting: list[BatchHits] = []
        #: Number of queries of each batch that is written.
        self.sizes: list[int] = []
        #: The batches to verify, by their index.
        self.kept: dict[int, BatchHits] = {}
        self.bytes = 0

    def add_bytes(self, data: bytes) -> None:
        """Add bytes of the run's output; empty bytes mark the end.

        Raises:
            NotPackableError: There are too many batches.
            CorruptError: The bytes are not hits.
        """
        self.bytes += len(data)
        self._waiting = merge_small_batches([*self._waiting, *self._blocks.read_batches(data)], self._most)
        if not data:
            self._blocks.check_end()
        now = time.monotonic()
        interval = max(WRITE_INTERVAL_SECONDS, WRITE_INTERVAL_SHARE * (now - self._started))
        if not data or now - self._written > interval or len(self._waiting) > MAX_SECTION_BATCHES:
            self._written = now
            self._write_hits(self._waiting if not data else self._waiting[:-1])
            self._waiting = self._waiting[-1:] if data else []

    def _write_hits(self, batches: Sequence[BatchHits]) -> None:
        for batch in batches:
            n = len(self.sizes)
            if int((n + 1) * self._verified) > int(n * self._verified) or (not n and self._verified):
                self.kept[n] = batch
            self.sizes.append(batch.queries)
        if len(self.sizes) > hits.MAX_BATCHES:
            raise NotPackableError(
                "the result is of more batches of queries than a pack may have", "run it with a larger --batch"
            )
        for at in range(0, len(batches), MAX_SECTION_BATCHES):
            self._writer.add(SectionKind.HITS, hits.encode_hits(batches[at : at + MAX_SECTION_BATCHES]))


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

        #: Folder of regenerations.
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
    plan: RunPlan, dest: Path, wishes: PackOptions, say: Callable[[str], None], carry_out: Callable[[RunPlan], FinishedRun], *, keep: bool,
) -> tuple[FinishedRun, PackSummary | None]:  # fmt: skip
    """Run ``plan``, made from the job of ``make_packable_job``, and pack its outputs into ``dest``.

    Args:
        carry_out: Runs a plan, here or on many nodes.
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
            held = pack_destinations.wait_for_lock(place.lock, LOCK_WAIT_SECONDS, os.environ.get(JOB, ""))
        except file_lock.LockHeldError as error:
            raise RefusedError(f"{dest}: another millrace ({error.words}) is packing into it", "wait for it") from error
        stack.callback(held.close)
        place.clear()
        stack.callback(place.remove)
        return _LivePacker(plan, place, wishes, say, carry_out).run(keep=keep)


class _LivePacker:
    def __init__(
        self, plan: RunPlan, place: LivePackFolder, wishes: PackOptions, say: Callable[[str], None], carry_out: Callable[[RunPlan], FinishedRun],
    ) -> None:  # fmt: skip
        self._place, self._wishes, self._say, self._carry_out = place, wishes, say, carry_out
        blank = tuple(OriginalOutput(name=use.name, bytes=0, sha256=layout.UNKNOWN) for use in plan.use.outputs)
        self._packing: ResultPacker | None = None
        self._why, use = "", plan.use
        try:
            packing = ResultPacker(plan, (), blank, place.dest, wishes, say)
            use = use if use.fragmented else regeneration_run.treat_as_one_fragment(use, plan.command)
            assert use.fragmented  # see ``treat_as_one_fragment``
            # Every batch has candidates, from which the pack is made.
            every = msgspec.structs.replace(use.fragmented, is_for_tail=False)
            use = msgspec.structs.replace(use, fragmented=every)
            self._made = packing.make_recipe()
            self._texts = packing.collect_texts(place.again / "texts", self._made)
            use, self._packing = hit_lists.end_with_hits(use, plan.command), packing
        except (NotPackableError, RefusedError, ToolError) as error:
            self._why, use = error.message, plan.use
            self._made = PackRecipe(codec="zstd", millrace=__version__, outputs=blank)
            if wishes.verify:
                raise RefusedError(f"--verify-pack: the result is compressed with zstd, as {error.message}", "leave --verify-pack out") from error  # fmt: skip
        self._pipes = [PipeEnds() for _ in use.outputs]
        self._plan = redirect_to_pipes(msgspec.structs.replace(plan, use=use), self._pipes)

    def run(self, *, keep: bool) -> tuple[FinishedRun, PackSummary | None]:
        writer = SharedPackWriter(PackWriter(self._place.dest, self._place.growing))
        try:
            writer.add(SectionKind.RECIPE, layout.encode_recipe(self._made))
            finished, packed = (
                self._pack_by_hits(writer, self._packing) if self._packing else self._pack_as_plain(writer)
            )
            if finished.code != ExitCode.DONE:
                return finished, None
        finally:
            writer.give_up()
        if not keep:
            ownership.remove_run_directory(RunDir(self._plan.run_dir))
        return finished, packed

    def _pack_as_plain(self, writer: SharedPackWriter) -> tuple[FinishedRun, PackSummary | None]:
        """Run, and pack the outputs as plain bytes."""
        names = [use.name for use in self._plan.use.outputs]
        counted = [CountedOutput(name, PlainOutput(writer, number).add_bytes) for number, name in enumerate(names)]
        with forward_pipes(self._pipes, [each.add_bytes for each in counted]):
            finished = self._carry_out(self._plan)
        if finished.code != ExitCode.DONE:
            return finished, None
        outputs = tuple(each.describe_output() for each in counted)
        writer.add(SectionKind.OUTPUTS, layout.encode_outputs(outputs))
        written = {each.name: each.bytes for each in outputs}
        writer.finish(lambda path: self._check_complete(path, outputs, written))
        return finished, PackSummary(sum(written.values()), writer.size, why_plain=self._why)

    def _pack_by_hits(self, writer: SharedPackWriter, packing: ResultPacker) -> tuple[FinishedRun, PackSummary | None]:
        """Run, and pack the hits."""
        writer.add(SectionKind.TEXTS, layout.encode_texts(self._texts))
        if self._wishes.with_queries:
            pack_queries(writer, packing.queries)
        assert self._made.database  # its codec has described it
        found = HitCollector(writer, self._made.database.entries, self._wishes.batch, self._wishes.verify)
        with forward_pipes(self._pipes, [found.add_bytes]):
            finished = self._carry_out(self._plan)
        if finished.code != ExitCode.DONE:
            return finished, None
        if found.kept:
            self._verify_batches(packing, found)
        n_queries = sum(found.sizes)
        written = {hit_lists.OUTPUT: found.bytes}
        writer.finish(lambda path: self._check_complete(path, self._made.outputs, written, n_queries))
        told = f"the hits of {format_count(n_queries, 'query')}, from which unpack makes the result"
        return finished, PackSummary(0, writer.size, how=told)

    def _verify_batches(self, packing: ResultPacker, found: HitCollector) -> None:
        """Regenerate some batches, and compare them with what the command itself writes.

        Raises:
            CorruptError: They differ.
        """
        self._say(f"verifying {format_count(len(found.kept), 'batch')} of {len(found.sizes)} by the command itself")
        folder = self._place.again
        sample = folder / "sample"
        (folder / "verified").mkdir()
        batches = list(self._cut_kept_batches(packing, found, sample))
        regenerated = packing.regenerate_outputs(
            folder / "verified", sample, self._made, batches, [*found.kept.values()]
        )
        searched = packing.search_whole(folder / "searched", sample, self._made)
        for use, one, other in zip(self._made.outputs, regenerated, searched, strict=True):
            if not filecmp.cmp(one, other, shallow=False):
                raise CorruptError(
                    f"{self._place.dest}: {use.name}: what is regenerated from the hits of some queries is not what the command writes for them",
                    f"this must not happen: please report it; without --pack-to the result is computed here ({self._plan.run_dir} has the hits)",
                )

    def _cut_kept_batches(
        self, packing: ResultPacker, found: HitCollector, sample: Path
    ) -> Iterator[result_codec.QueryBatch]:
        """Write the queries of the kept batches to ``sample``; yield each as a batch of that file."""
        scratch, first = sample.with_name("batch"), 0
        every = result_codec.cut_query_batches(packing.queries, packing.item, iter(found.sizes), scratch)
        with sample.open("wb") as file:
            for number, batch in enumerate(every):
                if number in found.kept:
                    file.write(scratch.read_bytes())
                    size = batch.last - batch.first
                    yield dataclasses.replace(batch, first=first, last=first + size)
                    first += size

    def _check_complete(
        self, pack: Path, outputs: Sequence[OriginalOutput], written: dict[str, int], records: int | None = None
    ) -> None:
        """Check that the pack is complete and has all bytes, and records, that the run has written."""
        rundir = RunDir(self._plan.run_dir)
        complete = rundir.read_complete(rundir.read_manifest())
        if (
            pack_unpacker.read_recipe(pack).outputs != tuple(outputs)
            or not complete
            or complete.outputs != written
            or (records is not None and complete.records != records)
        ):
            raise CorruptError(
                f"{pack}: the pack does not hold what the run wrote", "this must not happen: please report it"
            )


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
