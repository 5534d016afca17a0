"""Which values of a parameter have their turn in each run of the tests, and which with ``-m slow`` alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest


def again(*values: Any) -> Any:
    """Values of parameters that go the way of others, and have their turn with ``-m slow``."""
    return pytest.param(*values, marks=pytest.mark.slow)


def some(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """``values``, of which those that are not ``chosen`` go the way of one that is, and have their turn with ``-m slow``."""
    values = [*values]
    assert all(each in values for each in chosen)
    return [each if each in chosen else again(each) for each in values]


def crossed(ones: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """Each with the first of the others, and the first with each; all other pairs have their turn with ``-m slow``."""
    ones, others = [*ones], [*others]
    pairs = product(ones, others)
    return [(one, other) if one == ones[0] or other == others[0] else again(one, other) for one, other in pairs]


#: Families of tests are thinned but for those that start no process, and cost little.
UNTHINNED = "unit"


def thin_families(items: list[pytest.Item]) -> None:
    """Leave the square root of the cases of each test, rounded down, to ``make test``; all have their turn with ``-m slow``.

    The cases that stay are spread evenly, and the first is one of them: of two or three, it is the first alone. All cases
    of a test show what its name says. A case that shows more is a test of its own.
    """
    families: defaultdict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if UNTHINNED not in item.path.parts and not item.get_closest_marker("slow"):
            families[item.path, item.nodeid.partition("[")[0]].append(item)
    for family in families.values():
        n_kept = math.isqrt(len(family))
        kept = {len(family) * i // n_kept for i in range(n_kept)}
        for i, item in enumerate(family):
            if i not in kept:
                item.add_marker(pytest.mark.slow)
