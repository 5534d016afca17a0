"""How many records may be given up."""

from __future__ import annotations

import pytest

from millrace.scheduler.limits import QuarantineLimit


def given_up(limit: QuarantineLimit, n_done: int, ways: int) -> int:
    """Records given up before the run stops, each after ``n_done`` that are done, in so many different ways."""
    for n in range(10_000):
        if n_done:
            limit.count_done(n_done)
        if limit.count_given_up(f"way {n % ways}"):
            return n
    return 10_000


@pytest.mark.parametrize(
    ("limit", "n_done", "ways", "expected"),
    [
        (QuarantineLimit(), 0, 1, 9),  # all that is left fails alike
        (QuarantineLimit(), 5, 1, 9),  # one in six
        (QuarantineLimit(), 19, 1, 100),  # one in twenty
        (QuarantineLimit(), 5, 100, 100),  # each in its own way
        (QuarantineLimit(), 200, 1, 10_000),  # half a per cent
        (QuarantineLimit(most=3), 0, 1, 3),
        (QuarantineLimit(most=0), 1000, 1, 0),
        (QuarantineLimit(share=1.0), 0, 1, 10_000),
        (QuarantineLimit(share=0.02), 9, 1, 2),
        (QuarantineLimit(share=0.02), 99, 1, 10_000),
    ],
)
def test_run_with_too_many_quarantined_records_stops(
    limit: QuarantineLimit, n_done: int, ways: int, expected: int
) -> None:
    assert given_up(limit, n_done, ways) == expected


@pytest.mark.parametrize(("ways", "n_done"), [(1, 0), (2, 0), (1, 1)])
def test_run_with_only_equal_failures_stops(ways: int, n_done: int) -> None:
    """Though a million records went well before; each record that is done begins a new row."""
    limit = QuarantineLimit()
    limit.count_done(1_000_000)
    assert given_up(limit, n_done, ways) == (10_000 if n_done else 49 * ways)


def test_quarantined_records_of_an_earlier_run_count() -> None:
    limit = QuarantineLimit(most=5)
    limit.add_resumed(4, 4)
    assert [limit.count_given_up("x"), limit.count_given_up("x")] == [False, True]


def test_finished_records_of_earlier_starts_count() -> None:
    limit = QuarantineLimit(share=0.1)
    limit.add_resumed(545, 35)
    assert limit.n_done == 510
    assert not limit.count_given_up("no"), "36 of 546"


def test_tool_killed_on_several_records_stops_the_run() -> None:
    limit = QuarantineLimit()
    limit.count_done(100)
    assert [limit.count_given_up(f"way {each}", died=True) for each in range(3)] == [False, False, True]
    limit = QuarantineLimit()
    limit.count_done(1_000_000)
    assert not any(limit.count_given_up(f"way {each}", died=True) for each in range(9))
    limit = QuarantineLimit(most=5)
    assert not any(limit.count_given_up("way", died=True) for each in range(5))
