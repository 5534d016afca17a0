"""The journal from Python: what a resumed run takes from it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace import _core
from millrace.execution.resume import select_tasks

RUN = bytes(16)


def test_committed_tasks_are_read_and_a_torn_tail_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal.mrj"
    journal = _core.Journal.create(str(path), RUN)
    journal.quarantine(3, 4, 1, [(10, 20)])
    journal.sync()
    with path.open("ab") as file:
        file.write(b"MRF1 torn")
    journal, scan = _core.Journal.open(str(path), RUN)
    assert [(task.first, task.last, task.quarantined, task.inputs) for task in scan.tasks] == [(3, 4, True, [(10, 20)])]
    assert scan.torn == 9 and not scan.damage
    journal.quarantine(4, 5, 1, [])
    again = _core.scan(str(path), True)
    assert [(task.first, task.last) for task in again.tasks] == [(3, 4), (4, 5)] and again.torn == 0


def test_another_runs_journal_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.mrj")
    _core.Journal.create(path, RUN)
    with pytest.raises(_core.CorruptJournal, match="belongs to another run"):
        _core.Journal.open(path, bytes(15) + b"x")


def test_quarantined_record_counts_until_its_retry(tmp_path: Path) -> None:
    journal = _core.Journal.create(str(tmp_path / "journal.mrj"), RUN)
    tasks = [journal.quarantine(first, first + 1, 1, []) for first in (2, 0, 1)]
    assert [task.first for task in select_tasks(tasks, retry_quarantined=False)] == [0, 1, 2]
    assert select_tasks(tasks, retry_quarantined=True) == []


@pytest.mark.parametrize(
    "append",
    [
        pytest.param(lambda journal: journal.quarantine(0, 1, 1, []), id="quarantine"),
        pytest.param(lambda journal: journal.append_task(0, 1, 1, [], [(0, b"", bytes(100))]), id="append_task"),
    ],
)
def test_append_does_not_block_other_threads(append: Callable[[_core.Journal], _core.TaskRef], tmp_path: Path) -> None:
    """Python hands over only where a call lets it go, so that the other thread runs during an append or not at all."""
    journal = _core.Journal.create(str(tmp_path / "journal.mrj"), RUN)
    begin, went_on = threading.Lock(), []
    usual = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    try:
        with begin:
            other = threading.Thread(target=lambda: begin.acquire() and went_on.append(True))
            other.start()
        assert any(append(journal) and went_on for _ in range(200_000))  # the other may get no core for a while
    finally:
        sys.setswitchinterval(usual)
        other.join()
