"""Outputs that get their name only when they are whole, so that no later step of a pipeline takes a part for all.

Until then an output grows as ``.NAME.millrace-part`` beside its place. Pipelines are recognised by what they set in the
environment of a task.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from millrace.adapters.adapter_base import is_stream_path
from millrace.core.tool_use import OutputUse, ToolUse

#: Longest name of a file on usual filesystems.
MAX_NAME_BYTES = 255


def find_pipeline(cwd: Path, environ: Mapping[str, str]) -> str:
    """Return the name of the workflow engine that has started this process; empty: none that is known."""
    if "NXF_TASK_WORKDIR" in environ:
        return "Nextflow"
    if "_GALAXY_JOB_DIR" in environ or "GALAXY_SLOTS" in environ:
        return "Galaxy"
    # Snakemake limits the threads of libraries for linear algebra, and has no variable of its own.
    if "GOTO_NUM_THREADS" in environ and (".snakemake" in cwd.parts or (cwd / ".snakemake").is_dir()):
        return "Snakemake"
    return "make" if "MAKELEVEL" in environ else ""


def mark_atomic_outputs(asked: bool | None, use: ToolUse, cwd: Path, environ: Mapping[str, str]) -> tuple[ToolUse, str]:
    """Return ``use`` with the places where outputs grow, and a note for the plan; empty: they grow in their own place.

    Args:
        asked: The user's choice; None: in a pipeline.
    """
    pipeline = "" if asked is not None else find_pipeline(cwd, environ)
    if not (asked or pipeline):
        return use, ""
    outputs = tuple(replace(output, part=_name_part(output, cwd)) for output in use.outputs)
    why = f"in {pipeline}" if pipeline else "as asked"
    note = f"outputs: {why}, each has its name only when it is whole" if any(each.part for each in outputs) else ""
    return replace(use, outputs=outputs), note


def _name_part(output: OutputUse, cwd: Path) -> str:
    """Return the path at which an output grows; empty: its own, as for a pipe, or a file that has other names."""
    if output.layout != "file" or output.path == "-" or is_stream_path(output.path):
        return ""
    try:
        about = os.lstat(cwd / output.path)
    except OSError:
        pass
    else:
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            return ""
    folder, name = os.path.split(output.path)
    part = f".{name}.millrace-part"
    if len(os.fsencode(part)) > MAX_NAME_BYTES or not os.access(cwd / folder, os.W_OK | os.X_OK):
        return ""
    return os.path.join(folder, part)
