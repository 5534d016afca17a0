"""Record of the files that a run has written results to through standard output.

A file that is opened with ``>>`` keeps the results of an earlier start, and the whole output would follow them. Batch
systems open the log of a job like that, which may hold only messages: so only files with results are recorded.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress

from millrace.errors import RefusedError
from millrace.model import ToolUse
from millrace.rundir import RunDir

#: First line of the record. Releases without a record left the file empty.
HEAD = "standard output (device, file)"


def begin_record(rundir: RunDir) -> None:
    """Record that outputs are written from now on, as yet none to standard output."""
    with rundir.written_marker.open("a") as file:
        if not file.tell():
            file.write(f"{HEAD}\n")


def record_stdout(rundir: RunDir) -> None:
    """Record the file behind standard output, if it is one, as one with results."""
    with suppress(OSError):  # the run directory was removed
        if (name := _identify_stdout_file()) and rundir.path.is_dir():
            begin_record(rundir)
            with rundir.written_marker.open("a") as file:
                file.write(f"{name}\n")
                file.flush()
                os.fsync(file.fileno())


def refuse_appending(use: ToolUse, rundir: RunDir) -> None:
    """Check that standard output does not append to a file with results of an earlier start.

    Raises:
        RefusedError: It appends: the file would hold these results twice.
    """
    if all(output.layout != "file" or (output.to or output.path) != "-" for output in use.outputs):
        return
    with suppress(OSError):
        appends = fcntl.fcntl(1, fcntl.F_GETFL) & os.O_APPEND and os.fstat(1).st_size
        if appends and _is_recorded(rundir, _identify_stdout_file()):
            raise RefusedError(
                "standard output goes behind what is in a file (>>), where what an earlier start of this run has written would "
                "stand twice",
                "type the same command with > and the name of a new file, which gets all of it, and take out of this one what "
                "the first start wrote",
            )


def _is_recorded(rundir: RunDir, name: str) -> bool:
    try:
        lines = rundir.written_marker.read_text().splitlines()
    except FileNotFoundError:
        return False
    return name in lines if HEAD in lines else bool(name) and rundir.has_results()


def _identify_stdout_file() -> str:
    """Return device and inode of the regular file on standard output; empty: it is something else."""
    about = os.fstat(1)
    return f"{about.st_dev} {about.st_ino}" if stat.S_ISREG(about.st_mode) else ""
