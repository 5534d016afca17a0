"""Small real databases and queries, cut from the test data."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from exact_cases import make_bench


@pytest.fixture(scope="session")
def bench_of(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with databases and queries for every tool; see `make_bench`."""
    folder = tmp_path_factory.mktemp("exact")
    make_bench(data, folder)
    yield folder
    shutil.rmtree(folder)
