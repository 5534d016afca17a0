"""A folder with a small tool of our own, and Millrace in front of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_site import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
