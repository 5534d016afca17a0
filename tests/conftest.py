"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real test data; tests that need it skip where it is missing."""
    folder = Path(os.environ.get("MILLRACE_TEST_DATA", REPO.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no test data at {folder} (MILLRACE_TEST_DATA)")
    return folder
