"""A folder with a small tool of our own, and Millrace in front of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_site import Site


@pytest.fixture(autouse=True)
def no_second_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests here count what the tool does: it is run again for comparison only where a test asks for it."""
    monkeypatch.setenv("MILLRACE_RUN_VERIFY", "0")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
