"""The MPIs that the tests here use, and what they share with those of exactness."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import REPO, Mpi, find


def _fixture(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"shared_{path.parent.name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


bench_of = _fixture(REPO / "tests" / "exact" / "conftest.py", "bench_of")

Site = _fixture(REPO / "tests" / "crash" / "conftest.py", "Site")


@pytest.fixture(params=["openmpi", "mpich"], scope="session")
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return find(request.param)


@pytest.fixture(scope="session")
def openmpi() -> Mpi:
    return find("openmpi")
