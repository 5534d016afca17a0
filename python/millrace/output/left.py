"""States of the output files at the end of a start, to find changes by others since.

A resume writes the outputs from the beginning, over existing content, so it would destroy changes by others; the
outputs of a kept complete run must be unchanged too. The states are known if a start completed or stopped in order, and
unknown if it was killed.
"""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress

from millrace.errors import RefusedError
from millrace.model import FrozenValue
from millrace.output.streams import resolve_destination
from millrace.plan.filesystems import SHARED, find_filesystem_kind
from millrace.plan.plan import RunPlan
from millrace.rundir import RunDir, RunManifest, write_atomically
from millrace.sealed import encode_checksummed, read_checksummed


class SavedOutputs(FrozenValue, frozen=True):
    """States of the output files, by the paths that the user typed."""

    run_id: str
    #: Size in bytes, and modification time in ns; 0: unreliable.
    files: dict[str, tuple[int, int]]


def save_output_states(plan: RunPlan, rundir: RunDir, manifest: RunManifest) -> None:
    """Save the states of the output files. This run must not write them any more."""
    with suppress(OSError):
        write_atomically(
            rundir.outputs, encode_checksummed(SavedOutputs(run_id=manifest.run_id, files=_read_output_states(plan)))
        )


def check_saved_outputs(plan: RunPlan, rundir: RunDir, manifest: RunManifest) -> None:
    """Check that the outputs of an earlier start are unchanged.

    Raises:
        RefusedError: An output was changed.
        CorruptError: The saved states are damaged.
    """
    try:
        left = read_checksummed(rundir.outputs, SavedOutputs, "how outputs were left")
    except FileNotFoundError:
        return
    now = _read_output_states(plan)
    for path, (size, changed) in left.files.items() if left.run_id == manifest.run_id else ():
        size_now, changed_now = now.get(path, (0, 0))
        if path not in now or not (size or size_now):
            continue  # missing, or empty before and now: it is written again
        if size_now != size or (changed and changed_now and changed_now != changed):
            how = (
                f"it had {size:,} bytes, and has {size_now:,}" if size_now != size else "its time of change is another"
            )
            quoted = shlex.quote(path)
            since = "had written it" if rundir.completion.exists() else "was stopped"
            raise RefusedError(
                f"{path}: somebody has changed it since this run {since}: {how}",
                f"move it away (mv {quoted} {quoted}.changed) and type the same command again: it writes the file anew from "
                f"{rundir.path}",
            )


def forget_saved_outputs(rundir: RunDir) -> None:
    """Remove the saved states: from here on the outputs are written."""
    rundir.outputs.unlink(missing_ok=True)


def _read_output_states(plan: RunPlan) -> dict[str, tuple[int, int]]:
    """Return size and modification time of the regular files among the outputs."""
    found = {}
    for output in plan.use.outputs:
        if output.layout == "file" and (path := resolve_destination(output, plan.command.cwd)):
            with suppress(OSError):
                about = os.stat(path)
                if stat.S_ISREG(about.st_mode):
                    # On shared storage the cached modification time may differ from the server's for a while.
                    sure = find_filesystem_kind(path.parent) not in SHARED
                    found[output.path] = (about.st_size, about.st_mtime_ns if sure else 0)
    return found
