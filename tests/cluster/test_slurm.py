"""Runs in the jobs of a real Slurm."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import harness
import process_lookup
import pytest
import web_server
from cluster_site import Site, installation
from mpi_jobs import NO_SILENCE, find, with_limits
from private_slurm import Slurm, everybody
from tool_batches import need

from millrace.host import work_places
from millrace.launch.heartbeat import MAX_SILENCE_SECONDS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "slurm-job"


@pytest.fixture
def submit(slurm: Slurm, millrace: str, site: Site):  # type: ignore[no-untyped-def]
    """Submit with ``millrace slurm``; returns the job's number."""

    def one(*options: str, sleep: str = "0.1", command: str = millrace) -> str:
        words = [command, "slurm", "-N", str(slurm.n_nodes), "-t", "10:00", *options, *site.options()]
        done = subprocess.run(
            words, cwd=site.folder, env={**slurm.environ, "SLEEP": sleep}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    yield one
    slurm.command("scancel", "--user=root")
    slurm.wait(lambda: not slurm.command("squeue", "--noheader"), "an empty queue")


def log(site: Site, job: str) -> str:
    path = site.folder / f"tool-{job}.log"
    return path.read_text(errors="replace") if path.exists() else ""


def ends_well(slurm: Slurm, site: Site, job: str, seconds: float = harness.LONGEST_SECONDS) -> None:
    slurm.wait(lambda: slurm.state(job) in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"), "end", seconds)
    assert slurm.state(job) == "COMPLETED", log(site, job)
    assert site.output.read_bytes() == site.expected
    assert site.left_over() == []


def at_work(site: Site) -> list[int]:
    """Processes in the site's folder."""
    found = []
    for pid in everybody():
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/cwd") == str(site.folder):
                found.append(pid)
    return found


def launcher_folders(site: Site) -> set[Path]:
    """What the MPI launcher keeps on the nodes for the job at work, which are one machine here."""
    # The supervisor has no name of one: it makes them.
    names = {process_lookup.environment(pid).get(work_places.LAUNCHER_VARIABLE.encode()) for pid in at_work(site)}
    found = {Path(os.fsdecode(name)) for name in names if name}
    assert found and all(path.is_dir() for path in found)
    return found


def are_gone(slurm: Slurm, folders: set[Path]) -> None:
    slurm.wait(lambda: not any(path.exists() for path in folders), "removed folders of the launcher")


def test_a_job_of_several_nodes_is_used_whole(slurm: Slurm, site: Site, submit) -> None:  # type: ignore[no-untyped-def]
    job = submit()
    ends_well(slurm, site, job)
    assert "3 nodes of the Slurm job" in log(site, job)
    assert "in 3 processes" in log(site, job)


def test_slurm_example_writes_the_serial_bytes(slurm: Slurm, site: Site, millrace: str) -> None:
    """The folder of examples/, as it is, on two nodes."""
    need("blastp")
    folder = site.folder / "slurm-job"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("out"))
    path = os.pathsep.join([str(Path(millrace).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["./run", "--partition", "main"], cwd=folder, env={**slurm.environ, "PATH": path}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=harness.LONGEST_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    logs = "".join(path.read_text() for path in (folder / "out").glob("example-*.log"))
    assert "2 nodes of the Slurm job" in logs and (folder / "out" / "hits.tsv").stat().st_size > 100


@pytest.mark.parametrize(("options", "n"), [("-n2 -c1", 2), ("-n1", 1)])
def test_a_job_on_one_node_uses_the_cores_that_it_has_asked_for(
    slurm: Slurm, site: Site, millrace: str, options: str, n: int
) -> None:
    """Also where Slurm does not keep it to them."""
    plan = shlex.join([millrace, "plan", "--input", "in.fa", "--output", "out.fa", "--", "./tool", "in.fa", "out.fa"])
    words = ["sbatch", "--wait", "-N1", *options.split(), "--output=said", f"--wrap={plan}"]
    subprocess.run(words, cwd=site.folder, env=slurm.environ, capture_output=True, check=True, timeout=300)
    assert f"slots: {n} (granted by Slurm: SLURM_JOB_CPUS_PER_NODE" in (site.folder / "said").read_text()


def test_timed_out_job_is_requeued_and_resumes(slurm: Slurm, site: Site, submit) -> None:  # type: ignore[no-untyped-def]
    with site.held():
        job = submit()
        slurm.wait(lambda: site.under_way, "results")
        slurm.command("scancel", "--batch", "--signal=USR1", job)  # as Slurm does before the wall time is over
        slurm.wait(lambda: "no more work is handed out" in log(site, job), "the signal")
    slurm.wait(lambda: "going back into the queue" in log(site, job), "requeue")
    slurm.wait(lambda: slurm.state(job) == "PENDING", "requeued job")
    assert site.written < len(site.expected)
    # Else two minutes later; but not in the second of the requeue, whose credentials Slurm has revoked.
    slurm.command("scontrol", "update", f"JobId={job}", "StartTime=now+3")
    ends_well(slurm, site, job)
    assert "by earlier runs" in log(site, job)


def preempt(slurm: Slurm) -> str:
    """Submit a job that takes all nodes of others; its number."""
    return slurm.command(
        "sbatch", "--parsable", "-p", "urgent", "-N3", "--exclusive", "--output=/dev/null", "--wrap=true"
    )


def test_preempted_job_stops_in_order_and_is_requeued(slurm: Slurm, site: Site, submit) -> None:  # type: ignore[no-untyped-def]
    with site.held():
        job = submit()
        slurm.wait(lambda: site.under_way, "results")
        folders = launcher_folders(site)
        urgent = preempt(slurm)
        slurm.wait(lambda: "Slurm ends this job: it is preempted" in log(site, job), "the end of the steps")
    slurm.wait(lambda: "stopped by SIGTERM; everything done so far is kept" in log(site, job), "end of the run")
    assert "starting again" not in log(site, job)
    are_gone(slurm, folders)
    slurm.wait(lambda: slurm.state(urgent) == "COMPLETED", "end of the urgent job")
    slurm.wait(lambda: slurm.state(job) == "PENDING", "requeued job")
    slurm.command("scontrol", "update", f"JobId={job}", "StartTime=now+3")
    ends_well(slurm, site, job)
    assert "by earlier runs" in log(site, job)


#: A supervisor that waits for the end of a file before it looks which nodes answer, once a start has ended.
SLOW_TO_LOOK = """
import time
from pathlib import Path
from millrace.launch import node_sweeps
sweep_all = node_sweeps.sweep_all_nodes
def later(*words):
    Path("has-ended").touch()
    while Path("gate").exists():
        time.sleep(0.05)
    return sweep_all(*words)
node_sweeps.sweep_all_nodes = later
"""


@pytest.mark.usefixtures("submit")
def test_job_preempted_between_starts_is_not_restarted(slurm: Slurm, site: Site) -> None:
    """The signal comes after the end of one start and before the next."""
    (site.folder / "gate").touch()
    mpi = find("openmpi")
    words = [mpi.millrace, "slurm", "--dry-run", "-N3", "-t", "10:00", *site.options()]
    script = subprocess.run(words, cwd=site.folder, capture_output=True, text=True, check=True).stdout
    assert mpi.millrace in script
    script = script.replace(mpi.millrace, with_limits(mpi, site.folder, SLOW_TO_LOOK).millrace)
    with site.held():
        job = subprocess.run(
            ["sbatch", "--parsable"], input=script, cwd=site.folder, env=slurm.environ, capture_output=True, text=True, check=True
        ).stdout.strip()  # fmt: skip
        slurm.wait(lambda: site.under_way, "results")
        launchers = [pid for pid in at_work(site) if "/prterun --host" in process_lookup.arguments(pid)]
        os.kill(process_lookup.only(launchers), signal.SIGKILL)
        slurm.wait(lambda: (site.folder / "has-ended").exists(), "the end of the start")
        preempt(slurm)
        slurm.wait(lambda: "PreemptTime=2" in slurm.command("scontrol", "show", "job", job), "preemption")
        (site.folder / "gate").unlink()
        slurm.wait(lambda: "Slurm ends this job: it is preempted" in log(site, job), "word of it")
    slurm.wait(lambda: "stopped by SIGTERM; everything done so far is kept" in log(site, job), "end of the run")
    assert "starting again" not in log(site, job)
    slurm.wait(lambda: slurm.state(job) == "PENDING", "requeued job")


def test_a_job_that_is_cancelled_leaves_nothing_on_its_nodes(slurm: Slurm, site: Site, submit) -> None:  # type: ignore[no-untyped-def]
    with site.held():
        job = submit()
        slurm.wait(lambda: site.under_way, "results")
        folders = launcher_folders(site)
        slurm.command("scancel", job)
        slurm.wait(lambda: slurm.state(job) == "CANCELLED", "end")
        are_gone(slurm, folders)


def test_a_job_without_one_result_is_not_queued_again(slurm: Slurm, site: Site, submit) -> None:  # type: ignore[no-untyped-def]
    job = submit(sleep="600")
    for words in ("in 3 processes", "at once"):  # the second is not patient with the tools
        slurm.wait(lambda: words in log(site, job), words)  # noqa: B023
        slurm.command("scancel", "--batch", "--signal=USR1", job)
    slurm.wait(lambda: slurm.state(job) == "FAILED", "end")
    assert "not one result within the wall time" in log(site, job)


def test_lost_node_does_not_end_the_job(slurm: Slurm, site: Site, submit) -> None:  # type: ignore[no-untyped-def]
    try:
        with site.held():
            job = submit()
            slurm.wait(lambda: site.under_way, "results")
            folders = launcher_folders(site)
            slurm.kill("n3")
            slurm.wait(lambda: "starting again on 2 nodes (n3 not answering)" in log(site, job), "a new start")
        ends_well(slurm, site, job)
        are_gone(slurm, folders)
    finally:
        slurm.restart("n3")
        slurm.wait(lambda: slurm.states().count("idle") == slurm.n_nodes, "nodes that are idle")


#: The command with a watch over the node of the batch script that asks often, as Slurm is quick here to give up a node.
OFTEN = "from millrace.launch import batch_host\nbatch_host.POLL_INTERVAL_SECONDS = 1.0\n"


def is_watched(job: str) -> bool:
    """Tell whether the watch over the batch script's node has begun, and not only the ``srun`` that starts it."""
    lines = [process_lookup.arguments(int(each.name)) for each in Path("/proc").glob("[0-9]*")]
    return any(
        f"-m millrace.launch.batch_host {job}" in line and Path(line.split()[0]).name.startswith("python")
        for line in lines
    )


def test_job_whose_batch_node_is_lost_is_queued_again(slurm: Slurm, site: Site, submit) -> None:  # type: ignore[no-untyped-def]
    mpi = find("openmpi")
    words = [mpi.millrace, "slurm", "--dry-run", "-N3", "-t", "10:00", *site.options()]
    script = subprocess.run(words, cwd=site.folder, capture_output=True, text=True, check=True).stdout
    script = script.replace(mpi.millrace, with_limits(mpi, site.folder, OFTEN).millrace)
    with site.held():
        job = subprocess.run(
            ["sbatch", "--parsable"], input=script, cwd=site.folder, env=slurm.environ, capture_output=True, text=True, check=True
        ).stdout.strip()  # fmt: skip
        slurm.wait(lambda: site.under_way and is_watched(job), "results, and the watch on another node")
        batch_node = slurm.command("scontrol", "show", "job", job).partition("BatchHost=")[2].split()[0]
        slurm.kill(batch_node)
        try:
            slurm.wait(lambda: slurm.state(job) != "RUNNING", "the end of a job at which nobody works")
            assert "Restarts=1" in slurm.command("scontrol", "show", "job", job)
        finally:
            slurm.restart(batch_node)
    slurm.wait(lambda: slurm.state(job) == "PENDING" or "by earlier runs" in log(site, job), "requeued job")
    slurm.command("scontrol", "update", f"JobId={job}", "StartTime=now+3")
    ends_well(slurm, site, job)
    assert "by earlier runs" in log(site, job)


def test_suspended_job_continues_without_a_new_start(slurm: Slurm, site: Site, submit) -> None:  # type: ignore[no-untyped-def]
    with site.held():
        job = submit()
        slurm.wait(lambda: site.under_way, "results")
        slurm.command("scontrol", "suspend", job)
        slurm.wait(lambda: slurm.state(job) == "SUSPENDED", "suspension")
        time.sleep(MAX_SILENCE_SECONDS + 2)  # longer than a coordinator that runs may be silent
        slurm.command("scontrol", "resume", job)
    ends_well(slurm, site, job)
    assert "starting again" not in log(site, job) and "no sign of life" not in log(site, job)


def in_salloc(slurm: Slurm, site: Site, *words: str, stdin: int | IO[bytes] = subprocess.DEVNULL) -> tuple[str, str]:
    """Run a command that ends well in an allocation, from where it is typed; what it writes, and what is said."""
    done = subprocess.run(
        ["salloc", *words], cwd=site.folder, env=slurm.environ, capture_output=True, text=True, stdin=stdin, timeout=harness.LONGEST_SECONDS
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert site.left_over() == []
    return done.stdout, done.stderr


def test_salloc_of_one_node_computes_there(slurm: Slurm, site: Site) -> None:
    """Without MPI, which this installation has not."""
    (site.folder / "tool").write_text('#!/bin/sh\nsed "s/^>.*/& $SLURMD_NODENAME/"\n')
    millrace = str(Path(sys.executable).with_name("millrace"))
    words = ["run", "--slots", "2", "--batch", "4", "--format", "fasta", "--", "./tool"]
    with (site.folder / "in.fa").open("rb") as records:
        written, _ = in_salloc(slurm, site, "-N1", "-w", "n2", millrace, *words, stdin=records)
    names = [line for line in written.splitlines() if line.startswith(">")]
    assert names == [f">record{k} n2" for k in range(site.n)]


@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow)])
def test_heterogeneous_job_is_computed_on_all_its_nodes(slurm: Slurm, site: Site, mpi: str) -> None:
    _, said = in_salloc(slurm, site, "-N1", ":", "-N2", find(mpi).millrace, "run", *site.options("--batch", "16"))
    assert "3 nodes of the Slurm job" in said and "in 3 processes" in said
    assert site.output.read_bytes() == site.expected


def started_by_srun(slurm: Slurm, site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    """A job that Slurm starts without a launcher of ours."""
    limits = {"timeout": harness.LONGEST_SECONDS, "check": False}
    return subprocess.run(
        ["srun", *words], cwd=site.folder, env=slurm.environ, capture_output=True, text=True, **limits
    )  # type: ignore[call-overload,no-any-return]


#: What Slurm says where MPICH's message was too long for it; see `test_message_too_long_for_slurm_matters_only_with_srun`.
TOO_LONG = "mpi/pmi2: invalid client request"


def srun(slurm: Slurm, site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    """As `started_by_srun`; again where MPI did not start as a message was too long, as the hint says."""
    for _ in range(5):
        done = started_by_srun(slurm, site, *words)
        if TOO_LONG not in done.stderr:
            break
    return done


@pytest.mark.parametrize(("mpi", "plugin"), [("openmpi", "pmix"), ("mpich", "pmi2")])
def test_srun_starts_the_ranks_itself(slurm: Slurm, site: Site, mpi: str, plugin: str) -> None:
    # A rank that is done without by mistake costs nothing but the status of the job, which is looked at here.
    millrace = with_limits(
        find(mpi), site.folder, f"{NO_SILENCE}failure_detection.MAX_SILENCE_AT_END_SECONDS = 1e6\n"
    ).millrace
    words = [f"--mpi={plugin}", "-N3", "-n3", millrace, "run", *site.options()]
    done = srun(slurm, site, *words)
    if "can not load PMIx library" in done.stderr:
        pytest.skip("Slurm's pmix plugin finds no library (apt-get install libpmix-dev)")
    assert done.returncode == 0, f"{done.stderr}\n{slurm.logs()}"
    assert "in 3 processes" in done.stderr
    assert site.output.read_bytes() == site.expected


#: Lines of Python that let MPICH's address lie in front of memory without zeros, which its messages do not shorten. They
#: fill it as the last thing before MPI starts: what is allocated in between would take the gaps.
DENSE_MEMORY = """
import ctypes
from millrace.cluster.transport import mpi_start

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
limit_startup_time = mpi_start.limit_startup_time

def fill_memory(launched):
    gaps = []
    for size in range(64, 1040, 16):
        for _ in range(100):
            gaps.append(libc.malloc(size - 8))
            ctypes.memset(libc.malloc(4600), 0x55, 4600)
    for gap in gaps:
        libc.free(gap)
    return limit_startup_time(launched)

mpi_start.limit_startup_time = fill_memory
mpi_start.MAX_INIT_SECONDS = 20.0
"""


def test_message_too_long_for_slurm_matters_only_with_srun(slurm: Slurm, site: Site, submit) -> None:  # type: ignore[no-untyped-def]
    millrace = with_limits(find("mpich"), site.folder, DENSE_MEMORY).millrace
    done = started_by_srun(slurm, site, "--mpi=pmi2", "-N3", "-n3", millrace, "run", *site.options())
    if TOO_LONG not in done.stderr:
        pytest.skip("this MPICH and this Slurm understand each other")
    assert done.returncode
    ends_well(slurm, site, submit(command=millrace))


def test_mpi_start_failure_under_srun_hints_at_slurm(slurm: Slurm, site: Site) -> None:
    never = (
        "import os, time\n"
        "from millrace.cluster.transport import mpi_start\n"
        "if os.environ['PMI_RANK'] == '1':\n"
        "    time.sleep(1000)\n"
        "if os.environ['PMI_RANK'] == '0':\n"
        "    mpi_start.MAX_INIT_SECONDS = 2.0\n"
    )
    millrace = with_limits(find("mpich"), site.folder, never).millrace
    done = started_by_srun(
        slurm, site, "--mpi=pmi2", "-N2", "-n2", "--kill-on-bad-exit=1", millrace, "run", *site.options()
    )
    assert done.returncode and "MPI does not start" in done.stderr, done.stderr
    assert f'if Slurm says "{TOO_LONG}"' in done.stderr and "leave out srun" in done.stderr


def test_start_refused_on_one_node_keeps_the_old_output(slurm: Slurm, site: Site) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    other, wrapped = site.folder / "other", site.folder / "wrapped"
    other.write_text("#!/bin/sh\necho other release > $2\n")
    swap = f'exec unshare --mount sh -c \'mount --bind {other} {site.folder}/tool; exec "$@"\' sh "$@"'
    wrapped.write_text(f'#!/bin/sh\n[ "$SLURM_PROCID" != 1 ] || {swap}\nexec "$@"\n')
    for path in (other, wrapped):
        path.chmod(0o755)
    site.output.write_bytes(b"of an earlier run\n")
    millrace = find("mpich").millrace
    done = srun(slurm, site, "--mpi=pmi2", "-N3", "-n3", str(wrapped), millrace, "run", *site.options())
    assert done.returncode == 4 and "is not the program that the coordinator has" in done.stderr, done.stderr
    assert site.output.read_bytes() == b"of an earlier run\n" and not site.run_dir.exists()
    other.unlink()
    done = srun(slurm, site, "--mpi=pmi2", "-N3", "-n3", millrace, "run", *site.options())
    assert done.returncode == 0, done.stderr
    assert site.output.read_bytes() == site.expected


def test_srun_of_another_mpi_is_refused(slurm: Slurm, site: Site) -> None:
    words = ["--mpi=pmi2", "-N2", "-n2", installation("openmpi"), "run", *site.options()]
    done = srun(slurm, site, *words)
    assert done.returncode == 2
    assert "is not of the MPI library" in done.stderr
    assert not site.output.exists()


def test_script_is_accepted_by_sbatch(slurm: Slurm, site: Site, millrace: str) -> None:
    options = ["-N", "2", "-t", "1:00:00", "-c", "1", "--mem", "100M", "-p", "main", "-J", "mine", "--option=--nice=10"]
    shown = subprocess.run(
        [millrace, "slurm", "--dry-run", *options, *site.options()], cwd=site.folder, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    tested = subprocess.run(
        ["sbatch", "--test-only"], input=shown, env=slurm.environ, capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stderr
    assert "--exclusive" not in shown


def test_without_slurm_nothing_is_submitted(site: Site, millrace: str, tmp_path: Path) -> None:
    words = [millrace, "slurm", "-N", "2", "-t", "1:00:00", *site.options()]
    done = subprocess.run(
        words, cwd=site.folder, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "sbatch: not found here" in done.stderr


def test_sbatch_error_is_reported_in_its_own_words(site: Site, millrace: str, tmp_path: Path) -> None:
    (tmp_path / "sbatch").write_text(
        "#!/bin/sh\necho 'sbatch: error: Unable to contact slurm controller' >&2\nexit 1\n"
    )
    (tmp_path / "sbatch").chmod(0o755)
    done = subprocess.run(
        [millrace, "slurm", "-N", "2", "-t", "1:00:00", *site.options()], cwd=site.folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "Unable to contact slurm controller\n\nhint: the words are those of sbatch; --dry-run" in done.stderr


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_pbs_script_is_valid_shell_with_the_requested_limits(site: Site, millrace: str) -> None:
    options = ["-N", "4", "-t", "1-12", "-c", "16", "--mem", "64gb", "-p", "long", "--setup", "module load blast"]
    shown = subprocess.run(
        [millrace, "pbs", "--dry-run", *options, *site.options()], cwd=site.folder, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    subprocess.run(["bash", "-n"], input=shown, text=True, check=True)
    lines = shown.splitlines()
    assert "#PBS -l select=4:mpiprocs=1:ncpus=16:mem=64gb" in lines
    assert "#PBS -l walltime=36:00:00" in lines
    assert "module load blast" in lines


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--fresh"], "would start over each time"),
        (["--hosts", "a,b"], "the scheduler gives the nodes"),
        (["-t", "soon"], "not a wall time"),
        (["-t", "2"], "too short"),
    ],
)
def test_impossible_job_options_are_refused_before_submission(
    site: Site, millrace: str, more: list[str], reason: str
) -> None:
    words = [millrace, "slurm", "--dry-run", "-N", "2", "-t", "1:00:00", *more, *site.options()]
    done = subprocess.run(words, cwd=site.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert reason in done.stderr


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_a_job_has_no_standard_input(tmp_path: Path, millrace: str, scheduler: str) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n")
    words = [millrace, scheduler, "--dry-run", "-N", "2", "-t", "1:00:00"]
    piped = [*words, "--format", "lines", "--", "cat"]
    done = subprocess.run(piped, cwd=tmp_path, input="a\nb\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the job will have nothing on its standard input\n\nhint: name the file in the command" in done.stderr
    named = [*words, "--input", "in.txt:lines", "--", "cat", "in.txt"]
    done = subprocess.run(named, cwd=tmp_path, input="a\nb\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_files_behind_urls_are_fetched_once_for_a_job(slurm: Slurm, site: Site, millrace: str) -> None:
    pytest.importorskip("requests")
    copies = site.folder / "copies"
    copies.mkdir()
    (site.folder / "reads").write_text('#!/bin/sh\ncat "$1" > /dev/null && sed "s|^>.*|& $(cksum < "$1")|"\n')
    (site.folder / "reads").chmod(0o755)
    with web_server.serve() as web:
        url = web.put("set.bin", b"x" * 5_000_000)
        command = shlex.join([millrace, "run", "--slots", "1", "--batch", "8", "--progress", "none", "--stage", str(copies),
                              "--format", "fasta", "--shared", url, "--", "./reads", url])  # fmt: skip
        job = ["sbatch", "--wait", "-N", str(slurm.n_nodes), "--output=said", f"--wrap={command} < in.fa > out.fa"]
        done = subprocess.run(job, cwd=site.folder, env=slurm.environ, capture_output=True, text=True, timeout=600)
        said = (site.folder / "said").read_text()
        assert done.returncode == 0, (done.stderr, said)
        assert web.n_downloads == 1, said
    assert site.output.read_text().count(" 5000000\n") == site.n
