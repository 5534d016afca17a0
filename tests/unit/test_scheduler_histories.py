"""The rules of the house, in thousands of made-up runs; and each of them noticed as soon as it is broken."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import run_histories
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from millrace.scheduler.batch_lifecycle import BatchLifecycle
from millrace.scheduler.dispatcher import TaskDispatcher
from millrace.scheduler.finish_strategies import RankSharing, SlicedFinish
from millrace.scheduler.fragment_search import FragmentSearch, SearchProgress
from millrace.scheduler.placement import TaskPlacement
from millrace.scheduler.protocol import (
    AttemptResult,
    OutputBatch,
    QuarantineBatch,
    ReleaseBatch,
    ReportRetry,
    RunInterruption,
    SplitBatch,
    StopReason,
    StopRun,
    TaskFailure,
)
from millrace.scheduler.scheduler import BatchScheduler
from millrace.scheduler.verification import OutputVerification, ReleasePieces
from millrace.scheduler.verification_stretches import VerificationStretches

#: Histories in which a planted fault is found, at most.
MOST = 3000


def test_the_rules_hold_in_all_histories() -> None:
    assert run_histories.first_broken(count(), 1000) is None


@pytest.mark.slow
def test_the_rules_hold_in_very_many_histories() -> None:
    assert run_histories.first_broken(count(2000), 50_000) is None


@settings(suppress_health_check=[*HealthCheck])
@given(st.randoms(use_true_random=False))
def test_rules_hold_for_any_choice(choose: random.Random) -> None:
    """The same choices, made by Hypothesis, which looks for the smallest history that breaks a rule."""
    run_histories.Job(choose).run()


Change = Callable[..., Any]


def twice(real: Change) -> Change:
    """Each result is put into the output once more."""

    def changed(self: BatchScheduler, *words: Any) -> Any:
        return [each for action in real(self, *words) for each in [action] * (1 + isinstance(action, OutputBatch))]

    return changed


def loses_the_rest(real: Change) -> Change:
    return lambda self, whole, parts: real(self, whole, parts[:1])


def of_other_records(real: Change) -> Change:
    def changed(self: BatchScheduler, *words: Any) -> Any:
        actions = real(self, *words)
        for k, action in enumerate(actions):
            if isinstance(action, OutputBatch):
                other = run_histories.Ref(action.result.first, action.result.last + 1, 0, list(action.result.blocks))  # type: ignore[arg-type]
                actions[k] = OutputBatch(action.batch, other, action.seconds, action.cpu_seconds)  # type: ignore[arg-type]
        return actions

    return changed


OTHER = TaskFailure(AttemptResult.FAILED)


def tries_for_ever(real: Change) -> Change:
    return lambda self, batch, failure: [self._run(batch, urgent=True)]


def gives_up_at_once(real: Change) -> Change:
    def changed(self: BatchLifecycle, batch: Any, failure: TaskFailure) -> Any:
        return [QuarantineBatch(batch, failure)] if self._batches[batch].records == 1 else real(self, batch, failure)

    return changed


def gives_up_with_others(real: Change) -> Change:
    def changed(self: BatchLifecycle, *words: Any) -> Any:
        return [
            QuarantineBatch(step.batch, OTHER) if isinstance(step, SplitBatch) else step for step in real(self, *words)
        ]

    return changed


def gives_up_unasked(real: Change) -> Change:
    """With --on-failure stop too."""

    def changed(self: BatchLifecycle, *words: Any) -> Any:
        self.stop_on_failure = False
        return real(self, *words)

    return changed


def accuses_the_tool(real: Change) -> Change:
    def changed(self: BatchLifecycle, *words: Any) -> Any:
        return [
            StopRun(step.batch, StopReason.TOOL, OTHER) if isinstance(step, QuarantineBatch) else step
            for step in real(self, *words)
        ]

    return changed


def never(real: Change) -> Change:
    return lambda *words: None


def nothing(real: Change) -> Change:
    return lambda *words: []


def always(real: Change) -> Change:
    def changed(*words: Any) -> bool:
        real(*words)
        return True

    return changed


def goes_on(real: Change) -> Change:
    """The first signal changes nothing."""

    def changed(self: RunInterruption, now: float) -> Any:
        actions = real(self, now)
        self._since = None
        return actions

    return changed


def part_of_it(real: Change) -> Change:
    """A slice is taken for the result."""
    return lambda self, task, ended: (
        real(self, task, ended) or (ended.committed if type(task.kind).__name__ == "SliceTask" else None)
    )


def changes(**changes: Callable[[Any], Any]) -> Callable[[Change], Change]:
    """What is known of a batch for which everything is found is not so."""

    def plant(real: Change) -> Change:
        def changed(*words: Any) -> Any:
            ready = real(*words)
            return ready._replace(**{name: change(getattr(ready, name)) for name, change in changes.items()})

        return changed

    return plant


def forgets_a_share(real: Change) -> Change:
    return lambda self, *words: (real(self, *words) or [])[:-1] or None


def sends_nothing_on(real: Change) -> Change:
    """The tasks of a lost node stay with it."""

    def changed(self: TaskPlacement, node: int, now: float) -> Any:
        back, _ = real(self, node, now)
        return back, []

    return changed


def keeps(real: Change) -> Change:
    """A batch that is done is not released."""
    return lambda self, *words: [step for step in real(self, *words) if not isinstance(step, ReleaseBatch)]


def releases_early(real: Change) -> Change:
    return lambda self, *words: [
        each
        for action in real(self, *words)
        for each in ([action, ReleaseBatch(action.batch)] if isinstance(action, ReportRetry) else [action])
    ]


def keeps_the_whole(real: Change) -> Change:
    """A batch that is divided goes on as a whole, too."""

    def changed(self: BatchLifecycle, whole: Any, parts: Any) -> None:
        item = self._batches[whole]
        real(self, whole, parts)
        self._batches[whole] = item

    return changed


def ignores_other_bytes(real: Change) -> Change:
    return lambda self, rerun, mismatch: real(self, rerun, None)


def accuses_without_cause(real: Change) -> Change:
    """Equal bytes are taken for others, at another stretch."""

    def changed(self: OutputVerification, rerun: Any, mismatch: Any) -> Any:
        self._reruns[rerun].stretch.mismatch = other = run_histories.OTHER_BYTES
        return real(self, rerun, mismatch or other)

    return changed


def tries_a_piece_for_ever(real: Change) -> Change:
    def changed(self: OutputVerification, piece: Any, result: Any) -> Any:
        return (
            real(self, piece, result) if result else self._queue.append(replace(piece, attempt=piece.attempt + 1)) or []
        )

    return changed


def forgets_failures(real: Change) -> Change:
    def changed(self: OutputVerification, *words: Any) -> Any:
        actions, self.n_failed = real(self, *words), 0
        return actions

    return changed


def stays_open(real: Change) -> Change:
    def changed(self: OutputVerification, *words: Any) -> Any:
        self._n_open += 1
        return real(self, *words)

    return changed


def keeps_pieces(real: Change) -> Change:
    return lambda self, *words: [each for each in real(self, *words) if not isinstance(each, ReleasePieces)]


def runs_all_again(real: Change) -> Change:
    """What an earlier run has compared is not used."""

    def changed(self: OutputVerification, *words: Any) -> Any:
        self.earlier = {}
        return real(self, *words)

    return changed


def forgets_bytes(real: Change) -> Change:
    def changed(self: VerificationStretches, *words: Any) -> Any:
        self.kept.clear()
        return real(self, *words)

    return changed


def leaves_out_a_stretch(real: Change) -> Change:
    def changed(self: VerificationStretches, *words: Any, **named: Any) -> Any:
        found = real(self, *words, **named)
        return found[:-1] if len(found) > 1 and not self.release_stretch(found[-1]) else found

    return changed


PLANTED: list[tuple[str, type, str, Callable[[Change], Change]]] = [
    ("a result is put into the output twice", BatchScheduler, "_handle_ended_task", twice),
    ("a part of a split batch is lost", BatchScheduler, "_handle_split", loses_the_rest),
    ("a part of a divided batch is lost", FragmentSearch, "finish_divided", loses_the_rest),
    ("a result is of other records", BatchScheduler, "_handle_ended_task", of_other_records),
    ("a slice is taken for the result", FragmentSearch, "record_done", part_of_it),
    ("a failing batch is tried for ever", BatchLifecycle, "_suspect_record", tries_for_ever),
    (
        "slices that are of no use are tried for ever",
        SearchProgress,
        "make_ready_batch",
        changes(was_sliced=lambda was: False),
    ),
    ("a record is given up at its first failure", BatchLifecycle, "_suspect_record", gives_up_at_once),
    ("records are given up with a culprit", BatchLifecycle, "_suspect_record", gives_up_with_others),
    ("records are given up though the user wants none to be", BatchLifecycle, "_suspect_record", gives_up_unasked),
    ("a tool that works is given up", BatchLifecycle, "_suspect_record", accuses_the_tool),
    ("a failed search is never settled", SearchProgress, "pop_setback", never),
    ("a batch is finished before all is found", SearchProgress, "record_search", always),
    ("a finish has not all candidates", SearchProgress, "make_ready_batch", changes(found=lambda found: found[:-1])),
    ("a batch goes on without its last slice", SlicedFinish, "plan_tasks", forgets_a_share),
    ("slices are written by the ranks of a part", RankSharing, "plan_tasks", forgets_a_share),
    ("several records are written in slices", SearchProgress, "make_ready_batch", changes(n_records=lambda n: 1)),
    ("held batches are never looked at again", BatchLifecycle, "_decide_if_tool_works", nothing),
    ("a ready batch waits for one that is held", BatchLifecycle, "_start_ready_batches", nothing),
    ("new work begins after a signal", RunInterruption, "handle_signal", goes_on),
    ("the tasks of a lost node are lost", TaskPlacement, "remove_node", sends_nothing_on),
    ("a task that was out twice is told of twice", TaskDispatcher, "mark_ended", always),
    ("a batch is not released", BatchLifecycle, "finish_attempt", keeps),
    ("a batch is released before its next attempt", BatchScheduler, "_handle_failed_attempt", releases_early),
    ("a divided batch goes on as a whole, too", BatchLifecycle, "replace_divided_batch", keeps_the_whole),
    ("other bytes do not stop the run", OutputVerification, "record_comparison", ignores_other_bytes),
    ("equal bytes stop the run", OutputVerification, "record_comparison", accuses_without_cause),
    ("output is written before the start is verified", OutputVerification, "should_hold_output", nothing),
    ("a failing piece is tried for ever", OutputVerification, "finish_piece", tries_a_piece_for_ever),
    ("failures of the second run are not counted", OutputVerification, "_end_stretch", forgets_failures),
    ("a stretch stays open", OutputVerification, "_end_stretch", stays_open),
    ("the bytes of a rerun are kept", OutputVerification, "_end_rerun", keeps_pieces),
    ("a piece that is committed runs again", OutputVerification, "add_pieces", runs_all_again),
    ("the bytes of a stretch are dropped", VerificationStretches, "_drop_unneeded", forgets_bytes),
    ("a stretch is left out", VerificationStretches, "pop_ready_stretches", leaves_out_a_stretch),
]


@pytest.mark.parametrize(("what", "owner", "name", "plant"), PLANTED, ids=[each[0] for each in PLANTED])
def test_planted_fault_is_detected(
    what: str, owner: type, name: str, plant: Callable[[Change], Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))
    assert run_histories.first_broken(count(), MOST), what
