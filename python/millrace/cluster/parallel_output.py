"""The outputs of a job of several processes: the coordinator assigns parts to ranks, and handles no bytes itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.journal_visibility import is_lazy
from millrace.cluster.membership import Membership
from millrace.cluster.write.ways import strategy_of
from millrace.committed import Committed
from millrace.output.order import Ordered
from millrace.output.parts import ExtentWriter, Part, Written, number_of, why_alone
from millrace.output.stage import OrderedWriter
from millrace.output.streams import Streams, destination
from millrace.output.whole import Samples
from millrace.plan.plan import Plan
from millrace.schedule.extents import Extents


def shared(plan: Plan, message: Callable[[str], None]) -> dict[int, int]:
    """Find the outputs that any process may write parts of, each with its inode number (``number_of``).

    Their files exist already. For each other output the user is shown the reason, if ``--write`` names a strategy.

    Raises:
        RefusedError: See ``strategy_of``.
    """
    found: dict[int, int] = {}
    if not strategy_of(plan).shares:
        return found
    cwd = plan.command.cwd
    for stream, output in enumerate(plan.use.outputs):
        reason = why_alone(output, cwd, plan.run_dir)
        path = destination(output, cwd)
        if not reason and path and (number := number_of(path, plan.run_dir)) is not None:
            found[stream] = number
        elif plan.job.write != "auto":
            name = "standard output" if output.path == "-" else output.path
            message(f"{name} is written by the coordinator: {reason}")
    return found


class ParallelOutput:
    """The parallel counterpart of ``millrace.output.stage.OrderedWriter``.

    All calls come from the thread that carries messages. This class queues messages and records received ones, but
    carries none: a caller that waits for the end has to carry them.

    Args:
        streams: All outputs, open at the coordinator.
        candidates: Outputs that all ranks may write, if all of them see the same files.
        journals: The rank of each journal of this start, by path.
    """

    def __init__(
        self, plan: Plan, streams: Streams, candidates: Iterable[int], crew: Membership,
        journals: Mapping[Path, int], wake: Callable[[], None], message: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._crew, self._journals = crew, journals
        cwd, self._strategy = plan.command.cwd, strategy_of(plan)
        in_turn = is_lazy(plan.run_dir)
        self._extents: dict[int, Extents[_core.BlockRef]] = {}
        self._places: dict[int, tuple[str, Path]] = {}
        for stream in candidates:
            output = plan.use.outputs[stream]
            path = destination(output, cwd)
            blind = [rank for rank, sees in sorted(crew.sees.items()) if stream not in sees]
            if blind:
                message(
                    f"{output.path} is written by the coordinator: {crew.name(blind[0])} does not see the same file"
                )
            elif path and (extents := self._strategy.extents(range(crew.world.size), in_turn=in_turn)):
                self._extents[stream] = extents
                self._places[stream] = (output.name, path)
        streams.leave(self._extents)
        self._samples = {stream: Samples() for stream in self._extents}
        self._numbers = {stream: number_of(path, plan.run_dir) for stream, (_, path) in self._places.items()}
        self._run_dir = plan.run_dir
        self._changed: dict[str, str] = {}
        self._alone = OrderedWriter(streams, wake)
        self._own = ExtentWriter(plan.use.outputs, cwd, lasting=in_turn, seconds=plan.job.sync, wake=wake)
        if self._places:
            self._strategy.open(crew, {stream: path for stream, (_, path) in self._places.items()}, self._own)
        self._ordered: Ordered[Committed] = Ordered()
        self._draining = self._settling = False

    @property
    def error(self) -> BaseException | None:
        """The error after which nothing more is written."""
        return self._alone.error or self._own.error

    def put(self, task: Committed) -> None:
        """See ``OrderedWriter``."""
        self._alone.put(task)
        for _, _, ready in self._ordered.push(task.first, task.last, task):
            for block in ready.blocks:
                if extents := self._extents.get(block.stream):
                    extents.add(block, self._journals.get(block.journal))
                    self._samples[block.stream].add(block)

    # Messages

    def turn(self, now: float) -> None:
        """Assign the parts that can be written now to ranks."""
        for written in self._own.take():
            self._note(written)
        self._strategy.turn()
        for stream, extents in self._extents.items():
            if self._settling:
                break
            for write in extents.turn(now, last=self._draining):
                part = Part(stream, write.number, write.pieces, write.held, self._strategy.together)
                if write.rank:
                    self._crew.tell(write.rank, say.Write(part))
                else:
                    self._own.put(part)
            for write in extents.released():
                if write.rank:
                    self._crew.tell(write.rank, say.WriteNow(stream, write.number))
                else:
                    self._own.release(stream, write.number)

    def heard(self, found: Sequence[Written]) -> None:
        """Record parts that another process has written."""
        for written in found:
            self._note(written)

    def waits(self, stream: int) -> None:
        """Record that another process waits in a collective write."""
        self._strategy.waits(stream)

    def _note(self, written: Written) -> None:
        for stream, number in written.parts:
            self._extents[stream].written(number)
        for stream, number in written.safe:
            self._extents[stream].safe([number])

    def lost(self, rank: int) -> None:
        """Drop a lost process; reassign the parts that it may not have written."""
        self._strategy.lost(rank)
        for extents in self._extents.values():
            extents.lost(rank)

    # The end

    def drain(self, timeout_seconds: float) -> int | None:
        """See ``OrderedWriter``; never waits, as the others can only write while the caller carries messages."""
        self._draining = True
        done = self._alone.drain(0)
        if self.error or (done is not None and all(each.written_all for each in self._extents.values())):
            return self._ordered.next
        return None

    def settle(self, carry: Callable[[float], object]) -> None:
        """Begin no more writes, and finish the collective writes in progress.

        Args:
            carry: Carries messages, for at most the given seconds.
        """
        self._settling = True
        self._strategy.settle(self._is_writing, lambda: self.error is not None, carry)

    def _is_writing(self) -> bool:
        return any(each.writing for each in self._extents.values())

    def finish(self) -> dict[str, int]:
        """See ``OrderedWriter``; to be called after the others have synced their parts."""
        self._own.close()
        sizes = {}
        for stream, extents in self._extents.items():
            name, path = self._places[stream]
            for rank in {0, *self._crew.gone}:
                extents.rank_is_safe(rank)
            self._strategy.check_end(self._crew, path)
            sizes[name] = extents.size
            if number_of(path, self._run_dir) != self._numbers[stream]:
                self._changed[name] = "is another file now" if path.exists() else "is gone"
                continue
            if left := extents.unsafe():  # written by ranks that were lost at the very end
                again = _core.PartWriter(str(path))
                for write in left:
                    again.write(write.pieces)
                again.sync()
            if words := self._samples[stream].difference(path):
                self._changed[name] = words
            with path.open("r+b") as file:
                file.truncate(extents.size)  # an earlier run may have left a longer file
                os.fsync(file.fileno())
        return sizes | self._alone.finish()

    def changed(self) -> dict[str, str]:
        """See ``OrderedWriter``."""
        return self._changed | self._alone.changed()
