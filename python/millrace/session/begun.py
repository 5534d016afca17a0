"""The first event in the log of each start of a run."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from millrace.committed import CommittedRecords, count_records
from millrace.plan.plan import RunPlan
from millrace.report.events import RunEvent
from millrace.session.processes import RunContext

#: First bytes of compressed files: gzip, zstd, bzip2, xz.
PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")


def build_run_event(plan: RunPlan, done: Sequence[CommittedRecords], processes: RunContext) -> RunEvent:
    """Build the first event of a start.

    Args:
        done: Tasks that earlier starts have committed.
    """
    use, argv = plan.use, plan.command.argv
    nodes = [(member.hello.host, member.slots) for member in processes.members]
    return RunEvent(
        time=datetime.now().astimezone().isoformat(timespec="seconds"), argv=list(argv), tool=Path(argv[0]).name,
        version=use.version, slots=plan.slots, threads=max(1, use.threads), unit=use.cost.unit,
        bytes_total=None if processes.chain else _count_input_bytes(plan),  # other phases may still write the inputs
        records_resumed=count_records(task for task in done if not task.quarantined), nodes=nodes or [(os.uname().nodename, plan.slots)],
    )  # fmt: skip


def _count_input_bytes(plan: RunPlan) -> int | None:
    """Return the bytes of all records; None: the file sizes do not tell."""
    total = 0
    for path in _list_input_paths(plan):
        found = _measure_plain_file(path)
        if found is None:
            return None
        total += found
    return total


def _list_input_paths(plan: RunPlan) -> Iterator[Path | int]:
    for item in plan.use.inputs:
        if item.path == "-":
            yield 0
        elif item.format == "files":
            yield from (plan.command.cwd / name for name in item.path.split("\0"))
        else:
            yield plan.command.cwd / item.path


def _measure_plain_file(path: Path | int) -> int | None:
    """Return the bytes of a plain file from its current position on; None: it is no plain file, or compressed."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            return None
        if isinstance(path, int):
            return about.st_size - os.lseek(path, 0, os.SEEK_CUR)
        with path.open("rb") as file:
            return None if file.read(6).startswith(PACKED) else about.st_size
    except OSError:
        return None  # behind a URL, perhaps
