"""The searches of a batch: from the first to the last, through failures, with what an earlier run found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from millrace import _core
from millrace.schedule.protocol import Failure, Result
from millrace.schedule.searches import Searches


def block(name: str) -> _core.BlockRef:
    return cast(_core.BlockRef, name)


def test_a_batch_is_found_when_its_last_fragment_is() -> None:
    searches = Searches(2)
    assert not searches.begin(1, 1, {})
    assert [searches.next(), searches.next(), searches.next()] == [(1, 1), (1, 2), None]
    assert not searches.found(1, 2, block("b"), 3.0)
    assert searches.share(1) == 1 / 3
    assert searches.found(1, 1, block("a"), 1.0)
    assert searches.ready(1, 1).found == ["a", "b"]
    assert searches.seconds(1) == 4.0


def test_what_an_earlier_run_found_is_not_searched_again() -> None:
    searches = Searches(3)
    assert not searches.begin(1, 1, {1: block("a"), 3: block("c")})
    assert [searches.next(), searches.next()] == [(1, 2), None]
    assert searches.found(1, 2, block("b"), 2.0)
    assert searches.ready(1, 1).found == ["a", "b", "c"]
    assert searches.seconds(1) == 6.0, "the others took as long, as far as is known"
    assert searches.begin(2, 1, {1: block("a"), 2: block("b"), 3: block("c")})
    assert searches.seconds(2) is None


def test_a_failure_is_told_once_when_all_searches_of_the_batch_have_ended() -> None:
    searches = Searches(4)
    searches.begin(1, 1, {})
    for _ in range(3):
        searches.next()
    first, second = Failure(Result.FAILED, "first"), Failure(Result.FAILED, "second")
    searches.failed(1, first)
    assert searches.next() is None, "no search is begun that may be for nothing"
    assert searches.settled(1) is None
    searches.failed(1, second)
    assert searches.settled(1) is None
    assert not searches.found(1, 3, block("c"), 1.0)
    assert [searches.settled(1), searches.settled(1)] == [first, None]
    # The next attempt searches what is missing.
    assert not searches.begin(1, 2, {})
    assert searches.attempt(1) == 2
    assert [searches.next() for _ in range(4)] == [(1, 4), (1, 1), (1, 2), None]


@dataclass
class Sized:
    length: int


def test_a_batch_goes_on_as_its_parts_when_all_is_found() -> None:
    searches = Searches(2)
    searches.begin(1, 2, {})
    blocks = [cast(_core.BlockRef, Sized(length)) for length in (30, 12)]
    for block_of_fragment, (batch, fragment) in zip(blocks, iter(searches.next, None), strict=False):
        searches.found(batch, fragment, block_of_fragment, 4.0)
    assert searches.ready(1, 1).found_bytes == 42
    searches.divide(1, {2: 0.75, 3: 0.25})
    searches.forget(1)
    assert [searches.seconds(part) for part in (2, 3)] == [6.0, 2.0]
    assert searches.ready(2, 1).found == searches.ready(3, 1).found == blocks
    assert [searches.attempt(part) for part in (2, 3)] == [2, 2]
    # A part that fails begins anew with what was found.
    assert searches.begin(3, 3, {}) and searches.next() is None


def test_a_batch_that_is_split_is_forgotten() -> None:
    searches = Searches(2)
    searches.begin(1, 1, {})
    searches.forget(1)
    assert searches.next() is None and searches.share(1) == 0
