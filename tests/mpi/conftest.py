"""The MPIs that the tests here use."""

from __future__ import annotations

import pytest
from jobs import Mpi, find


@pytest.fixture(params=["openmpi", "mpich"], scope="session")
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return find(request.param)


@pytest.fixture(params=["openmpi", pytest.param("mpich", marks=pytest.mark.slow)], scope="session")
def an_mpi(request: pytest.FixtureRequest) -> Mpi:
    """For what goes the same ways under both; the other one has its turn with ``-m slow``."""
    return find(request.param)


@pytest.fixture(scope="session")
def openmpi() -> Mpi:
    return find("openmpi")
