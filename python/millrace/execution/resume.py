"""State that an earlier run left, the check whether this run may resume it, and the result of a run that reached its end.

The result has an entry in the history, which outlives the run directory.
"""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from millrace import __version__, _core
from millrace.core.errors import RefusedError
from millrace.core.tasks import CommittedRecords, SearchTask, decode_task_kind
from millrace.core.tool_use import ToolUse
from millrace.output.output_parts import select_effective_tasks
from millrace.output.output_streams import resolve_final_path
from millrace.output.saved_outputs import find_lacking_files, read_committed_tasks
from millrace.planning import dependency_files, result_fingerprint
from millrace.planning.program_lookup import is_unknown_tool
from millrace.planning.run_plan import RunPlan
from millrace.report.events import read_events
from millrace.report.summary import RunSummary, summarise_events
from millrace.rundir import paths, run_history
from millrace.rundir.paths import VERSION, RunCompletion, RunDir, RunManifest


class BegunRun(msgspec.Struct, frozen=True):
    """A run that begins, or goes on."""

    manifest: RunManifest
    #: Whether an earlier start of it has left journals.
    resuming: bool = False
    #: The folder in which it was, if it was begun in another one, or with other names of files.
    moved_from: str = ""


def begin_or_resume_run(plan: RunPlan, rundir: RunDir) -> BegunRun:
    """Begin a run in the run directory, or resume the same run.

    Raises:
        RefusedError: It holds another run, and the user did not say ``--fresh``.
    """
    manifest = RunManifest(
        version=VERSION, millrace=__version__, run_id=os.urandom(16).hex(), argv=plan.command.argv,
        cwd=str(plan.command.cwd), exe=str(plan.command.exe), use=_strip_pipes(plan.use), record_start=plan.job.record_start,
        record_end=plan.job.record_end, fingerprints=plan.fingerprints,
        world=dependency_files.digest_file_states(plan.use, plan.command),
        environ=result_fingerprint.digest_environment(plan.command.environ) if is_unknown_tool(plan.use) else {},
    )  # fmt: skip
    if plan.job.fresh or not rundir.has_run():
        paths.back_up_run(rundir)
        rundir.write_manifest(manifest)
        return BegunRun(manifest)
    from millrace.execution import run_comparison

    earlier = rundir.read_manifest()
    changes = run_comparison.describe_changes(earlier, manifest, plan.job.verify)
    if changes:
        first = "type the command as it was to resume that run"
        if earlier.millrace != manifest.millrace:
            first = f"finish it with millrace {earlier.millrace}, which began it"
        raise RefusedError(
            f"{rundir.path}: holds a run that was begun otherwise:\n" + "\n".join(f"  {change}" for change in changes),
            f"{first}, name another --run-dir, or start over with --fresh",
        )
    moved = run_comparison.move_run(earlier, manifest, rundir)
    kept = forget_unsynced_results(moved, manifest.world, rundir)
    return BegunRun(kept, bool(rundir.list_journals()), earlier.cwd if moved is not earlier else "")


def _strip_pipes(use: ToolUse) -> ToolUse:
    """Return ``use`` without the pipes and files through which outputs go in this start alone."""
    outputs = tuple(msgspec.structs.replace(output, to="", part="") for output in use.outputs)
    return msgspec.structs.replace(use, outputs=outputs)


def forget_unsynced_results(manifest: RunManifest, identity: str, rundir: RunDir) -> RunManifest:
    """Drop the unsynced results of an earlier start if databases may have been replaced and restored meanwhile.

    Args:
        identity: Identity of databases and inputs now, to the last detail.
    """
    if manifest.world != identity:
        for path in rundir.list_journals():
            with suppress(_core.CorruptJournal, IsADirectoryError):  # reported when the journal is opened
                _core.forget_unsynced(path)
        manifest = msgspec.structs.replace(manifest, world=identity)
        rundir.write_manifest(manifest)
    return manifest


def restore_fragments(plan: RunPlan, rundir: RunDir) -> RunPlan:
    """Return ``plan`` with the fragments of the run that it resumes, unless the user set their number.

    The earlier decision may have depended on the slots or the memory at that time.
    """
    if plan.job.fragments != "auto" or plan.job.fresh or not rundir.has_run():
        return plan
    earlier = rundir.read_manifest()
    from millrace.execution.run_comparison import move_fragments
    from millrace.planning import run_identity  # few runs need them at the start

    now = run_identity.PlannedRun(
        argv=plan.command.argv, cwd=str(plan.command.cwd), use=plan.use, record_start=plan.job.record_start,
        record_end=plan.job.record_end, fingerprints=plan.fingerprints,
    )  # fmt: skip
    if not run_identity.has_same_words(earlier, now):
        return plan  # refused later
    fragmented = move_fragments(earlier, now)
    if fragmented and fragmented.volumes:  # how many nodes keep them is for this start to say
        kept = plan.use.fragmented.kept if plan.use.fragmented else msgspec.structs.replace(fragmented.kept, share=1.0)
        fragmented = msgspec.structs.replace(fragmented, kept=kept)
    use = msgspec.structs.replace(plan.use, fragmented=fragmented)
    return msgspec.structs.replace(plan, use=use)


