"""Allocations, launchers' command lines, what is passed on, and what counts as a sign of life."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import cast

import pytest

from millrace.cluster.transport.mpi_transport import MpiTransport
from millrace.core.errors import RefusedError
from millrace.host import core_allocation, work_places
from millrace.host.core_allocation import expand_node_list
from millrace.launch import heartbeat, launch_commands, sweep
from millrace.launch.heartbeat import MAX_MPI_START_SECONDS, MAX_SILENCE_SECONDS, MAX_START_SECONDS, CoordinatorSigns
from millrace.launch.job_start import LauncherOutputRelay, StdoutRelay
from millrace.launch.node_allocation import NodeAllocation, find_node_allocation, parse_hosts

pytestmark = pytest.mark.process

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("gpu-[1,3],login", ["gpu-1", "gpu-3", "login"]),
        ("r[1-2]n[1-2].site", ["r1n1.site", "r1n2.site", "r2n1.site", "r2n2.site"]),
    ],
)
def test_a_packed_list_of_nodes_is_unpacked(text: str, names: list[str]) -> None:
    assert list(expand_node_list(text)) == names


@pytest.mark.parametrize("text", ["", ",", "a b", "-rf", "a,$(x)"])
def test_invalid_host_is_refused(text: str) -> None:
    with pytest.raises(RefusedError):
        parse_hosts(text)


def test_named_hosts_override_the_job() -> None:
    assert find_node_allocation(("a,b", "a"), SLURM) == NodeAllocation("hosts", ("a", "b"))


def test_slurm_job_of_several_nodes_is_detected() -> None:
    assert find_node_allocation((), SLURM) == NodeAllocation("slurm", ("n1", "n2", "n3"))


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURMD_NODENAME": "n1"},
        {**SLURM, "MILLRACE_SUPERVISED": "1"},
        {**SLURM, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n2"},
    ],
    ids=["no job", "one node", "supervised", "a step of one node"],
)
def test_a_run_stays_on_its_machine(environ: dict[str, str]) -> None:
    assert find_node_allocation((), environ) is None


def test_shell_of_salloc_uses_the_granted_node() -> None:
    """It is started where it was typed, as a rule."""
    assert find_node_allocation((), {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}) == NodeAllocation(
        "slurm", ("n1",)
    )


#: What a heterogeneous job has, of two parts.
PARTS = {
    "SLURM_JOB_ID": "4", "SLURM_JOB_NODELIST": "n1", "SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURMD_NODENAME": "n1",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]", "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "1", "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "4(x2)",
}  # fmt: skip


def test_heterogeneous_job_is_used_whole() -> None:
    found = find_node_allocation((), PARTS)
    assert found == NodeAllocation("slurm", ("n1", "n2", "n3"))
    words = launch_commands.build_node_command(found, "n3", ["true"], PARTS)
    assert words[:2] == ["srun", "--het-group=1"] and words[-1] == "true"
    assert core_allocation.make_grant_variable(PARTS, lambda _: "") == {core_allocation.GRANTED: "n1=1 n2=4 n3=4"}


def test_hosts_of_other_batch_systems_are_detected(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("a 2 all.q@a UNDEFINED\nb 1 all.q@b UNDEFINED\nb 1 big.q@b UNDEFINED\n")
    engine = {"JOB_ID": "3", "PE_HOSTFILE": str(hosts), "NSLOTS": "4"}
    assert find_node_allocation((), engine) == NodeAllocation("grid engine", ("a", "b"))
    assert core_allocation.make_grant_variable(engine, lambda path: Path(path).read_text()) == {
        core_allocation.GRANTED: "a=2 b=2"
    }
    lsf = {"LSB_JOBID": "3", "LSB_MCPU_HOSTS": "a 2 b 4"}
    assert find_node_allocation((), lsf) == NodeAllocation("lsf", ("a", "b"))
    assert launch_commands.build_node_command(NodeAllocation("lsf", ("a", "b")), "b", ["true"], lsf) == [
        "blaunch",
        "b",
        "true",
    ]
    hosts.write_text("a\na\nb\n")
    assert find_node_allocation((), {"LSB_JOBID": "3", "LSB_DJOB_HOSTFILE": str(hosts)}) == NodeAllocation(
        "lsf", ("a", "b")
    )


def test_hyperqueue_task_stays_on_its_node() -> None:
    assert find_node_allocation((), {**SLURM, "HQ_TASK_ID": "0", "HQ_CPUS": "2,3"}) is None


def test_an_interactive_step_has_the_whole_job() -> None:
    interactive = {**SLURM, "SLURM_STEP_ID": str(0xFFFFFFFA), "SLURM_STEP_NODELIST": "n1"}
    assert find_node_allocation((), interactive) == NodeAllocation("slurm", ("n1", "n2", "n3"))


def test_the_nodes_of_a_pbs_job_count_once_each(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("a\na\nb\nb\n")
    environ = {"PBS_JOBID": "1.server", "PBS_NODEFILE": str(tmp_path / "nodes")}
    assert find_node_allocation((), environ) == NodeAllocation("pbs", ("a", "b"))


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


def test_file_of_output_is_recorded_before_its_first_byte(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"")
    with (tmp_path / "to").open("wb") as to:
        sizes: list[int] = []
        output = StdoutRelay(tmp_path / "stdout", to.fileno(), lambda: sizes.append((tmp_path / "to").stat().st_size))
        output.relay_new_output()
        assert sizes == [], "nothing of the tool's stands there"
        for content in (b"one", b"one, two"):
            (tmp_path / "stdout").write_bytes(content)
            output.relay_new_output()
    assert sizes == [0]
    assert (tmp_path / "to").read_bytes() == b"one, two"


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


def test_repeated_output_is_forwarded_once(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    reader, writer = os.pipe()
    output = StdoutRelay(path, writer)
    for content in (b"one ", b"one two", b"", b"one", b"one two three"):  # the third is a new start
        path.write_bytes(content)
        output.relay_new_output()
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"one two three"


def test_exit_message_of_the_launcher_is_kept_for_errors() -> None:
    """The relay hides it, and quotes it if the start fails."""
    reader, writer = os.pipe()
    words = LauncherOutputRelay(writer, all_of_it=False)
    frame = b"-" * 76 + b"\n"
    for part in (
        b"millrace: 10 %\n",
        b"\0[node1:17] PMIX ERROR\nhal",
        b"f\n" + frame,
        b"PRTE has lost\n",
        frame,
        b"millrace: 20 %",
    ):
        words.relay_content(part)
    words.relay_content(b"")
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"millrace: 10 %\nhalf\nmillrace: 20 %"
    assert words.quote_kept_lines() == "\n  [node1:17] PMIX ERROR\n  PRTE has lost"
    words.reset_for_start()
    assert not words.quote_kept_lines(), "it was of another start"


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


def test_mapped_shared_memory_is_not_removed(tmp_path: Path) -> None:
    for name in ("held", "dead", "young"):
        (tmp_path / name).write_bytes(b"x" * 4096)
        if name != "young":
            os.utime(tmp_path / name, (0, 0))
    with (tmp_path / "held").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert sweep.find_unused_segments(sorted(tmp_path.iterdir())) == [tmp_path / "dead"]


def test_only_shared_memory_of_mpich_is_unlinked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "(deleted)").write_text("the user's")
    gone, there = (Path(f"/dev/shm/mpich_shm_{os.urandom(8).hex()}") for _ in range(2))
    with ExitStack() as stack:
        for path in (gone, there):
            path.write_bytes(b"x" * 4096)
            file = stack.enter_context(path.open("rb"))
            stack.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        gone.unlink()
        MpiTransport.unlink_startup_memory(cast(MpiTransport, None))
        assert not there.exists()
    assert (tmp_path / "(deleted)").exists()


def test_sweep_ends_only_processes_with_the_token(tmp_path: Path) -> None:
    token = os.urandom(8).hex()
    by_environment = subprocess.Popen(["sleep", "600"], env={**os.environ, sweep.NAME: token})
    by_argument = subprocess.Popen(
        ["sh", "-c", "read _", f"--base={work_places.make_path_prefix(token)}0"], stdin=subprocess.PIPE
    )
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, sweep.NAME: "0" * 16})
    try:
        # Our own children: they are reaped only here, and a process that has ended but is not reaped counts as gone.
        assert sweep.sweep_this_node(token)
        assert by_environment.wait(300) == by_argument.wait(300) == -9
        assert other.poll() is None
    finally:
        for process in (by_environment, by_argument, other):
            process.kill()
            process.communicate()


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
