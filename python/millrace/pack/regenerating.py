"""Comparison of a regenerated result with the outputs in the journals of a run, without a file of either."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from millrace.errors import ExitCode, MillraceError
from millrace.launch.supervisor_link import Supervision
from millrace.output.gather import gather
from millrace.pack import queries
from millrace.pack.between import Between
from millrace.pack.difference import Appended
from millrace.pack.hits import Hits
from millrace.pack.packing import Packing
from millrace.pack.pipes import PipeEnds, piped
from millrace.pack.recipe import Recipe
from millrace.plan.plan import Plan
from millrace.session import carry_out


def compare(
    packing: Packing, made: Recipe, found: Sequence[Hits], written: Plan, folder: Path, writer: Appended
) -> None:
    """Append the differences between the outputs of a run and the regeneration from its hits.

    Args:
        written: Plan of the run, whose journals have the outputs.
        folder: An empty folder for the regeneration.

    Raises:
        MillraceError: The regeneration fails, or a journal cannot be read.
    """
    batches = list(queries.batches(packing.queries, packing.item, (each.queries for each in found), folder / "batch"))
    regenerated, original = ([PipeEnds() for _ in written.use.outputs] for _ in range(2))
    again = packing.regeneration(folder, packing.queries, made, batches, found, regenerated)
    volatile = [(*use.volatile, *packing.codec.volatile(use)) for use in again.use.outputs]
    between = [Between(writer, number, each) for number, each in enumerate(volatile)]
    journals = [_Replay(written, number, ends) for number, ends in enumerate(original)]
    failing = _failing(between)
    with piped(original, [failing(each.ours) for each in between], _nothing):
        with piped(regenerated, [failing(each.theirs) for each in between], _nothing):
            for journal in journals:
                journal.start()
            failing(_run)(again)
        for journal in journals:
            journal.finish()


def _run(plan: Plan) -> None:
    finished = carry_out.run(plan, Supervision({}))
    if finished.code != ExitCode.DONE:
        raise MillraceError(f"what is packed could not be regenerated: {finished.text}")


def _failing(between: Sequence[Between]) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Return a decorator for functions whose failure must end the waits in ``between``."""

    def with_end(function: Callable[[Any], None]) -> Callable[[Any], None]:
        def called(given: Any) -> None:
            try:
                function(given)
            except BaseException as error:
                for each in between:
                    each.give_up(error)
                raise

        return called

    return with_end


class _Replay(threading.Thread):
    """A thread that gathers one output of a run from its journals into a pipe."""

    def __init__(self, run: Plan, output: int, pipe: PipeEnds) -> None:
        super().__init__(name=f"replay {output}", daemon=True)
        self._arguments = (run.run_dir, run.use.outputs[output].name, pipe.path)
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            gather(*self._arguments, ignore_errors=False)
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        self.join()
        if self._error:
            raise self._error


def _nothing() -> None:
    pass
