"""A job in phases on several nodes: each command has all of them, filters and functions run where the user types."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
from cluster_site import NAMES, Cluster, Site
from parameter_choice import again
from private_slurm import Slurm

#: Says where it ran; waits for the other nodes, and while a file holds the second phase.
TOOL = """#!/bin/sh
# step NAME [IN OUT]
: > {marks}/ran.$1.$(hostname)
until [ $(ls {marks} | grep -c "^ran[.]$1[.]") -ge {nodes} ]; do sleep 0.05; done
while [ $1 = second ] && [ -e {marks}/hold ] && grep -q record4 "$2"; do : > {marks}/held; sleep 0.05; done
sed "s/^>/>$1 /" ${{2:+"$2"}} > "${{3:-/dev/stdout}}"
"""

#: The first phase writes to standard output, the third one file for each record.
JOB = """
[phase.first]
command = "./step first"
stdin = "in.fa"
stdout = "first.fa"
format = "fasta"

[phase.between]
filter = "sed 's/record1/RECORD1/'"
input = "first.fa"
output = "between.fa"

[phase.second]
command = "./step second between.fa out.fa"
input = "between.fa"
output = "out.fa"

[phase.apart]
python = "apart.py:each"
input = "out.fa"
output = "apart/"

[phase.third]
command = "./step third apart/ sizes/{stem}.txt"
input = "apart/"
output = "sizes/{stem}.txt"

[phase.together]
python = "apart.py:join"
input = "sizes/"
output = "together.fa"
"""
APART = """
def each(records):
    for number, record in enumerate(records):
        if number % 12 == 0:
            yield f"{number:06}.fa", record

def join(files):
    yield from files
"""


def marks_of(site: Site) -> Path:
    """Where steps meet, and tests hold them: outside of the working folder, whose files are each task's own."""
    return site.folder.with_name(f"{site.folder.name}.marks")


@pytest.fixture(autouse=True)
def marks(site: Site) -> Iterator[Path]:
    made = marks_of(site)
    made.mkdir()
    yield made
    shutil.rmtree(made, ignore_errors=True)


def write_step(site: Site, n_nodes: int) -> None:
    (site.folder / "step").write_text(TOOL.format(marks=marks_of(site), nodes=n_nodes))
    (site.folder / "step").chmod(0o755)


def write(site: Site, n_nodes: int) -> None:
    write_step(site, n_nodes)
    (site.folder / "job.toml").write_text(JOB)
    (site.folder / "apart.py").write_text(APART)
    (site.folder / "sizes").mkdir()


@pytest.fixture
def job(cluster: Cluster) -> Cluster:
    write(cluster.site, len(NAMES) - 1)
    return cluster


def start(cluster: Cluster, *options: str) -> subprocess.Popen[bytes]:
    words = [cluster.millrace, "run", "--hosts", ",".join(NAMES[1:]), "--slots", "2", *options, "job.toml"]
    return cluster.start_command(" ".join(words))


def is_right(site: Site) -> bool:
    first = (site.folder / "in.fa").read_bytes().replace(b">", b">second first ")
    second = first.replace(b"record1", b"RECORD1")
    kept = b"".join(b">third " + record for record in second.split(b">")[1::12])
    return site.output.read_bytes() == second and (site.folder / "together.fa").read_bytes() == kept


def check(cluster: Cluster) -> None:
    folder, marks = cluster.site.folder, marks_of(cluster.site)
    assert is_right(cluster.site)
    for name in ("first", "second", "third"):
        assert {path.suffix[1:] for path in marks.glob(f"ran.{name}.*")} == {*NAMES[1:]}
    assert not (folder / "job.millrace").exists()
    assert harness.wait_until(lambda: not cluster.left_over()), cluster.left_over()


