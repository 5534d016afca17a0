"""Numbers of task kinds in the journal: the kind of a block, besides its records. Nothing else numbers them so.

0 is a part of the output by itself, and the numbers of fragments stand for themselves. Above these, the number of
a slice or share contains how many there are. Old journals have these numbers too: they must not change.
"""

from __future__ import annotations

from millrace.tasks import Compare, Finish, Kind, Rank, Search, Slice, Whole

#: Bits of the number of a slice or share. The bit above says that it is a share; their total is above that.
_BITS = 15

#: Maximum number of slices of one record.
MOST_SLICES = (1 << _BITS) - 1

#: Largest number of a fragment or a comparison.
_FRAGMENTS = (1 << _BITS + 1) - 1

#: Output that is only compared with results.
_COMPARE = _FRAGMENTS

#: The same, from a tool that found the outputs' earlier content.
_COMPARE_OVER = _COMPARE - 1


def number_of(kind: Kind) -> int:
    """Return the number of blocks from tasks of this kind.

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
    """Return the kind of task that wrote a block; ``Whole`` for a part of the output by itself.

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
