"""The MPIs that the tests here use."""

from __future__ import annotations

import pytest
from mpi_jobs import Mpi, find


@pytest.fixture(autouse=True)
def no_second_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests here count what the tool does: it is run again for comparison only where a test asks for it."""
    monkeypatch.setenv("MILLRACE_RUN_VERIFY", "0")


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
