"""What counts as a sign of life of the coordinator."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.launch import heartbeat
from millrace.launch.heartbeat import MAX_MPI_START_SECONDS, MAX_SILENCE_SECONDS, MAX_START_SECONDS, CoordinatorSigns


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock says, which a test sets."""
    shown = [100.0]
    monkeypatch.setattr("millrace.launch.heartbeat.time.monotonic", lambda: shown[0])
    return shown


def test_silence_is_counted_from_the_last_heartbeat(tmp_path: Path, now: list[float]) -> None:
    signs = CoordinatorSigns(tmp_path)
    signs.reset_for_start()
    signs.read_heartbeat()
    now[0] += MAX_START_SECONDS - 1  # nobody is heard before MPI has started
    assert not signs.get_excessive_silence(4, 1.0)
    (tmp_path / "heartbeat").write_text("1 40\n")
    signs.read_heartbeat()
    assert signs.records == 40
    now[0] += MAX_SILENCE_SECONDS + 1
    signs.read_heartbeat()
    assert signs.get_excessive_silence(4, 1.0) > MAX_SILENCE_SECONDS
    assert not signs.get_excessive_silence(4, 2.0)
    (tmp_path / "heartbeat").write_text("2 41\n")
    signs.read_heartbeat()
    assert not signs.get_excessive_silence(4, 1.0)


def test_silence_limit_grows_with_nodes_during_mpi_start(tmp_path: Path, now: list[float]) -> None:
    signs = CoordinatorSigns(tmp_path)
    signs.reset_for_start()
    beating = heartbeat.CoordinatorHeartbeat(signs.environ["MILLRACE_HEARTBEAT"])
    beating.starting = True
    beating.write_beat()
    signs.read_heartbeat()
    now[0] += MAX_SILENCE_SECONDS + 1.0
    assert signs.get_excessive_silence(1, 1.0)
    assert not signs.get_excessive_silence(1000, 1.0)
    beating.starting = False
    beating.write_beat()
    signs.read_heartbeat()
    now[0] += MAX_SILENCE_SECONDS + 1.0
    assert signs.get_excessive_silence(1000, 1.0)


def test_mpi_start_over_its_limit_ends_despite_heartbeats(tmp_path: Path, now: list[float]) -> None:
    signs = CoordinatorSigns(tmp_path)
    signs.reset_for_start()
    beating = heartbeat.CoordinatorHeartbeat(signs.environ["MILLRACE_HEARTBEAT"])
    waited = []
    for beating.starting, seconds in (
        (False, 40.0),
        (True, MAX_MPI_START_SECONDS),
        (True, 0.5),
        (True, 40.0),
        (False, 1.0),
    ):
        beating.write_beat()
        signs.read_heartbeat()
        now[0] += seconds
        assert seconds == 40.0 or not signs.get_excessive_silence(1000, 1.0)
        waited.append(
            [signs.get_excessive_mpi_wait(n_nodes, patience) for n_nodes, patience in ((1, 1.0), (10, 1.0), (1, 2.0))]
        )
    later = MAX_MPI_START_SECONDS + 40.5
    assert waited == [[0, 0, 0], [0, 0, 0], [MAX_MPI_START_SECONDS + 0.5, 0, 0], [later, later, later], [0, 0, 0]]
    beating.starting = True
    beating.write_beat()
    signs.read_heartbeat()
    now[0] += later
    assert signs.get_excessive_mpi_wait(1, 1.0)
    signs.reset_for_start()
    assert not signs.get_excessive_mpi_wait(1, 1.0), "it was of another start"


def test_coordinator_late_after_the_others_is_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    signs = CoordinatorSigns(tmp_path)
    for took, limit in ((1.0, MAX_SILENCE_SECONDS), (5.0, 15.0), (15.0, MAX_START_SECONDS)):
        signs.reset_for_start()
        begun, now[0] = now[0], now[0] + took
        assert heartbeat.start_heartbeat({**signs.environ, "PMI_RANK": "2", "PMI_SIZE": "3"}) is None
        signs.read_heartbeat()
        now[0] = begun + limit - 0.1
        assert not signs.get_excessive_silence(1, 1.0)
        now[0] = begun + limit + 0.2
        assert signs.get_excessive_silence(1, 1.0)


def test_exit_code_is_that_of_the_coordinator(tmp_path: Path) -> None:
    signs = CoordinatorSigns(tmp_path)
    signs.reset_for_start()
    assert signs.read_exit_code() is None
    (tmp_path / "done").write_text("3\n")
    assert signs.read_exit_code() == 3
    signs.reset_for_start()
    assert signs.read_exit_code() is None
    (tmp_path / "done").write_text("again\n")
    assert signs.read_exit_code() is None and signs.is_restart_requested()


def test_signals_are_forwarded_one_per_line(tmp_path: Path) -> None:
    signs = CoordinatorSigns(tmp_path)
    signs.reset_for_start()
    signs.pass_on_signals([10])
    signs.pass_on_signals([10, 10])
    assert (tmp_path / "stop").read_text() == "10\n10\n"


@pytest.mark.process
def test_heartbeat_starts_before_slow_imports(tmp_path: Path) -> None:
    beats = tmp_path / "heartbeat"
    code = (
        "import os, sys, time\nfrom millrace.launch import heartbeat\nassert heartbeat.start_heartbeat(os.environ)\n"
        f"while not os.path.exists({str(beats)!r}) or not (beat := open({str(beats)!r}).read()): time.sleep(0.001)\n"
        "print(*sys.modules)\nprint(beat, end='')"
    )
    environ = {**os.environ, "MILLRACE_HEARTBEAT": str(beats), "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=300, check=True
    )
    modules, beat = done.stdout.splitlines()
    assert not {"click", "msgspec", "mpi4py", "millrace.cli", "millrace.execution"} & set(modules.split())
    assert re.fullmatch(r"\d+ 0", beat)


def test_only_the_coordinator_has_a_heartbeat(tmp_path: Path) -> None:
    environ = {**CoordinatorSigns(tmp_path).environ, "PMI_RANK": "3", "PMI_SIZE": "4"}
    assert heartbeat.start_heartbeat(environ) is None
    assert heartbeat.start_heartbeat({}) is None
