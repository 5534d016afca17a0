"""Comparison of a regenerated result with the outputs in the journals of a run, without a file of either."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from millrace.errors import ExitCode, MillraceError
from millrace.launch.supervisor_link import SupervisorLink
from millrace.output.gather import gather_output
from millrace.pack import queries
from millrace.pack.between import StreamDiff
from millrace.pack.difference import SectionSink
from millrace.pack.hits import BatchHits
from millrace.pack.packing import ResultPacker
from millrace.pack.pipes import PipeEnds, forward_pipes
from millrace.pack.recipe import PackRecipe
from millrace.plan.plan import RunPlan
from millrace.session import carry_out


def compare_with_run(
    packing: ResultPacker,
    made: PackRecipe,
    found: Sequence[BatchHits],
    written: RunPlan,
    folder: Path,
    writer: SectionSink,
) -> None:
    """Append the differences between the outputs of a run and the regeneration from its hits.

    Args:
        written: Plan of the run, whose journals have the outputs.
        folder: An empty folder for the regeneration.

    Raises:
        MillraceError: The regeneration fails, or a journal cannot be read.
    """
    batches = list(
        queries.cut_query_batches(packing.queries, packing.item, (each.queries for each in found), folder / "batch")
    )
    regenerated, original = ([PipeEnds() for _ in written.use.outputs] for _ in range(2))
    again = packing.plan_regeneration(folder, packing.queries, made, batches, found, regenerated)
    volatile = [(*use.volatile, *packing.codec.list_volatile_patterns(use)) for use in again.use.outputs]
    between = [StreamDiff(writer, number, each) for number, each in enumerate(volatile)]
    journals = [_JournalReplay(written, number, ends) for number, ends in enumerate(original)]
    failing = _make_abort_wrapper(between)
    with forward_pipes(original, [failing(each.add_output) for each in between], _do_nothing):
        with forward_pipes(regenerated, [failing(each.add_regenerated) for each in between], _do_nothing):
            for journal in journals:
                journal.start()
            failing(_run_plan)(again)
        for journal in journals:
            journal.join_and_raise()


def _run_plan(plan: RunPlan) -> None:
    finished = carry_out.run_plan(plan, SupervisorLink({}))
    if finished.code != ExitCode.DONE:
        raise MillraceError(f"what is packed could not be regenerated: {finished.text}")


def _make_abort_wrapper(between: Sequence[StreamDiff]) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Return a decorator for functions whose failure must end the waits in ``between``."""

    def with_end(function: Callable[[Any], None]) -> Callable[[Any], None]:
        def called(given: Any) -> None:
            try:
                function(given)
            except BaseException as error:
                for each in between:
                    each.abort_both_sides(error)
                raise

        return called

    return with_end


class _JournalReplay(threading.Thread):
    """A thread that gathers one output of a run from its journals into a pipe."""

    def __init__(self, run: RunPlan, output: int, pipe: PipeEnds) -> None:
        super().__init__(name=f"replay {output}", daemon=True)
        self._arguments = (run.run_dir, run.use.outputs[output].name, pipe.path)
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            gather_output(*self._arguments, ignore_errors=False)
        except BaseException as error:
            self._error = error

    def join_and_raise(self) -> None:
        self.join()
        if self._error:
            raise self._error


def _do_nothing() -> None:
    pass
