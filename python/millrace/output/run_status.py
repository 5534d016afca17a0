"""Status of a run, read from its run directory alone."""

from __future__ import annotations

from pathlib import Path

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.core.tasks import count_records
from millrace.core.tool_use import FrozenValue
from millrace.output import inconsistent_results
from millrace.output.output_writer import select_effective_tasks
from millrace.report.events import read_typed_events
from millrace.report.logged_runs import load_runs
from millrace.rundir import ownership
from millrace.rundir.paths import RunDir


class RunStatus(FrozenValue, frozen=True):
    """Result of ``millrace.output.run_status.read_run_status``."""

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
    starts = load_runs(read_typed_events(rundir.events)) if state == "stopped" and rundir.events.exists() else []
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
