"""Numbers of task kinds in the journal: the kind of a block, besides its records. Nothing else numbers them so.

0 is a part of the output by itself, and the numbers of fragments stand for themselves. Above these, the number of
a slice or share contains how many there are. Old journals have these numbers too: they must not change.
"""

from __future__ import annotations

from millrace.tasks import CompareTask, FinishTask, RankTask, SearchTask, SliceTask, TaskKind, WholeTask

#: Bits of the number of a slice or share. The bit above says that it is a share; their total is above that.
_BITS = 15

#: Maximum number of slices of one record.
MAX_SLICES = (1 << _BITS) - 1

#: Largest number of a fragment or a comparison.
_FRAGMENTS = (1 << _BITS + 1) - 1

#: Output that is only compared with results.
_COMPARE = _FRAGMENTS

#: The same, from a tool that found the outputs' earlier content.
_COMPARE_OVER = _COMPARE - 1


def encode_task_kind(kind: TaskKind) -> int:
    """Return the number of blocks from tasks of this kind.

    >>> [encode_task_kind(kind) for kind in (WholeTask(), FinishTask(), SearchTask(7), CompareTask(), CompareTask(over=True), SliceTask(0, 2), RankTask(1, 2))]
    [0, 0, 7, 65535, 65534, 131072, 163841]
    """
    match kind:
        case WholeTask() | FinishTask():
            return 0
        case SearchTask(fragment):
            return fragment
        case CompareTask(over):
            return _COMPARE_OVER if over else _COMPARE
        case SliceTask(number, of):
            return of << _BITS + 1 | number
        case RankTask(number, of):
            return (of << 1 | 1) << _BITS | number


def decode_task_kind(number: int) -> TaskKind:
    """Return the kind of task that wrote a block; ``Whole`` for a part of the output by itself.

    >>> [decode_task_kind(number) for number in (0, 7, 65535, 65534, 131072, 163841)]
    [WholeTask(), SearchTask(fragment=7), CompareTask(over=False), CompareTask(over=True), SliceTask(number=0, of=2), RankTask(number=1, of=2)]
    """
    if number == 0:
        return WholeTask()
    if number in (_COMPARE, _COMPARE_OVER):
        return CompareTask(over=number == _COMPARE_OVER)
    if number < _COMPARE_OVER:
        return SearchTask(number)
    is_share = bool(number >> _BITS & 1)
    return (RankTask if is_share else SliceTask)(number & MAX_SLICES, number >> _BITS + 1)