@pytest.mark.slow
def test_each_phase_runs_on_all_nodes_with_serial_bytes(job: Cluster) -> None:
    run = start(job, "--json")  # which must not come between
    assert run.wait(harness.LONGEST_SECONDS) == 0, job.said
    check(job)


@pytest.mark.parametrize("victim", ["signal", again("job"), again("node")])
def test_job_stopped_in_its_second_phase_resumes(job: Cluster, marks: Path, victim: str) -> None:
    folder = job.site.folder
    (marks / "hold").touch()
    run = start(job)
    assert harness.wait_until((marks / "held").exists, run), job.said
    status = subprocess.run([job.millrace, "status", "job.millrace"], cwd=folder, capture_output=True, text=True)
    assert "  first:    done, 96 records" in status.stdout and "  second:   running" in status.stdout, status.stderr
    if victim == "node":
        job.nodes.kill(NAMES[2])
        (marks / f"ran.third.{NAMES[2]}").touch()  # for which the others wait
        (marks / "hold").unlink()
    else:
        number = signal.SIGKILL if victim == "job" else signal.SIGTERM
        os.kill(min(job.find("head", "run --hosts")), number)  # the first has begun the phase
        if victim == "signal":
            (marks / "hold").unlink()
        code = run.wait()
        assert victim == "job" or code == 128 + signal.SIGTERM, job.said
        assert harness.wait_until(lambda: not job.left_over()), job.left_over()
        (marks / "hold").unlink(missing_ok=True)
        run = start(job, "--json")  # which must not come between
    assert run.wait(harness.LONGEST_SECONDS) == 0, job.said
    check(job)


HSP_JOB = """phase second {
  exe-file "./step"; exe-args "second in out";
  stream "in" { path "in.fa"; format fasta; }; stream "out" { output; path "out.fa"; prefetch-ratio 2; };
};"""


@pytest.mark.parametrize("victim", ["", again("job")])
def test_job_of_standard_input_runs_on_all_nodes(job: Cluster, marks: Path, victim: str) -> None:
    """Ranks cannot read it there; the same bytes resume it."""
    folder = job.site.folder
    (folder / "job.hsp").write_text(HSP_JOB)
    words = f"{job.millrace} run --hosts {','.join(NAMES[1:])} --slots 2 - < job.hsp"
    if victim:
        (marks / "hold").touch()
        run = job.start_command(words)
        assert harness.wait_until((marks / "held").exists, run), job.said
        os.kill(min(job.find("head", "run --hosts")), signal.SIGKILL)
        run.wait()
        assert harness.wait_until(lambda: not job.left_over()), job.left_over()
        (marks / "hold").unlink()
        assert len(list(folder.glob("job-*.millrace"))) == 1
    run = job.start_command(words)
    assert run.wait(harness.LONGEST_SECONDS) == 0, job.said
    assert job.site.output.read_bytes() == (folder / "in.fa").read_bytes().replace(b">", b">second ")
    assert job.said.count("prefetch-ratio has no effect") == 1, job.said
    assert ("by earlier runs" in job.said) == bool(victim), job.said
    assert {path.suffix[1:] for path in marks.glob("ran.second.*")} == {*NAMES[1:]}
    assert not list(folder.glob("job-*"))
    assert harness.wait_until(lambda: not job.left_over()), job.left_over()


#: Two architectures with arguments of their own.
HSP_ARCHITECTURES = """phase second {
  arch i686   { exe-file "./narrow"; exe-args "second in.fa out.fa OTHER"; };
  arch x86_64 { exe-file "./step"; exe-args "second in.fa out.fa"; };
  stream "in.fa" { format fasta; }; stream "out.fa" { output; };
};"""


