"""The journal's own numbers of kinds of tasks: what a block is of, besides its records. Nothing else counts so.

0 is what is part of the output by itself, and the numbers of fragments stand for themselves. Above these, the number of
a slice or of a share says how many there are. Old journals have these numbers too: they stay.
"""

from __future__ import annotations

from millrace.tasks import Compare, Finish, Kind, Rank, Search, Slice, Whole

#: Bits of the number of a slice or share. The bit above says that it is a share; how many there are is above that.
_BITS = 15

#: Most slices of one record.
MOST_SLICES = (1 << _BITS) - 1

#: What is above this is no fragment.
_FRAGMENTS = (1 << _BITS + 1) - 1

#: What is written only to be compared with results.
_COMPARE = _FRAGMENTS

#: The same, over what the outputs held before.
_COMPARE_OVER = _COMPARE - 1


def number_of(kind: Kind) -> int:
    """The number of what tasks of this kind write.

    >>> [number_of(kind) for kind in (Whole(), Finish(), Search(7), Compare(), Compare(over=True), Slice(0, 2), Rank(1, 2))]
    [0, 0, 7, 65535, 65534, 131072, 163841]
    """
    match kind:
        case Whole() | Finish():
            return 0
        case Search(fragment):
            return fragment
        case Compare(over):
            return _COMPARE_OVER if over else _COMPARE
        case Slice(number, of):
            return of << _BITS + 1 | number
        case Rank(number, of):
            return (of << 1 | 1) << _BITS | number


def kind_of(number: int) -> Kind:
    """What wrote it; of what is part of the output by itself, `Whole`.

    >>> [kind_of(number) for number in (0, 7, 65535, 65534, 131072, 163841)]
    [Whole(), Search(fragment=7), Compare(over=False), Compare(over=True), Slice(number=0, of=2), Rank(number=1, of=2)]
    """
    if number == 0:
        return Whole()
    if number in (_COMPARE, _COMPARE_OVER):
        return Compare(over=number == _COMPARE_OVER)
    if number < _COMPARE_OVER:
        return Search(number)
    is_share = bool(number >> _BITS & 1)
    return (Rank if is_share else Slice)(number & MOST_SLICES, number >> _BITS + 1)
