"""Whatever the order in which batches arrive, they leave in the input's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace import _core
from millrace.core.tasks import RankTask, SliceTask, encode_task_kind
from millrace.output.output_parts import ReorderBuffer, select_effective_tasks


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_batches_leave_in_input_order_as_soon_as_they_can(sizes: list[int], random: object) -> None:
    extents, first = [], 0
    for size in sizes:
        extents.append((first, first + size))
        first += size
    arrived = list(extents)
    random.shuffle(arrived)  # type: ignore[attr-defined]
    ordered: ReorderBuffer[int] = ReorderBuffer()
    left: list[tuple[int, int, int]] = []
    for n, (begin, end) in enumerate(arrived, 1):
        left.extend(ordered.push(begin, end, begin))
        here = set(arrived[:n])
        whole = next((k for k, extent in enumerate(extents) if extent not in here), len(extents))
        assert len(left) == whole, "held back without need, or let go too early"
        assert ordered.waiting == n - whole
    assert left == [(begin, end, begin) for begin, end in extents]
    assert ordered.next == first


def test_single_batch_of_an_empty_input_leaves_once() -> None:
    ordered: ReorderBuffer[str] = ReorderBuffer()
    assert list(ordered.push(0, 0, "header")) == [(0, 0, "header")]
    assert ordered.waiting == 0


def task(fragment: int) -> _core.TaskRef:
    """What was committed for record 3, in a block that has the number for its place."""
    return _core.TaskRef("journal", (3, 4, fragment), False, [(9, 9)], [(0, b"", fragment, 1, 0)])


@given(st.integers(1, 5), st.data())
def test_slices_count_once_complete_and_in_order(n: int, data: st.DataObject) -> None:
    codes = [encode_task_kind(SliceTask(number, n)) for number in range(n)]
    # A fragment, ranks, and most of another cut.
    others = [
        7,
        *(encode_task_kind(RankTask(number, n)) for number in range(n)),
        *(encode_task_kind(SliceTask(number, n + 1)) for number in range(n)),
    ]
    here = data.draw(st.lists(st.sampled_from([*codes, *others]), max_size=15))
    counting = select_effective_tasks(map(task, here))
    if set(codes) <= set(here):
        assert [[block.offset for block in result.blocks] for result in counting] == [codes]
        assert [(result.first, result.last, [*result.inputs]) for result in counting] == [(3, 4, [(9, 9)])]
    else:
        assert not counting
    assert [result.blocks[0].offset for result in select_effective_tasks(map(task, [0, *here]))] == [0], (
        "what came first counts"
    )
