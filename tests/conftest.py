"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of the real test data; skips where it is missing."""
    path = Path(os.environ.get("MILLRACE_TEST_DATA", REPO.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"test data: no folder {path} (set MILLRACE_TEST_DATA)")
    return path
