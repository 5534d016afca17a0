"""Start of a run: results of earlier starts in its journals, this start's journal, first event."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.core.number_format import format_count
from millrace.core.tasks import CommittedRecords, CompareTask, count_records, decode_task_kind
from millrace.execution.resume import PartialSearch, find_partial_searches, select_tasks
from millrace.execution.run_claim import RunClaim
from millrace.execution.run_context import RunContext
from millrace.output import inconsistent_results
from millrace.planning.run_plan import RunPlan
from millrace.report.events import RunEvent

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


class EarlierResults(msgspec.Struct, frozen=True):
    """Results of earlier starts, and the journal of this one."""

    #: The number of this start, and its open journal.
    start: int
    journal: _core.Journal
    #: Tasks that belong to the output, in input order.
    tasks: Sequence[CommittedRecords]
    #: Batches with some fragments already searched.
    searched: Sequence[PartialSearch]
    #: Tasks of verification, by their records.
    looks: Mapping[tuple[int, int], CommittedRecords]


def open_journals(claim: RunClaim, *, alone: bool, say: Callable[[str], None]) -> EarlierResults:
    """Read the journals of earlier starts, and open the journal of this one.

    Args:
        alone: Whether no other process can still write to the run's first journal, so that this start continues it.
        say: Called with a message about damage, whose results are computed again.

    Raises:
        CorruptError: A journal cannot be read, or belongs to another run.
    """
    rundir = claim.rundir
    start = rundir.choose_start_number()
    path = rundir.journal if alone else rundir.get_rank_journal(start, 0)
    earlier = rundir.list_journals() if claim.resuming else []
    scans = []
    try:
        if path in earlier:
            journal, scan = _core.Journal.open(path, claim.run_id)
            scans.append((path, scan))
        else:
            journal = _core.Journal.create(path, claim.run_id)
        for other in earlier:
            if other != path:
                scans.append((other, _core.scan(other, True)))
                if scans[-1][1].run_id != claim.run_id:
                    raise CorruptError(f"{other}: belongs to another run", "start over with --fresh")
    except (_core.CorruptJournal, IsADirectoryError) as error:
        also = ", or use the release that began the run" if "this release reads" in str(error) else ""
        raise CorruptError(str(error), f"start over with --fresh{also}") from error
    for name, scan in scans:
        for offset, problem, was_synced in scan.damage:
            if was_synced:
                say(f"{name}: byte {offset}: {problem}; what is damaged is not used but computed again")
    held = [task for _, scan in scans for task in scan.tasks]
    found = inconsistent_results.drop_inconsistent_tasks(rundir, claim.manifest.run_id, held)
    if n_odd := len(held) - len(found):
        say(f"{format_count(n_odd, 'result')} did not fit the others, and what they are of is computed again")
    looks = {(task.first, task.last): task for task in found if decode_task_kind(task.fragment) == CompareTask()}
    tasks = select_tasks(found, claim.plan.job.retry_quarantined)
    return EarlierResults(start, journal, tasks, find_partial_searches(found, tasks), looks)
