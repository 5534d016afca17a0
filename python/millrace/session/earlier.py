"""Results of earlier starts in the journals of a run, and the journal of this start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from millrace import _core
from millrace.committed import CommittedRecords
from millrace.errors import CorruptError
from millrace.output import unfit
from millrace.report.words import format_count
from millrace.resume import PartialSearch, find_partial_searches, select_tasks
from millrace.session.claim import RunClaim
from millrace.task_numbers import decode_task_kind
from millrace.tasks import CompareTask


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
    found = unfit.drop_inconsistent_tasks(rundir, claim.manifest.run_id, held)
    if n_odd := len(held) - len(found):
        say(f"{format_count(n_odd, 'result')} did not fit the others, and what they are of is computed again")
    looks = {(task.first, task.last): task for task in found if decode_task_kind(task.fragment) == CompareTask()}
    tasks = select_tasks(found, claim.plan.job.retry_quarantined)
    return EarlierResults(start, journal, tasks, find_partial_searches(found, tasks), looks)
