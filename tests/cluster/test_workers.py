"""``millrace workers``: Dask workers in jobs of a real Slurm and a real Grid Engine, and by ssh, as many as there is work for."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import harness
import namespace_nodes
import process_lookup
import pytest
import ssh_nodes
from cluster_site import NAMES, Site
from private_grid_engine import GridEngine
from private_slurm import Slurm, everybody

# Not imported, which takes a while.
pytestmark = pytest.mark.skipif(not find_spec("distributed"), reason="distributed is not installed")

MILLRACE = (sys.executable, "-m", "millrace")


class Workers:
    """The command, and runs on its workers.

    Args:
        wrap: Makes the command that runs a line of shell where the user would type it.
    """

    def __init__(self, site: Site, environ: dict[str, str], wrap: Callable[[str], list[str]]) -> None:
        self.site, self._environ, self._wrap = site, environ, wrap
        self.file = site.folder / "workers.json"
        self.process: subprocess.Popen[bytes] | None = None
        self.kind = ""

    def _start(self, words: str, log: str) -> subprocess.Popen[bytes]:
        line = f"cd {self.site.folder}; exec {words}"
        with (self.site.folder / log).open("ab") as said:
            return subprocess.Popen(
                self._wrap(line),
                env={**os.environ, **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def start(self, *words: str) -> None:
        self.kind = words[0]
        self.process = self._start(shlex.join([*MILLRACE, "workers", *words, "--file", self.file.name]), "workers.log")
        self.wait(lambda: self.file.exists() and self.file.stat().st_size, "scheduler file")

    def start_run(self, sleep: str, *options: str) -> subprocess.Popen[bytes]:
        words = [*MILLRACE, "run", "--dask", self.file.name, *self.site.options(*options)]
        return self._start(f"env SLEEP={sleep} {shlex.join(words)}", "run.log")

    @property
    def said(self) -> str:
        return (self.site.folder / "workers.log").read_text()

    @property
    def logs(self) -> str:
        paths = [*self.site.folder.glob("*.log"), *self.site.folder.glob("workers.json.jobs/*.log")]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-4000:]}" for path in paths)

    @property
    def n_joined(self) -> int:
        return len(re.findall(r"^job .* slots? after", self.said, re.MULTILINE))

    @property
    def n_workers(self) -> int:
        return int((re.findall(r"(\d+) workers? with", self.said) or ["0"])[-1])

    def wait(self, condition: Callable[[], object], what: str) -> None:
        assert harness.wait_until(condition, self.process), f"no {what}: {self.logs}"

    def finish_run(self, process: subprocess.Popen[bytes]) -> None:
        assert process.wait(harness.LONGEST_SECONDS) == 0, self.logs
        assert self.site.output.read_bytes() == self.site.expected, self.logs
        assert self.site.left_over() == []

    def find_pid(self) -> int:
        """The command itself, as seen from outside of all nodes."""
        found = process_lookup.with_words(everybody(), f"millrace workers {self.kind}")
        (pid,) = [pid for pid in found if os.path.realpath(f"/proc/{pid}/cwd") == str(self.site.folder.resolve())]
        return pid

    def stop(self) -> None:
        """End the command by a signal: it leaves nothing."""
        assert self.process
        os.kill(self.find_pid(), signal.SIGTERM)
        assert self.process.wait(harness.LONGEST_SECONDS) == 0, self.logs
        assert not self.file.exists() and not self.file.with_name("workers.json.jobs").exists(), self.logs

    def close(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def on_slurm(slurm: Slurm, site: Site) -> Iterator[Workers]:
    made = Workers(site, slurm.environ, lambda line: ["bash", "-c", line])
    yield made
    made.close()
    slurm.command("scancel", "--user=root")
    slurm.wait(lambda: not slurm.command("squeue", "--noheader"), "an empty queue")


def test_workers_on_slurm_grow_and_end_serial_bytes(on_slurm: Workers, slurm: Slurm) -> None:
    """The run begins with the first node; more come as it is seen how long it takes; all end with the command."""
    on_slurm.start("slurm", "--max", "2", "--time", "1m")
    assert on_slurm.file.stat().st_mode & 0o777 == 0o600, "who reads it can run programs as the user"
    assert on_slurm.file.with_name("workers.json.jobs").stat().st_mode & 0o777 == 0o700
    with on_slurm.site.held():
        run = on_slurm.start_run("0.7")
        on_slurm.wait(lambda: on_slurm.n_joined > 1, "second worker")
    on_slurm.finish_run(run)
    assert "PRIVATE KEY" not in slurm.command(
        "scontrol", "write", "batch_script", re.findall(r"submitted job (\d+)", on_slurm.said)[0], "-"
    )
    first, second, *_ = (line for line in on_slurm.said.splitlines() if "submitted job" in line)
    assert first.endswith("one of at most 2: no worker, 0 waiting; 1 run of unknown length: work for 1")
    assert re.search(r"one of at most 2: 1 worker with 2 slots, 0 waiting; left: .* of one slot: work for 2$", second)
    on_slurm.stop()
    slurm.wait(lambda: not slurm.command("squeue", "--noheader"), "an empty queue")


@pytest.mark.slow
def test_slurm_job_time_limit_costs_only_its_tasks(on_slurm: Workers, slurm: Slurm) -> None:
    """A job ends by its time limit in the middle of tasks; the next one takes over, with nothing computed twice but these."""
    on_slurm.start("slurm", "--max", "1", "--time", "1m", "--cpus", "1")
    with on_slurm.site.held():
        run = on_slurm.start_run("0.2")
        on_slurm.wait(lambda: on_slurm.site.under_way, "results")
        on_slurm.wait(lambda: on_slurm.said.count("has ended") == 1, "time limit")
        on_slurm.wait(lambda: on_slurm.n_joined == 2, "second job")
    on_slurm.finish_run(run)
    log = (on_slurm.site.folder / "run.log").read_text()
    assert re.search(r"is lost: it has left; [1-9] tasks? of its own go to others", log), log
    on_slurm.wait(lambda: "no task for" in on_slurm.said and on_slurm.n_workers == 0, "end of the idle worker")
    on_slurm.stop()


@pytest.mark.slow
def test_slurm_workers_shrink_and_grow_again(on_slurm: Workers, slurm: Slurm) -> None:
    on_slurm.start("slurm", "--max", "3", "--time", "2m")
    for _ in range(2):
        on_slurm.finish_run(on_slurm.start_run("1.5"))
        on_slurm.wait(lambda: on_slurm.n_workers == 0, "end of idle workers")
        slurm.wait(lambda: not slurm.command("squeue", "--noheader"), "an empty queue")
        on_slurm.site.output.unlink()
    assert on_slurm.n_joined >= 4
    assert 0 <= max(int(found) for found in re.findall(r"(\d+) waiting", on_slurm.said)) <= 1
    on_slurm.stop()


@pytest.mark.slow
def test_killed_command_leaves_no_worker(on_slurm: Workers, slurm: Slurm) -> None:
    """Its workers lose their connection; started again with the same file, the run goes on."""
    on_slurm.start("slurm", "--max", "2", "--time", "2m")
    with on_slurm.site.held():
        run = on_slurm.start_run("0.5")
        on_slurm.wait(lambda: on_slurm.site.under_way, "results")
        os.kill(on_slurm.find_pid(), signal.SIGKILL)
        assert on_slurm.process
        on_slurm.process.wait()
        slurm.wait(lambda: not slurm.command("squeue", "--noheader", "--states=RUNNING"), "end of the workers")
        on_slurm.start("slurm", "--max", "2", "--time", "2m")
    on_slurm.finish_run(run)
    on_slurm.stop()


@pytest.mark.slow
def test_jobs_that_cannot_work_end_the_command(on_slurm: Workers) -> None:
    on_slurm.start("slurm", "--max", "2", "--time", "1m", "--setup", "echo no such module >&2; exit 1")
    run = on_slurm.start_run("0.1")
    assert on_slurm.process and on_slurm.process.wait(harness.LONGEST_SECONDS) == 1, on_slurm.logs
    assert "has ended without a worker: no such module; so have 2 before it" in on_slurm.said
    assert not on_slurm.file.exists()
    run.kill()
    run.wait()


@pytest.mark.slow
def test_workers_of_grid_engine_serial_bytes(grid_engine: GridEngine, site: Site) -> None:
    workers = Workers(site, {}, lambda line: grid_engine.command(line))
    try:
        workers.start("sge", "--max", "2", "--time", "1m", "--setup", "export LD_LIBRARY_PATH=")
        with site.held():
            run = workers.start_run("0.7")
            workers.wait(lambda: workers.n_joined > 1, "second worker")
        workers.finish_run(run)
        workers.stop()
        grid_engine.wait(lambda: "millrace-" not in grid_engine.ask("qstat"), "empty queue")
    finally:
        workers.close()
        grid_engine.ask("qdel -u root")


@contextmanager
def nodes_by_ssh() -> Iterator[namespace_nodes.Nodes]:
    if reason := namespace_nodes.reason_not() or ssh_nodes.reason_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="mr-") as name:
        folder = Path(name)
        with (
            namespace_nodes.Nodes(folder / "nodes", NAMES[:3], os.getpid() % 200 + 21) as nodes,
            ssh_nodes.ssh(nodes, folder),
        ):
            yield nodes


@pytest.mark.slow
def test_workers_by_ssh_one_unreachable_serial_bytes(site: Site) -> None:
    with nodes_by_ssh() as nodes:
        workers = Workers(site, {}, lambda line: nodes.command("head", line))
        try:
            workers.start("ssh", "nowhere", "node1,node2", "--time", "1m")
            run = workers.start_run("0.7")
            workers.finish_run(run)
            assert "job nowhere-1 has ended without a worker: ssh: Could not resolve hostname nowhere" in workers.said
            os.kill(workers.find_pid(), signal.SIGTERM)
            assert workers.process and workers.process.wait(harness.LONGEST_SECONDS) == 0, workers.logs

            def list_workers() -> list[str]:
                found = [process_lookup.arguments(pid) for name in nodes.names for pid in nodes.inhabitants(name)]
                return [line for line in found if "dask" in line or "millrace" in line]

            assert harness.wait_until(lambda: not list_workers()), list_workers()
        finally:
            workers.close()
