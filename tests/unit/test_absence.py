"""What failed while a filesystem was away: kept back until it is there again, for a minute at most."""

from __future__ import annotations

import pytest

from millrace.ids import SlotId, TaskId
from millrace.node.absence import LONGEST_SECONDS, LOOK_SECONDS, Absence
from millrace.schedule.protocol import Result
from millrace.schedule.results import result_of
from millrace.tasks import Ended, Ending, News, Started


def ended(task: int, ending: Ending, *, out_of_memory: bool = False) -> Ended:
    return Ended(TaskId(task), SlotId(0), 0.0, ending, exit_status=2, out_of_memory=out_of_memory)


class Story:
    """Looks at what `away` says."""

    def __init__(self) -> None:
        self.away, self.n_looks, self.said = "", 0, list[str]()
        self.absence = Absence(self.look, self.said.append)

    def look(self) -> str:
        self.n_looks += 1
        return self.away

    def told(self, now: float, *news: News) -> list[tuple[int, Ending]]:
        return [(each.task, each.ending) for each in self.absence.pass_on(news, now) if isinstance(each, Ended)]


@pytest.fixture
def story() -> Story:
    return Story()


FAILED = ended(1, Ending.FAILED)


def test_without_an_absence_all_is_passed_on_as_it_is(story: Story) -> None:
    started = Started(TaskId(2), SlotId(1), 0.0)
    assert story.absence.pass_on([started, FAILED], 0.0) == [started, FAILED]
    assert story.n_looks == 1 and not story.said
    assert story.told(1.0, ended(2, Ending.DONE)) == [(2, Ending.DONE)] and story.n_looks == 1


def test_failures_wait_and_are_nobodys_fault_when_it_is_back(story: Story) -> None:
    story.away = "/view"
    assert story.told(5.0, FAILED, ended(2, Ending.DONE)) == [(2, Ending.DONE)]
    assert story.told(5.1, ended(3, Ending.SPAWN), ended(4, Ending.KILLED)) == [(4, Ending.KILLED)]
    assert story.told(5.2, ended(5, Ending.FAILED, out_of_memory=True)) == [(5, Ending.FAILED)]
    assert story.told(5.1 + LOOK_SECONDS) == []
    assert len(story.said) == 1 and "/view: nobody serves" in story.said[0]
    story.away = ""
    n = story.n_looks
    assert story.told(5.2 + LOOK_SECONDS) == [] and story.n_looks == n
    assert story.told(5.2 + 2 * LOOK_SECONDS) == [(1, Ending.AWAY), (3, Ending.AWAY)]
    assert len(story.said) == 2 and "/view: is served again" in story.said[1]
    assert story.told(9.0, FAILED) == [(1, Ending.FAILED)]


def test_after_a_minute_they_are_failures_and_none_waits_again(story: Story) -> None:
    story.away = "/view"
    assert story.told(0.0, FAILED) == story.told(LONGEST_SECONDS - 0.1) == []
    assert story.told(LONGEST_SECONDS + LOOK_SECONDS) == [(1, Ending.FAILED)]
    assert story.told(LONGEST_SECONDS + 2, ended(2, Ending.FAILED)) == [(2, Ending.FAILED)]
    story.away = ""
    assert story.told(LONGEST_SECONDS + 3, ended(2, Ending.FAILED)) == [(2, Ending.FAILED)]
    story.away = "/view"
    assert story.told(LONGEST_SECONDS + 4, FAILED) == [] and len(story.said) == 3


def test_a_run_that_is_to_stop_waits_for_nothing(story: Story) -> None:
    story.away = "/view"
    assert story.told(0.0, FAILED) == []
    story.absence.give_up()
    assert story.told(0.1) == [(1, Ending.AWAY)]


def test_no_retry_is_spent_on_an_absence() -> None:
    assert result_of(ended(1, Ending.AWAY), fatal_statuses=[2]) is Result.AWAY
