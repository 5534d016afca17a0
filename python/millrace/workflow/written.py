"""What the phases write, refused before any begins where two write the same or something is there already."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from millrace.errors import RefusedError
from millrace.workflow.description import Phase
from millrace.workflow.planned import Here, Planned, norm
from millrace.workflow.records import format_of


def check_outputs(planned: Planned, earlier: Sequence[Planned], here: Here) -> None:
    """Refuse outputs that another phase writes too, that are read by the phase itself, or that are not empty.

    Raises:
        RefusedError: One of these.
    """
    for each in earlier:
        if same := sorted({*planned.outputs} & {*each.outputs}):
            raise RefusedError(f"{same[0]} is written by phase {each.phase.name} too", "give each phase its own output")
    inputs = (
        {norm(format_of(each, "")[0]) for each in planned.phase.job.input} if planned.phase.kind != "command" else set()
    )
    if same := sorted({*planned.outputs} & inputs):
        raise RefusedError(f"{same[0]} is both input and output", "write to another file")
    for folder in planned.folders:
        path = here.cwd / folder
        if (
            path.is_dir()
            and folder != "."
            and not here.folder.exists()
            and not here.is_done
            and any(not name.startswith(".") for name in os.listdir(path))
        ):
            raise RefusedError(
                f"{folder}/: there are files in it already, which later phases would take for this one's",
                f"empty it first: rm -r {folder}",
            )


def check_order(refused: RefusedError, phase: Phase, later: Sequence[Phase], cwd: Path) -> None:
    """Refuse in other words what is not there because it is written too late.

    Args:
        refused: Why the phase cannot be run.

    Raises:
        RefusedError: A later phase writes what it speaks of.
    """
    words = {norm(word) for word in phase.reads}
    for each in later:
        for path in filter(None, (*each.job.output, each.stdout)):
            if norm(path) in words and path in refused.message and not (cwd / path).exists():
                raise RefusedError(
                    f"{path} is not there, and phase {each.name}, which writes it, comes later in the file",
                    f"move [phase.{each.name}] before it; phases that read what each other writes cannot be run",
                ) from refused
