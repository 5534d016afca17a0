"""Second looks: stretches of the input are run again at other boundaries, and the joined bytes are compared.

What a second run writes is committed like a result, as what a task of kind `millrace.tasks.Compare` wrote: so it works
wherever tasks work, and a run that is resumed goes on with what it has.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millrace import _core
from millrace.committed import Committed
from millrace.errors import UnverifiedError
from millrace.model import OutputUse
from millrace.node.feed import Batch, Skipped
from millrace.node.spool import recut
from millrace.plan.plan import Plan, doubts, is_unknown
from millrace.report.words import count
from millrace.schedule.differences import Difference, first_difference, looks_like, shown
from millrace.schedule.stretches import Extent, Short, Stretches, variants

#: How often a piece is tried that fails: a sound tool may fail on a part alone, and is not accused for that.
TRIES = 2

#: Bytes of an output in which the first line that differs is looked for, and what that looks like.
SHOWN_BYTES = 4 << 20


@dataclass
class Piece:
    """Records of a stretch that are run again in one go."""

    batch: Batch
    #: Which way of which stretch it belongs to.
    way: _Way
    attempt: int = 1
    #: What it gave; None: nothing yet, or it failed.
    task: Committed | None = None


@dataclass
class _Way:
    """All pieces of a stretch that is run again in one way."""

    stretch: _Stretch
    pieces: list[Piece]
    n_open: int = 0


@dataclass
class _Stretch:
    batches: tuple[Extent, ...]
    #: Ways in which it is still to be run again, one after another: each in pieces of so many records.
    ways: list[list[int]]
    #: Ways in which it gave the same bytes.
    n_equal: int = 0
    found: _Found | None = None


@dataclass(frozen=True)
class _Found:
    """What differs in one output."""

    output: str
    then: list[bytes]
    now: list[bytes]
    records: Extent
    difference: Difference


@dataclass
class Verifier:
    """Told what the engine does, it asks for pieces to be run; ``error`` is set when bytes differ.

    Args:
        stretches: What is looked at; see `stretches`.
        spool: Where the bytes of batches are.
        looks: What an earlier run wrote for comparison, by its records.
        results: What an earlier run committed, by its first record.
    """

    plan: Plan
    stretches: Stretches
    spool: Path
    looks: Mapping[Extent, Committed]
    results: Mapping[int, Committed]
    error: UnverifiedError | None = None
    #: Stretches that were not compared as the second run failed.
    n_failed: int = 0
    _total: int | None = None
    _kept: dict[Extent, tuple[Batch, Committed]] = field(default_factory=dict)
    _queue: list[Piece] = field(default_factory=list)
    _at_work: int = 0
    _serial: int = 0

    # What happens

    def cut(self, batch: Batch) -> None:
        """A batch was cut."""
        self.stretches.cut(batch.first, batch.last)

    def skipped(self, skipped: Skipped) -> None:
        """An earlier run committed this."""
        task = self.results.get(skipped.first)
        if skipped.batch and task and not task.quarantined:
            self.cut(skipped.batch)
            self.committed(skipped.batch, task, 0.0, 0.0)
        else:
            self.stretches.passed(skipped.first, skipped.last)
        for path in skipped.batch.spooled if skipped.batch else ():
            path.unlink(missing_ok=True)

    def committed(self, batch: Batch, task: Committed, seconds: float, cpu_seconds: float) -> None:
        """A batch is committed; its files are about to be removed."""
        extent = (batch.first, batch.last)
        self.stretches.committed(*extent, seconds, batch.bytes, cpu_seconds)
        if extent in self.stretches.kept:
            self._kept[extent] = (self._linked(batch), task)
        self._drop()

    def given_up(self, batch: Batch) -> None:
        """Records were given up."""
        self.stretches.given_up(batch.first, batch.last)

    def ended(self, records: int) -> None:
        """All of the input is cut."""
        self._total = records

    def _linked(self, batch: Batch) -> Batch:
        """The batch with names of its own for its files."""
        paths = []
        for path in batch.spooled:
            paths.append(path.with_name(f"kept-{batch.first}-{path.name}"))
            if path.exists():  # not so for files that are records
                os.link(path, paths[-1])
        return Batch(batch.first, batch.last, batch.units, batch.bytes, batch.digests, tuple(paths), batch.files)

    def _drop(self) -> None:
        for extent in self._kept.keys() - self.stretches.kept.keys():
            _remove(self._kept.pop(extent)[0])

    # What is to be run

    @property
    def done(self) -> bool:
        return not self._at_work and not self._queue

    def take(self, *, done: bool) -> list[Piece]:
        """Pieces to be run now; ``done``: everything is committed or given up."""
        for batches in self.stretches.ready(self._total, done=done):
            self._begin(batches)
        self._drop()
        pieces, self._queue = self._queue, []
        return pieces

    def holds_back(self) -> bool:
        """Whether nothing may be written yet, as the start of the input is being looked at."""
        return self.error is not None or self.stretches.start_is_open

    def is_urgent(self, piece: Piece) -> bool:
        """The start is looked at before anything else, so that a run that is not right ends soon."""
        stretch = piece.way.stretch
        return stretch.batches[0][0] == 0 or stretch.found is not None

    def _begin(self, batches: tuple[Extent, ...]) -> None:
        seconds = sum(self.stretches.kept[each] for each in batches)
        at_end = batches[-1][1] == self._total
        ways = variants(
            batches, seconds, at_start=batches[0][0] == 0, at_end=at_end, whole=self.plan.use.cost.max_records != 1
        )
        self._at_work += 1
        self._go_on(_Stretch(batches, ways))

    def _go_on(self, stretch: _Stretch) -> None:
        if stretch.ways:
            self._add_way(stretch, stretch.ways.pop(0))
        else:
            self._settle(stretch)

    def _add_way(self, stretch: _Stretch, sizes: Sequence[int]) -> None:
        use, job, cwd = self.plan.use, self.plan.job, self.plan.command.cwd
        self._serial += 1
        name = self.spool / f"look-{self._serial}"
        batches = [self._kept[each][0] for each in stretch.batches]
        found = recut(batches, sizes, use.inputs, cwd, job.record_start, job.record_end, name)
        way = _Way(stretch, [])
        way.pieces = [Piece(batch, way) for batch in found]
        for piece in way.pieces:
            piece.task = self.looks.get((piece.batch.first, piece.batch.last))
            if not piece.task:
                way.n_open += 1
                self._queue.append(piece)
        if not way.n_open:
            self._end_way(way)

    def looked(self, piece: Piece, task: Committed | None) -> None:
        """A piece was run; ``task`` is what it gave, None if it failed."""
        if not task and piece.attempt < TRIES:
            piece.attempt += 1
            self._queue.append(piece)
            return
        piece.task = task
        piece.way.n_open -= 1
        if not piece.way.n_open:
            self._end_way(piece.way)

    # What it shows

    def _end_way(self, way: _Way) -> None:
        stretch = way.stretch
        for piece in way.pieces:
            _remove(piece.batch)
        if way.pieces and all(piece.task for piece in way.pieces):
            self._judge(stretch, way)
        self._go_on(stretch)

    def _judge(self, stretch: _Stretch, way: _Way) -> None:
        found = self._compared(stretch, way)
        if not found:
            stretch.n_equal += 1
        elif [(piece.batch.first, piece.batch.last) for piece in way.pieces] == [*stretch.batches]:
            self._accuse(stretch, stretch.found or found, repeatable=False)
        elif not stretch.found:
            stretch.found = found
            # Other bytes for other pieces: is it the pieces, or is it never the same?
            stretch.ways = [[last - first for first, last in stretch.batches]]

    def _settle(self, stretch: _Stretch) -> None:
        if stretch.found:
            self._accuse(stretch, stretch.found, repeatable=True)
        elif stretch.n_equal:
            self.stretches.equal(stretch.batches)
        else:
            self.n_failed += 1
        self._at_work -= 1
        self.stretches.released(stretch.batches)
        self._drop()

    def _compared(self, stretch: _Stretch, way: _Way) -> _Found | None:
        then = [(each, self._kept[each][1]) for each in stretch.batches]
        now = [((piece.batch.first, piece.batch.last), piece.task) for piece in way.pieces if piece.task]
        for number, output in enumerate(self.plan.use.outputs):
            if found := _compare(number, output, then, now):
                return found
        return None

    def _accuse(self, stretch: _Stretch, found: _Found, *, repeatable: bool) -> None:
        look = looks_like(found.then, found.now, repeatable=repeatable)
        first, last = stretch.batches[0][0], stretch.batches[-1][1]
        at, difference = found.records, found.difference
        how = "in other pieces" if repeatable else "as they were"
        records = f"record {at[0] + 1}" if at[1] == at[0] + 1 else f"records {at[0] + 1} to {at[1]}"
        self.error = self.error or UnverifiedError(
            f"verification failed: {tool_of(self.plan)} gave other bytes for records {first + 1} to {last} when they were run "
            f"again {how}\n"
            f"  {found.output}: first in line {difference.line + 1} of what they give, at {records}\n"
            f"    committed: {shown(difference.then)}\n"
            f"    run again: {shown(difference.now)}\n"
            f"  it looks like: {look.what}",
            f"{look.hint}; --verify 0 lets the output through as it is, which is not the serial tool's",
        )

    def outcome(self, records: int) -> str:
        """What was checked of so many records, in words; empty if there is nothing to say."""
        why = doubts(self.plan.use, tool_of(self.plan))
        unknown = f"{why}: " if why else ""
        share, stretches = self.stretches.share, self.stretches
        if share == 0:
            return f"{unknown}not checked (--verify 0)" if unknown else ""
        if stretches.n_committed == 1 or not records:
            return f"{unknown}nothing to check, as all of the input was one task, which is the serial run itself"
        n = sum(last - first for first, last in stretches.checked)
        failed = f"; {count(self.n_failed, 'stretch')} not, as the tool failed on parts" if self.n_failed else ""
        if not n:
            return f"{unknown}not checked{failed}"
        how = "run again" if self.plan.use.cost.max_records == 1 else "cut elsewhere"
        return f"{unknown}{'checked on' if unknown else 'verified:'} {n:,} of {records:,} records {how}, all bytes equal{failed}"


def tool_of(plan: Plan) -> str:
    """The name of the tool."""
    return Path(plan.command.argv[0]).name


def stretches(plan: Plan, run_id: bytes) -> Stretches:
    """What of the input is looked at: as asked, else a little if the tool, or its version, is not known."""
    share = plan.job.verify
    looks = 0.0 if share is None and not doubts(plan.use, tool_of(plan)) else share
    return Stretches(looks, run_id, divisible=plan.use.cost.max_records != 1)


def short(plan: Plan, run_id: bytes) -> Short | None:
    """What is cut short to be looked at: nothing where the user says how much, or how batches are cut."""
    is_sampled = plan.job.verify is None and is_unknown(plan.use) and plan.use.cost.max_records != 1
    return Short(run_id) if is_sampled and not plan.job.batch_size[0] and not plan.job.batch_size[1] else None


def kept(stretches: Stretches, tasks: Sequence[Committed]) -> frozenset[int]:
    """First records of what an earlier run committed and this one may look at: what it chooses, and the end."""
    found = {task.first for task in tasks[-2:]} if stretches.share != 0 else set[int]()
    reached = 0
    for task in tasks:
        if task.first != reached or task.quarantined:
            stretches.passed(reached, task.first)
        if not task.quarantined and stretches.cut(task.first, task.last):
            found.add(task.first)
        reached = task.last
    return frozenset(found)


def _remove(batch: Batch) -> None:
    for path in batch.spooled:
        path.unlink(missing_ok=True)


Tasks = Sequence[tuple[Extent, Committed]]


def _compare(number: int, output: OutputUse, then: Tasks, now: Tasks) -> _Found | None:
    """What differs in one output, if something does."""
    if output.layout != "file":
        return _compare_named(number, output, then, now)
    before, after = _blocks(number, then), _blocks(number, now)
    if not before and not after:
        return None
    was, is_now = (
        _core.joined(output.join, [(n, block) for _, n, block in each], output.volatile, SHOWN_BYTES)
        for each in (before, after)
    )
    if was == is_now:
        return None
    raw = [[_head(output, n, block)[0] for _, n, block in each] for each in (before, after)]
    difference = first_difference(was[0], is_now[0])
    where = (then[0][0][0], then[-1][0][1])
    if output.join == "concat":
        ends = [_at(difference.offset, each, texts) for each, texts in zip((before, after), raw, strict=True)]
        where = max(first for first, _ in ends), min(last for _, last in ends)
    return _Found(output.name, raw[0], raw[1], where, difference)


def _blocks(number: int, tasks: Tasks) -> list[tuple[Extent, int, _core.BlockRef]]:
    return [
        (extent, extent[1] - extent[0], block)
        for extent, task in tasks
        for block in task.blocks
        if block.stream == number
    ]


def _at(offset: int, blocks: Sequence[tuple[Extent, int, _core.BlockRef]], texts: Sequence[bytes]) -> Extent:
    """The records whose block has the byte ``offset`` of all blocks together."""
    for (extent, _, _), text in zip(blocks, texts, strict=True):
        if offset < len(text):
            return extent
        offset -= len(text)
    return blocks[-1][0] if blocks else (0, 2**63)


def _head(output: OutputUse, n_records: int, block: _core.BlockRef) -> tuple[bytes, int, int]:
    """The first bytes of a block, and length and checksum of all."""
    return _core.joined("concat", [(n_records, block)], output.volatile, SHOWN_BYTES)


def _compare_named(number: int, output: OutputUse, then: Tasks, now: Tasks) -> _Found | None:
    """The same for an output that is several files: the last of a name is what stays."""
    files = [{block.name: _head(output, n, block) for _, n, block in _blocks(number, tasks)} for tasks in (then, now)]
    for name in sorted(files[0].keys() | files[1].keys()):
        was, is_now = files[0].get(name), files[1].get(name)
        if was != is_now:
            where, before, after = (then[0][0][0], then[-1][0][1]), was[0] if was else b"", is_now[0] if is_now else b""
            return _Found(os.fsdecode(name), [before], [after], where, first_difference(before, after))
    return None
