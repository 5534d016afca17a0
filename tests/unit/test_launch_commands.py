"""Command lines of launchers, and what is passed on to ranks."""

from __future__ import annotations

from pathlib import Path
from socket import AF_INET, AF_INET6

import pytest

from millrace.core.errors import RefusedError
from millrace.launch import launch_commands
from millrace.launch.node_allocation import NodeAllocation

pytestmark = pytest.mark.process


def launcher_script(folder: Path, name: str, says: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)


def test_the_launcher_is_of_the_library_that_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    launcher_script(tmp_path, "mpirun", "HYDRA build details")
    launcher_script(tmp_path, "mpirun.openmpi", "mpirun (Open MPI) 4.1.4")
    environ = {"PATH": str(tmp_path)}
    assert launch_commands.choose_mpi_launcher(environ, "Open MPI v5.0.11").program == str(tmp_path / "mpirun.openmpi")
    assert launch_commands.choose_mpi_launcher(environ, "MPICH Version: 5.0.2").kind == "hydra"


def test_a_launcher_of_another_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    launcher_script(tmp_path, "mpirun", "HYDRA build details")
    with pytest.raises(RefusedError, match="is of another: HYDRA build details"):
        launch_commands.choose_mpi_launcher({"PATH": str(tmp_path)}, "Open MPI v5.0.11")


def test_srun_starts_ranks_where_the_library_has_no_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    launcher_script(tmp_path, "srun", "MPI plugin types are... none cray_shasta pmi2 pmix")
    chosen = launch_commands.choose_mpi_launcher(
        {"PATH": str(tmp_path), "SLURM_JOB_ID": "7"}, "MPI VERSION: CRAY MPICH version 8.1"
    )
    assert (chosen.kind, chosen.plugin) == ("srun", "cray_shasta")


def test_address_family_missing_on_a_node_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"both": (AF_INET, AF_INET6), "four": (AF_INET,), "six": (AF_INET6,)}
    monkeypatch.setattr("socket.getaddrinfo", lambda name, *_, **__: [(family,) for family in known[name]])
    found = [
        launch_commands.find_spare_address_family(nodes)
        for nodes in (["both", "four"], ["both", "six"], ["four", "six"], ["user@both"])
    ]
    assert found == ["6", "4", "", "6"]


@pytest.mark.parametrize("kind", ["openmpi", "hydra", "srun"])
def test_each_node_gets_one_rank(kind: launch_commands.Kind) -> None:
    words = launch_commands.build_ranks_command(
        launch_commands.RankLauncher(kind, "x", "y"), NodeAllocation("hosts", ("a", "b")), ["a", "b"], ["millrace", "run"],
        cwd=Path("/w"), forward=["BLASTDB"],
    )  # fmt: skip
    assert words[0] == "x"
    assert words[-2:] == ["millrace", "run"]
    assert "2" in " ".join(words).replace("=", " ").split()
    assert "/w" in " ".join(words)
    assert ("BLASTDB" in words) == (kind == "openmpi")


def test_user_variables_are_forwarded_to_the_ranks() -> None:
    """Those of the session are not."""
    environ = {
        "BLASTDB": "/db",
        "PATH": "/bin",
        "SLURM_JOB_ID": "7",
        "SSH_CLIENT": "x",
        "PWD": "/",
        "BASH_FUNC_a%%": "",
    }
    assert launch_commands.list_forwarded_variables(environ) == ["BLASTDB", "PATH"]
