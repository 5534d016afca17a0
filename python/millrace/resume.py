"""What an earlier run left, and whether this one may go on from there."""

from __future__ import annotations

import os
from collections.abc import Sequence

from millrace import __version__, _core
from millrace.errors import RefusedError
from millrace.output.order import that_count
from millrace.plan.plan import Plan
from millrace.rundir import VERSION, Complete, Manifest, RunDir


def take_over(plan: Plan, rundir: RunDir) -> tuple[Manifest, bool]:
    """Make the run directory this run's, or find that it is already; returns the manifest, and whether it resumes.

    Raises:
        RefusedError: It holds another run, and the user did not say ``--fresh``.
    """
    manifest = Manifest(
        version=VERSION, millrace=__version__, run_id=os.urandom(16).hex(), argv=plan.command.argv,
        cwd=str(plan.command.cwd), exe=str(plan.command.exe), use=plan.use, record_start=plan.job.record_start,
        record_end=plan.job.record_end, fingerprints=plan.fingerprints,
    )  # fmt: skip
    if plan.job.fresh or not rundir.holds_a_run():
        rundir.clear()
        rundir.write_manifest(manifest)
        return manifest, False
    earlier = rundir.read_manifest()
    changes = differences(earlier, manifest)
    if changes:
        raise RefusedError(
            f"{rundir.path}: holds a run that was begun otherwise:\n" + "\n".join(f"  {change}" for change in changes),
            "type the command as it was to resume that run, name another --run-dir, or start over with --fresh",
        )
    return earlier, bool(rundir.journals())


def differences(earlier: Manifest, now: Manifest) -> list[str]:
    """What changed between two manifests that matters for the result, in words."""
    found = []
    if earlier.argv != now.argv:
        found.append(f"command: was {' '.join(earlier.argv)}\n           now {' '.join(now.argv)}")
    if earlier.cwd != now.cwd:
        found.append(f"folder: was {earlier.cwd}, now {now.cwd}")
    if earlier.millrace != now.millrace:
        found.append(f"millrace: was {earlier.millrace}, now {now.millrace}")
    for name in sorted(earlier.fingerprints.keys() | now.fingerprints.keys()):
        was, is_now = earlier.fingerprints.get(name, "not there"), now.fingerprints.get(name, "not there")
        if was != is_now:
            found.append(f"{name}: was {was}, now {is_now}")
    if (earlier.record_start, earlier.record_end) != (now.record_start, now.record_end):
        found.append("--record-start or --record-end")
    # Environment and hints of an adapter may differ without changing a byte; what is joined how may not.
    if not found and (earlier.use.inputs, earlier.use.outputs, earlier.use.argv) != (
        now.use.inputs,
        now.use.outputs,
        now.use.argv,
    ):
        found.append("inputs or outputs of the job")
    return found


def outputs_are_there(plan: Plan, complete: Complete) -> bool:
    """Whether all that a complete run wrote still has its size; what went to standard output is gone."""
    for output in plan.use.outputs:
        path = plan.command.cwd / output.path
        size = complete.outputs.get(output.name)
        if output.path == "-":
            if size:
                return False
        elif size is not None and (not path.is_file() or path.stat().st_size != size):
            return False
    return True


def chosen(tasks: Sequence[_core.TaskRef], retry_quarantined: bool) -> list[_core.TaskRef]:
    """The committed tasks that count, in input order: without those that are to be tried again."""
    return that_count(task for task in tasks if not (retry_quarantined and task.quarantined))


def done_extents(tasks: Sequence[_core.TaskRef]) -> list[tuple[int, int, Sequence[tuple[int, int]]]]:
    """(first, last, digests of the inputs) of committed tasks."""
    return [(task.first, task.last, task.inputs) for task in tasks]
