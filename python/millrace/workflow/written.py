"""Checks of the outputs of phases before any begins: conflicts, existing files and wrong order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from millrace.errors import RefusedError
from millrace.workflow.description import PhaseDescription
from millrace.workflow.planned import PlannedPhase, WorkflowContext, normalise_path
from millrace.workflow.records import split_format


def check_outputs(planned: PlannedPhase, earlier: Sequence[PlannedPhase], here: WorkflowContext) -> None:
    """Check the outputs of a phase against those of earlier phases, its own inputs and existing files.

    Raises:
        RefusedError: Another phase writes it too, the phase itself reads it, or it is a folder with files.
    """
    for each in earlier:
        if same := sorted({*planned.outputs} & {*each.outputs}):
            raise RefusedError(f"{same[0]} is written by phase {each.phase.name} too", "give each phase its own output")
    inputs = (
        {normalise_path(split_format(each, "")[0]) for each in planned.phase.job.input}
        if planned.phase.kind != "command"
        else set()
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


def check_order(refused: RefusedError, phase: PhaseDescription, later: Sequence[PhaseDescription], cwd: Path) -> None:
    """Replace the refusal of a missing file by a clearer one if a later phase writes that file.

    Args:
        refused: Why the phase cannot be run.

    Raises:
        RefusedError: A later phase writes a file named in ``refused``.
    """
    words = {normalise_path(word) for word in phase.reads}
    for each in later:
        for path in filter(None, (*each.job.output, each.stdout)):
            if normalise_path(path) in words and path in refused.message and not (cwd / path).exists():
                raise RefusedError(
                    f"{path} is not there, and phase {each.name}, which writes it, comes later in the file",
                    f"move [phase.{each.name}] before it; phases that read what each other writes cannot be run",
                ) from refused