def has_all_outputs(plan: RunPlan, rundir: RunDir, manifest: RunManifest, complete: RunCompletion) -> bool:
    """Tell whether all outputs of a complete run still have their size; a non-empty standard output is gone.

    The content of folders is known from the journals: a run that is kept has all of them.
    """
    if complete.kept:
        try:
            if find_lacking_files(plan, read_committed_tasks(rundir, manifest)):
                return False
        except (OSError, _core.CorruptJournal):
            return False  # reported when they are opened
    for output in plan.use.outputs:
        path = resolve_final_path(output, plan.command.cwd)
        size = complete.outputs.get(output.name)
        if path is None:
            if size:
                return False
        elif size is not None and (not path.is_file() or path.stat().st_size != size):
            return False
    return True


def select_tasks(tasks: Sequence[_core.TaskRef], retry_quarantined: bool) -> list[CommittedRecords]:
    """Return the committed tasks that count, in input order; quarantined ones not if they are to be retried."""
    return select_effective_tasks(task for task in tasks if not (retry_quarantined and task.quarantined))


def list_done_extents(tasks: Sequence[CommittedRecords]) -> list[tuple[int, int, Sequence[tuple[int, int]]]]:
    """Return (first, last, digests of the inputs) of committed tasks."""
    return [(task.first, task.last, task.inputs) for task in tasks]


class PartialSearch(msgspec.Struct):
    """A batch that an earlier run has searched in some fragments."""

    first: int
    last: int
    inputs: Sequence[tuple[int, int]]
    #: Candidates by fragment.
    found: dict[int, _core.BlockRef]


def find_partial_searches(tasks: Sequence[_core.TaskRef], done: Sequence[CommittedRecords]) -> list[PartialSearch]:
    """Return the batches that were in progress when an earlier run ended, in input order.

    Args:
        tasks: All committed tasks, in the order of the commits.
        done: Those of them that belong to the output, in input order.
    """
    batches: dict[tuple[int, int], PartialSearch] = {}
    # The latest first: if a batch was split, its parts count, not the whole.
    for task in reversed(tasks):
        kind = decode_task_kind(task.fragment)
        if not isinstance(kind, SearchTask):
            continue
        batch = batches.setdefault((task.first, task.last), PartialSearch(task.first, task.last, task.inputs, {}))
        if [*batch.inputs] == [*task.inputs]:
            batch.found.setdefault(kind.fragment, task.blocks[0])
    taken = [(task.first, task.last) for task in done]
    found = []
    for batch in batches.values():
        at = bisect(taken, (batch.first, batch.last))
        before, after = taken[at - 1 : at] if at else [], taken[at : at + 1]
        if any(last > batch.first for _, last in before) or any(first < batch.last for first, _ in after):
            continue
        taken.insert(at, (batch.first, batch.last))
        found.append(batch)
    return sorted(found, key=lambda batch: batch.first)


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that reached its end."""

    code: int
    #: Text for the user, or empty.
    text: str
    summary: RunSummary | None


def save_run_history(plan: RunPlan, rundir: RunDir, manifest: RunManifest, code: int, message: str = "") -> RunSummary:
    """Save the closed event log and the facts of the run, and return the figures of the log.

    Nothing is saved of a step of another job.

    Args:
        code: The exit code of this start.
        message: Why it stopped early; empty if it did not.
    """
    counted = summarise_events(read_events(rundir.events))
    if not plan.listed:
        return counted
    run_history.archive_run(
        run_history.EndedRun(
            run_id=manifest.run_id, ended=datetime.now().astimezone().isoformat(timespec="seconds"),
            argv=plan.command.argv, host=os.uname().nodename, cwd=str(plan.command.cwd), run_dir=str(plan.run_dir),
            status=counted.status, exit_code=code, message=message, records_done=counted.records_done,
            quarantined=len(counted.quarantined), n_starts=counted.n_runs, wall=counted.wall,
        ),
        {run_history.EVENTS: rundir.events},
        plan.command.environ,
    )  # fmt: skip
    return counted
