"""What is taken up of batches that were at work when a run ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.core.tool_use import InputUse
from millrace.execution.resume import find_partial_searches
from millrace.node.batch_files import BatchLimits, EndOfInput, SkippedRecords, SpooledBatch
from millrace.node.input_feeder import InputFeeder


@dataclass(frozen=True)
class Task:
    """A committed task, as far as it matters here."""

    first: int
    last: int
    fragment: int = 0
    block: str = ""
    quarantined: bool = False
    inputs: Sequence[tuple[int, int]] = ((1, 1),)

    @property
    def blocks(self) -> list[str]:
        return [self.block]


def taken_up(tasks: list[Task], done: list[Task]) -> dict[tuple[int, int], dict[int, str]]:
    found = find_partial_searches(cast(list[_core.TaskRef], tasks), cast(list[_core.TaskRef], done))
    assert found == sorted(found, key=lambda batch: batch.first)
    return cast(dict[tuple[int, int], dict[int, str]], {(batch.first, batch.last): batch.found for batch in found})


def test_searches_of_unfinished_batches_are_reused() -> None:
    done = Task(0, 3)
    tasks = [Task(0, 3, 1, "a"), Task(3, 6, 1, "b"), Task(0, 3, 2, "c"), done, Task(6, 9, 2, "d"), Task(3, 6, 2, "e")]
    assert taken_up(tasks, [done]) == {(3, 6): {1: "b", 2: "e"}, (6, 9): {2: "d"}}


def test_split_batch_counts_by_its_parts_only() -> None:
    tasks = [Task(0, 8, 1, "whole"), Task(8, 9, 1, "next"), Task(0, 4, 1, "part")]
    assert taken_up(tasks, []) == {(0, 4): {1: "part"}, (8, 9): {1: "next"}}
    given_up = Task(2, 3, quarantined=True)
    assert taken_up([Task(0, 8, 1, "whole"), given_up], [given_up]) == {}


def test_batch_committed_twice_counts_once() -> None:
    assert taken_up([Task(0, 2, 1, "first"), Task(0, 2, 1, "again")], []) == {(0, 2): {1: "again"}}
    changed = Task(0, 2, 2, "of another input", inputs=((9, 9),))
    assert taken_up([changed, Task(0, 2, 1, "a")], []) == {(0, 2): {1: "a"}}


class Fed:
    """A feeder over nine records, read in its own thread's place."""

    def __init__(self, folder: Path, done: Sequence[Task], begun: Sequence[Task]) -> None:
        path = folder / "q.fa"
        path.write_text("".join(f">r{k}\nMKV\n" for k in range(9)))
        self.feeder = InputFeeder(
            [InputUse(path=str(path), format="fasta")], [_core.Reader([str(path)], "fasta")], folder,
            [(task.first, task.last, task.inputs) for task in done], lambda: None,
            [(task.first, task.last, task.inputs) for task in begun],
        )  # fmt: skip

    def cut(self, records: int) -> list[tuple[str, int, int]]:
        self.feeder._answer_request(BatchLimits(records))
        found = []
        while self.feeder.results:
            match self.feeder.results.popleft():
                case SpooledBatch() as batch:
                    found.append(("cut", batch.first, batch.last))
                case SkippedRecords() as skipped:
                    found.append(("skipped", skipped.first, skipped.last))
                case EndOfInput(records):
                    found.append(("end", records, records))
        return found


def extents(folder: Path, *bounds: tuple[int, int]) -> list[Task]:
    text = "".join(f">r{k}\nMKV\n" for k in range(9)).encode()
    size = len(b">r0\nMKV\n")
    return [
        Task(first, last, inputs=((size * (last - first), _core.crc32c(text[first * size : last * size])),))
        for first, last in bounds
    ]


def test_unfinished_batches_are_cut_as_before(tmp_path: Path) -> None:
    fed = Fed(tmp_path, extents(tmp_path, (2, 4)), extents(tmp_path, (4, 7), (8, 9)))
    assert fed.cut(5) == [("cut", 0, 2)], "up to what is done"
    assert fed.cut(5) == [("skipped", 2, 4), ("cut", 4, 7)]
    assert fed.cut(5) == [("cut", 7, 8)], "up to what was begun"
    assert fed.cut(5) == [("cut", 8, 9)]
    assert fed.cut(5) == [("end", 9, 9)]


def test_changed_input_is_refused(tmp_path: Path) -> None:
    fed = Fed(tmp_path, [], [Task(0, 3, inputs=((24, 1),))])
    with pytest.raises(CorruptError, match="records 1 to 3 are not what they were"):
        fed.cut(9)


@pytest.mark.parametrize(("done", "begun"), [([(0, 3), (9, 12)], []), ([(0, 3)], [(9, 12)])], ids=["done", "begun"])
def test_input_shorter_than_the_done_part_is_refused(
    tmp_path: Path, done: list[tuple[int, int]], begun: list[tuple[int, int]]
) -> None:
    def all_of(bounds: list[tuple[int, int]]) -> list[Task]:
        return extents(tmp_path, *bounds)

    fed = Fed(tmp_path, all_of(done), all_of(begun))
    assert fed.cut(9) == [("skipped", 0, 3), ("cut", 3, 9)]
    with pytest.raises(CorruptError, match="records 10 to 12 are not what they were"):
        fed.cut(9)
