"""Which values of a parameter have their turn in each run of the tests, and which with ``-m slow`` alone."""

from __future__ import annotations

from collections.abc import Iterable
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
