"""What failed while a filesystem was away: kept back until it is there again, for a minute at most."""

from __future__ import annotations

import pytest

from millrace.core.tasks import SlotEvent, SlotId, TaskEnded, TaskEnding, TaskId, TaskStarted
from millrace.node.node_limits import MAX_ABSENCE_SECONDS, POLL_INTERVAL_SECONDS, FilesystemAbsence
from millrace.scheduler.protocol import AttemptResult, classify_failure


def ended(task: int, ending: TaskEnding, *, out_of_memory: bool = False) -> TaskEnded:
    return TaskEnded(TaskId(task), SlotId(0), 0.0, ending, exit_status=2, out_of_memory=out_of_memory)


class Story:
    """Looks at what `away` says."""

    def __init__(self) -> None:
        self.away, self.n_looks, self.said = "", 0, list[str]()
        self.absence = FilesystemAbsence(self.look, self.said.append)

    def look(self) -> str:
        self.n_looks += 1
        return self.away

    def told(self, now: float, *news: SlotEvent) -> list[tuple[int, TaskEnding]]:
        return [
            (each.task, each.ending) for each in self.absence.filter_events(news, now) if isinstance(each, TaskEnded)
        ]


@pytest.fixture
def story() -> Story:
    return Story()


FAILED = ended(1, TaskEnding.FAILED)


def test_tasks_are_forwarded_while_the_filesystem_is_there(story: Story) -> None:
    started = TaskStarted(TaskId(2), SlotId(1), 0.0)
    assert story.absence.filter_events([started, FAILED], 0.0) == [started, FAILED]
    assert story.n_looks == 1 and not story.said
    assert story.told(1.0, ended(2, TaskEnding.DONE)) == [(2, TaskEnding.DONE)] and story.n_looks == 1


def test_failures_during_an_absence_are_retried_after_it(story: Story) -> None:
    story.away = "/view"
    assert story.told(5.0, FAILED, ended(2, TaskEnding.DONE)) == [(2, TaskEnding.DONE)]
    assert story.told(5.1, ended(3, TaskEnding.SPAWN), ended(4, TaskEnding.KILLED)) == [(4, TaskEnding.KILLED)]
    assert story.told(5.2, ended(5, TaskEnding.FAILED, out_of_memory=True)) == [(5, TaskEnding.FAILED)]
    assert story.told(5.1 + POLL_INTERVAL_SECONDS) == []
    assert len(story.said) == 1 and "/view: nobody serves" in story.said[0]
    story.away = ""
    n = story.n_looks
    assert story.told(5.2 + POLL_INTERVAL_SECONDS) == [] and story.n_looks == n
    assert story.told(5.2 + 2 * POLL_INTERVAL_SECONDS) == [
        (1, TaskEnding.FILESYSTEM_GONE),
        (3, TaskEnding.FILESYSTEM_GONE),
    ]
    assert len(story.said) == 2 and "/view: is served again" in story.said[1]
    assert story.told(9.0, FAILED) == [(1, TaskEnding.FAILED)]


def test_failures_are_reported_after_a_minute_of_absence(story: Story) -> None:
    story.away = "/view"
    assert story.told(0.0, FAILED) == story.told(MAX_ABSENCE_SECONDS - 0.1) == []
    assert story.told(MAX_ABSENCE_SECONDS + POLL_INTERVAL_SECONDS) == [(1, TaskEnding.FAILED)]
    assert story.told(MAX_ABSENCE_SECONDS + 2, ended(2, TaskEnding.FAILED)) == [(2, TaskEnding.FAILED)]
    story.away = ""
    assert story.told(MAX_ABSENCE_SECONDS + 3, ended(2, TaskEnding.FAILED)) == [(2, TaskEnding.FAILED)]
    story.away = "/view"
    assert story.told(MAX_ABSENCE_SECONDS + 4, FAILED) == [] and len(story.said) == 3


def test_stopping_run_does_not_wait_for_a_filesystem(story: Story) -> None:
    story.away = "/view"
    assert story.told(0.0, FAILED) == []
    story.absence.stop_waiting()
    assert story.told(0.1) == [(1, TaskEnding.FILESYSTEM_GONE)]


def test_absence_uses_no_retry() -> None:
    assert classify_failure(ended(1, TaskEnding.FILESYSTEM_GONE), fatal_statuses=[2]) is AttemptResult.FILESYSTEM_GONE
