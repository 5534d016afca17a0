"""The output and the status of a run, rebuilt from its run directory alone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import CorruptError, RefusedError
from millrace.core.tasks import CommittedRecords, count_records
from millrace.core.tool_use import FrozenValue
from millrace.output import inconsistent_results
from millrace.output.output_parts import drop_unframed_tasks, select_effective_tasks
from millrace.output.output_streams import OutputStreams, resolve_destination
from millrace.report.event_log import load_runs
from millrace.report.events import read_events
from millrace.rundir import ownership
from millrace.rundir.paths import RunCompletion, RunDir, RunManifest

#: Hints where the journals of an unfinished or a complete run do not hold all results.
SALVAGE = "resume the run to compute what is missing, or salvage the rest with --ignore-errors"
SALVAGE_COMPLETE = (
    "the files that the run wrote are not affected: use them if they are still there, compute all again by the command of the run "
    "with --fresh, or salvage the rest with --ignore-errors"
)


class GatheredOutput(msgspec.Struct, frozen=True):
    """Parts of the output that could not be written."""

    #: Damage, in words; only with ``ignore_errors``.
    damaged: list[str]
    #: Parts that an unfinished run has not computed yet, in words.
    missing: list[str]


def gather_output(run_dir: Path, stream: str, to: str, *, ignore_errors: bool, force: bool = False) -> GatheredOutput:
    """Join the blocks of one stream into the file ``to`` (``-``: standard output).

    Of an unfinished run, everything up to the first gap is written; with ``ignore_errors`` also the rest.

    Args:
        force: Write also to an output of the run itself, if it is complete.

    Raises:
        RefusedError: There is no run, or no such stream, or ``to`` is an output that the run itself has written.
        CorruptError: A block is damaged, or missing in a finished run, or the result has another length than the run's
            own output, and ``ignore_errors`` is not given.
    """
    rundir = RunDir(run_dir)
    manifest = rundir.read_manifest()
    complete = rundir.read_complete(manifest)
    name = _choose_stream(manifest, stream)
    if not (force and complete):
        _check_destination(to, manifest)
    journals = rundir.list_journals() or [rundir.journal]
    try:
        scans = [(path, _core.scan(str(path), True)) for path in journals]
    except (_core.CorruptJournal, OSError) as error:
        raise CorruptError(str(error), "the results are lost: run the command again with --fresh") from error
    damaged = [f"{path}: byte {offset}: {problem}" for path, scan in scans for offset, problem, _ in scan.damage]
    found = (task for _, scan in scans for task in scan.tasks)
    counting = inconsistent_results.drop_inconsistent_tasks(rundir, manifest.run_id, found)
    tasks = select_effective_tasks(drop_unframed_tasks(counting, manifest.frame_forms))
    gaps, missing = _find_gaps(tasks), list[str]()
    if complete:
        damaged += [*gaps, *_find_missing_end(tasks, complete, journals)]
    else:
        reached = max((task.last for task in tasks), default=0)
        if gaps and not ignore_errors:
            tasks, reached = _cut_at_first_gap(tasks)
        missing = [*gaps, f"the run has not come to its end: nothing after record {reached}"]
    if damaged and not ignore_errors:
        raise CorruptError("\n".join(damaged), SALVAGE_COMPLETE if complete else SALVAGE)
    try:
        streams = OutputStreams(manifest.use.outputs, Path(manifest.cwd), only=name, to=to, forms=manifest.frame_forms)
    except OSError as error:
        raise RefusedError(f"{to}: {error.strerror or error}", "name another file with -o") from error
    damaged += _append_tasks(streams, tasks, ignore_errors=ignore_errors)
    sizes = streams.finish_outputs()
    if complete and (wrong := _find_wrong_sizes(sizes, complete)):
        if not ignore_errors:
            raise CorruptError("\n".join([*wrong, f"{to}: is not whole"]), SALVAGE_COMPLETE)
        damaged += wrong
    return GatheredOutput(damaged, missing)


def _append_tasks(streams: OutputStreams, tasks: list[CommittedRecords], *, ignore_errors: bool) -> list[str]:
    """Write the blocks of tasks; return what is damaged in them."""
    damaged = []
    for task in tasks:
        try:
            streams.append_task(task.last - task.first, task)
        except CorruptError as error:
            if not ignore_errors:
                raise
            damaged.append(str(error))
    return damaged


def _find_missing_end(tasks: list[CommittedRecords], complete: RunCompletion, journals: list[Path]) -> list[str]:
    """Describe which records of a finished run come after the last one in its journals."""
    reached = max((task.last for task in tasks), default=0)
    if complete.records is None or reached >= complete.records:
        return []
    places = ", ".join(map(str, journals))
    return [f"{places}: records {reached + 1} to {complete.records}, the last of this finished run, are missing"]


def _find_wrong_sizes(sizes: dict[str, int], complete: RunCompletion) -> list[str]:
    """Describe which joined outputs have another length than those that the run wrote."""
    return [
        f"{name}: the journals hold {size} bytes of the {complete.outputs[name]} that the run has written"
        for name, size in sizes.items()
        if size != complete.outputs.get(name, size)
    ]


def _check_destination(to: str, manifest: RunManifest) -> None:
    for output in manifest.use.outputs:
        place = resolve_destination(output, Path(manifest.cwd))
        with suppress(OSError):
            if to != "-" and place and os.path.samefile(to, place) and place.is_file():
                raise RefusedError(
                    f"{to}: is the output of the run itself, which takes it for changed by somebody if another writes it",
                    "name another file with -o; the command of the run, typed again, goes on with this one; of a run that is done "
                    "it is written with --force",
                )


def _choose_stream(manifest: RunManifest, wanted: str) -> str:
    names = [output.name for output in manifest.use.outputs]
    if wanted and wanted not in names:
        raise RefusedError(f"--stream {wanted}: no such output", f"this run has: {', '.join(names)}")
    if not wanted and len(names) > 1:
        raise RefusedError("this run has several outputs", f"choose one with --stream: {', '.join(names)}")
    return wanted or names[0]


def _cut_at_first_gap(tasks: list[CommittedRecords]) -> tuple[list[CommittedRecords], int]:
    """Return the tasks before the first gap, in input order, and the number of records that they cover."""
    found, reached = list[CommittedRecords](), 0
    for task in tasks:
        if task.first > reached:
            break
        found.append(task)
        reached = task.last
    return found, reached


def _find_gaps(tasks: list[CommittedRecords]) -> list[str]:
    found, reached = [], 0
    for task in tasks:
        if task.first > reached:
            found.append(f"records {reached + 1} to {task.first} are missing")
        reached = max(reached, task.last)
    return found


class RunStatus(FrozenValue, frozen=True):
    """Result of ``millrace.output.journal_gather.read_run_status``."""

    #: ``running``, ``stopped`` or ``done``.
    state: str
    argv: tuple[str, ...]
    records_done: int
    #: Records before the first gap.
    records_in_order: int
    quarantined: int
    output_bytes: int
    journals: tuple[str, ...]
    damage: tuple[str, ...]
    #: Reason why the latest start stopped, with a hint; empty if the run is running or done, or was killed.
    why: str


def read_run_status(run_dir: Path) -> RunStatus:
    """Read the run directory without changing it, even while the run goes on.

    Raises:
        RefusedError: There is no run.
        CorruptError: Its journal is unreadable.
    """
    rundir = RunDir(run_dir)
    manifest = rundir.read_manifest()
    state = "running" if ownership.is_run_active(rundir) else "done" if rundir.completion.exists() else "stopped"
    tasks: list[_core.TaskRef] = []
    damage: list[str] = []
    journals = rundir.list_journals()
    for path in journals:
        try:
            scan = _core.scan(str(path), False)
        except _core.CorruptJournal as error:
            raise CorruptError(str(error), "the results are lost: run the command again with --fresh") from error
        tasks += scan.tasks
        damage += [f"{path.name}: byte {offset}: {problem}" for offset, problem, _ in scan.damage]
    counting = select_effective_tasks(inconsistent_results.drop_inconsistent_tasks(rundir, manifest.run_id, tasks))
    starts = load_runs(read_events(rundir.events)) if state == "stopped" and rundir.events.exists() else []
    reached = 0
    for task in counting:
        if task.first != reached:
            break
        reached = task.last
    return RunStatus(
        state=state, argv=manifest.argv, records_done=count_records(task for task in counting if not task.quarantined),
        records_in_order=reached, quarantined=count_records(task for task in counting if task.quarantined),
        output_bytes=sum(block.length for task in counting for block in task.blocks), journals=tuple(str(path) for path in journals),
        damage=tuple(damage), why=starts[-1].message if starts else "",
    )  # fmt: skip