@pytest.mark.skipif(os.uname().machine != "x86_64" or not shutil.which("setarch"), reason="an x86_64 can be an i686")
@pytest.mark.parametrize(("other", "code"), [("", 0), ("more", 2)])
def test_hsp_job_uses_nodes_of_equal_arguments(job: Cluster, marks: Path, other: str, code: int) -> None:
    """A node of another architecture runs its program; with other arguments it is refused."""
    folder = job.site.folder
    write_step(job.site, 2)
    (folder / "job.hsp").write_text(HSP_ARCHITECTURES.replace(" OTHER", f" {other}" if other else ""))
    shutil.copy(folder / "step", folder / "narrow")
    rsh = folder.with_name(f"{folder.name}.rsh")
    rsh.write_text(f"""#!/bin/sh
node=$1; shift
[ $node = {NAMES[1]} ] || exec {job.nodes.rsh} $node "$@"
exec {job.nodes.rsh} $node "setarch i686 sh -c '$(echo "$*" | sed "s/'/'\\\\''/g")'"
""")
    rsh.chmod(0o755)
    words = f"env MILLRACE_RSH={rsh} {job.millrace} run --hosts {','.join(NAMES[1:3])} --slots 2 job.hsp"
    run = job.start_command(words)
    try:
        assert run.wait(harness.LONGEST_SECONDS) == code, job.said
    finally:
        rsh.unlink()
    if code:
        assert "is of architecture i686, the job's programs are for x86_64" in job.said, job.said
        assert "arch i686: its exe-args are not those of x86_64" in job.said, job.said
    else:
        assert job.site.output.read_bytes() == (folder / "in.fa").read_bytes().replace(b">", b">second ")
    assert harness.wait_until(lambda: not job.left_over()), job.left_over()


def test_plan_reports_waiting_phases_and_reasons(job: Cluster) -> None:
    folder = job.site.folder
    told = subprocess.run(
        [job.millrace, "plan", "--hosts", ",".join(NAMES[1:]), "job.toml"], cwd=folder, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("commands run on 3 nodes of --hosts\n")
    assert "waits for the end of [first]: on several nodes one command has all slots" in told.stdout


def test_phases_in_a_slurm_job_use_its_nodes(slurm: Slurm, millrace: str, site: Site) -> None:
    write(site, 1)  # all nodes have one name
    words = [millrace, "slurm", "-N", str(slurm.n_nodes), "-t", "10:00", "--option=--wait", "--slots", "2", "job.toml"]
    done = subprocess.run(
        words, cwd=site.folder, env=slurm.environ, capture_output=True, text=True, timeout=harness.LONGEST_SECONDS
    )
    said = done.stderr + "".join(path.read_text(errors="replace") for path in site.folder.glob("job-*.log"))
    assert done.returncode == 0 and is_right(site), said
    assert said.count("in 3 processes") == 3, said


@pytest.mark.slow
def test_timed_out_slurm_job_is_requeued(slurm: Slurm, millrace: str, site: Site, marks: Path) -> None:
    write(site, 1)
    (marks / "hold").touch()
    words = [millrace, "slurm", "-N", str(slurm.n_nodes), "-t", "10:00", "--slots", "2", "job.toml"]
    job = subprocess.run(words, cwd=site.folder, env=slurm.environ, capture_output=True, text=True, check=True)
    number = job.stdout.split()[-1]
    log = site.folder / f"job-{number}.log"
    slurm.wait((marks / "held").exists, "the second phase")
    slurm.command("scancel", "--batch", "--signal=USR1", number)  # as Slurm does before the wall time is over
    slurm.wait(lambda: "no more work is handed out" in log.read_text(errors="replace"), "the signal")
    (marks / "hold").unlink()
    slurm.wait(lambda: "going back into the queue" in log.read_text(errors="replace"), "requeue")
    slurm.wait(lambda: slurm.state(number) == "PENDING", "requeued job")
    slurm.command("scontrol", "update", f"JobId={number}", "StartTime=now+3")
    slurm.wait(lambda: slurm.state(number) in ("COMPLETED", "FAILED"), "end")
    assert slurm.state(number) == "COMPLETED" and is_right(site), log.read_text(errors="replace")
