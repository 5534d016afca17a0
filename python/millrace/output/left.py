"""Output files as a start left them, and whether somebody has changed them since.

A resume writes them from the beginning, over what is there: it would write over whatever somebody has put in; and of a
complete run that is kept, they must be what it wrote. What is known is how a start left them that got to its end or
stopped in order; of one that was killed nobody can tell.
"""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress

from millrace.errors import RefusedError
from millrace.model import Frozen
from millrace.output.streams import destination
from millrace.plan.filesystems import SHARED, kind
from millrace.plan.plan import Plan
from millrace.rundir import Manifest, RunDir, write_whole
from millrace.sealed import seal, unseal


class Left(Frozen, frozen=True):
    """The files, by the paths that the user typed."""

    run_id: str
    #: Size in bytes, and time of the last change; 0: not to be relied on.
    files: dict[str, tuple[int, int]]


def note(plan: Plan, rundir: RunDir, manifest: Manifest) -> None:
    """Keep how the files are. Nobody of this run writes any more."""
    with suppress(OSError):
        write_whole(rundir.outputs, seal(Left(run_id=manifest.run_id, files=_look(plan))))


def check(plan: Plan, rundir: RunDir, manifest: Manifest) -> None:
    """See that nobody has changed what an earlier start left.

    Raises:
        RefusedError: Somebody has.
        CorruptError: What was kept of it is not what was written.
    """
    try:
        left = unseal(rundir.outputs, Left, "how outputs were left")
    except FileNotFoundError:
        return
    now = _look(plan)
    for path, (size, changed) in left.files.items() if left.run_id == manifest.run_id else ():
        size_now, changed_now = now.get(path, (0, 0))
        if path not in now or not (size or size_now):
            continue  # gone, or nothing to lose: it is written again
        if size_now != size or (changed and changed_now and changed_now != changed):
            how = (
                f"it had {size:,} bytes, and has {size_now:,}" if size_now != size else "its time of change is another"
            )
            quoted = shlex.quote(path)
            since = "had written it" if rundir.complete.exists() else "was stopped"
            raise RefusedError(
                f"{path}: somebody has changed it since this run {since}: {how}",
                f"move it away (mv {quoted} {quoted}.changed) and type the same command again: it writes the file anew from "
                f"{rundir.path}",
            )


def forget(rundir: RunDir) -> None:
    """From here on the outputs are written."""
    rundir.outputs.unlink(missing_ok=True)


def _look(plan: Plan) -> dict[str, tuple[int, int]]:
    """Size and time of change of the regular files among the outputs."""
    found = {}
    for output in plan.use.outputs:
        if output.layout == "file" and (path := destination(output, plan.command.cwd)):
            with suppress(OSError):
                about = os.stat(path)
                if stat.S_ISREG(about.st_mode):
                    # A server's clock and a machine's memory of it may differ for a while.
                    sure = kind(path.parent) not in SHARED
                    found[output.path] = (about.st_size, about.st_mtime_ns if sure else 0)
    return found
