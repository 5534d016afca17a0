"""What the phases write, refused before any begins where two write the same or something is there already."""

from __future__ import annotations

import os
from collections.abc import Sequence

from millrace.errors import RefusedError
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
            and any(not name.startswith(".") for name in os.listdir(path))
        ):
            raise RefusedError(
                f"{folder}/: there are files in it already, which later phases would take for this one's",
                f"empty it first: rm -r {folder}",
            )
