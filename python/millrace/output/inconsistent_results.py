"""Results that are valid alone but cannot be joined: which they are, so that a resume computes them again.

A tool may have begun some batches with another header than the rest, such as with a warning. The majority is assumed to
be right. The other results stay in their journals, and their places are noted beside these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from millrace import _core
from millrace.core.tasks import CommittedRecords
from millrace.core.tool_use import FrozenValue, OutputUse
from millrace.output.output_parts import select_effective_tasks
from millrace.rundir.checksummed_json import encode_checksummed, read_checksummed
from millrace.rundir.paths import RunDir, write_atomically

#: A task, and its block for one stream.
TaskBlock: TypeAlias = tuple[CommittedRecords, _core.BlockRef]

JournalPlace: TypeAlias = tuple[str, int, int]


class InconsistentResults(FrozenValue, frozen=True):
    """Places of results that do not count."""

    run_id: str
    #: Name of the journal, offset and checksum of each result's first block.
    places: tuple[JournalPlace, ...]


def drop_inconsistent_tasks(rundir: RunDir, run_id: str, tasks: Iterable[_core.TaskRef]) -> list[_core.TaskRef]:
    """Return those of ``tasks`` that count.

    Raises:
        CorruptError: The note on inconsistent results is damaged.
    """
    places = read_inconsistent_places(rundir, run_id)
    return [task for task in tasks if not places or not task.blocks or locate_task(task) not in places]


def record_inconsistent_tasks(
    rundir: RunDir, run_id: str, outputs: Sequence[OutputUse], forms: Mapping[str, int] | None = None
) -> int:
    """Find the results that do not fit the others, and note them; return their number.

    Args:
        forms: See ``RunManifest.frame_forms``: results of other forms of the command are not compared with each other.

    Raises:
        OSError: The note cannot be written.
    """
    places = read_inconsistent_places(rundir, run_id)
    found = [task for path in rundir.list_journals() for task in _core.scan(path, False).tasks]
    tasks = [task for task in select_effective_tasks(drop_inconsistent_tasks(rundir, run_id, found)) if task.blocks]
    odd = {
        locate_task(task)
        for number, output in enumerate(outputs)
        if output.layout == "file" and output.join != "concat"
        for alike in _group_by_form(tasks, forms or {})
        for task in _find_odd_tasks(output.join, number, alike)
    }
    if odd:
        write_atomically(
            rundir.unfit_results,
            encode_checksummed(InconsistentResults(run_id=run_id, places=tuple(sorted(places | odd)))),
        )
    return len(odd)


def _group_by_form(tasks: Sequence[CommittedRecords], forms: Mapping[str, int]) -> list[list[CommittedRecords]]:
    found: dict[int, list[CommittedRecords]] = {}
    for task in tasks:
        found.setdefault(forms.get(task.blocks[0].journal.name, 0), []).append(task)
    return list(found.values())


def read_inconsistent_places(rundir: RunDir, run_id: str) -> set[JournalPlace]:
    """Return the places of the results that do not count."""
    with suppress(FileNotFoundError):
        noted = read_checksummed(rundir.unfit_results, InconsistentResults, "which results do not fit the others")
        return set(noted.places) if noted.run_id == run_id else set()
    return set()


def locate_task(task: CommittedRecords) -> JournalPlace:
    """Return the place of a result."""
    return task.blocks[0].journal.name, task.blocks[0].offset, task.blocks[0].crc32c


def _find_odd_tasks(join: str, stream: int, tasks: Sequence[CommittedRecords]) -> list[CommittedRecords]:
    """Return the tasks whose blocks do not fit the majority; all tasks if there is no majority."""
    blocks = [(task, block) for task in tasks for block in task.blocks if block.stream == stream]
    if _can_join(join, blocks):
        return []
    for reference in (blocks[0], blocks[len(blocks) // 2], blocks[-1]):
        odd = _find_unlike_tasks(join, reference, blocks)
        if 0 < 2 * len(odd) < len(blocks):
            return odd
        if not odd:
            # It fits all others, which do not fit each other: use the first that does not fit those before it instead.
            last = bisect_left(range(1, len(blocks)), True, key=lambda n: not _can_join(join, blocks[: n + 1])) + 1
            return [blocks[last][0], *_find_unlike_tasks(join, blocks[last], blocks)]
    return [task for task, _ in blocks]


def _find_unlike_tasks(join: str, reference: TaskBlock, blocks: Sequence[TaskBlock]) -> list[CommittedRecords]:
    return [
        each[0]
        for each in blocks
        if each is not reference and not _can_join(join, sorted((reference, each), key=lambda one: one[0].first))
    ]


def _can_join(join: str, blocks: Sequence[TaskBlock]) -> bool:
    try:
        _core.joined(join, [(task.last - task.first, block) for task, block in blocks], (), 0)
    except _core.CorruptJournal:
        return False
    return True
