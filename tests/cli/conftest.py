"""A folder for a shell line, in which nothing may be left over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from shell import Shell, dead_work_dirs, wait_for_none_left


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A prepared folder; afterwards no process and no work directory of it may be there."""
    made = Shell(tmp_path)
    made.prepare()
    before = dead_work_dirs()
    yield made
    wait_for_none_left(made, before)
