"""Which values of a parameter have their turn in each run of the tests, and which with ``-m slow`` alone."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
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
