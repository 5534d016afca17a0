"""A drawing in text of the phases of a job and the files between them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from millrace.launch import allocation
from millrace.report.words import format_count
from millrace.workflow import flow
from millrace.workflow.description import WorkflowDescription
from millrace.workflow.planned import PlannedPhase


def draw_workflow(described: WorkflowDescription, file: Path, cwd: Path) -> str:
    """Plan a job in phases and draw it, for ``millrace plan``.

    Raises:
        MillraceError: A phase cannot be run.
    """
    nodes = allocation.find_node_allocation(described.job.hosts, os.environ)
    phases, here = flow.plan_workflow(described, file, cwd, os.environ, nodes)
    lines = [f"commands run on {format_count(len(nodes.nodes), 'node')} of {nodes.words}"] if nodes else []
    lines += [line for planned in phases for line in _draw_phase(planned)]
    there = " (exists: the job would resume)" if here.folder.exists() else ""
    return "\n".join([*lines, f"folder:    {here.folder}{there}", ""])


def _draw_phase(planned: PlannedPhase) -> Iterator[str]:
    """Yield the lines of one phase."""
    phase = planned.phase
    what = shlex.join(phase.job.command) if phase.kind == "command" else f"{phase.kind}: {phase.text}"
    yield f"[{phase.name}] {what}"
    for output, by in planned.streams.items():
        yield f"  <-- {output} from [{by}], record by record"
    for by, why in planned.waits.items():
        yield f"  waits for the end of [{by}]: {why}"
    for output in planned.outputs:
        yield f"  --> {output}{'/' if output in planned.folders else ''}"
    if planned.plan:
        yield f"  known as {planned.plan.use.adapter}, {planned.plan.slots} slots"
    elif phase.kind == "command":
        yield "  planned once these have ended"
