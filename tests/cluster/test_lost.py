"""Whatever of a run on several nodes dies or freezes, it comes to its end by itself, with the serial bytes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import harness
import pytest
from cluster_site import NAMES, Cluster, Site
from parameter_choice import again


def ends_well(cluster: Cluster, process, seconds: float = harness.LONGEST_SECONDS) -> None:  # type: ignore[no-untyped-def]
    assert process.wait(timeout=seconds) == 0, cluster.said
    assert cluster.site.output.read_bytes() == cluster.site.expected
    assert cluster.site.left_over() == []
    assert harness.wait_until(lambda: not cluster.left_over())


def under_way(cluster: Cluster) -> None:
    assert harness.wait_until(lambda: cluster.site.under_way)


def is_said(cluster: Cluster, pattern: str) -> None:
    """Wait until the run has said so."""
    assert harness.wait_until(lambda: re.search(pattern, cluster.said))


def test_a_run_on_named_hosts_uses_all_of_them(cluster: Cluster) -> None:
    process = cluster.start("--verify", "0.5")
    ends_well(cluster, process)
    assert "slots: 6 in 3 processes on 3 nodes" in cluster.said, cluster.said
    assert "starting again" not in cluster.said, cluster.said


@pytest.mark.parametrize("place", ["", again("shared")], ids=["empty there", "elsewhere there"])
def test_first_host_without_shared_folder_is_named_at_once(cluster: Cluster, place: str) -> None:
    above = cluster.site.folder
    if place:
        (above / place).mkdir()
        cluster.site = Site(above / place)
    hidden = f"mount -t tmpfs none {above}"
    subprocess.run(cluster.nodes.command("node1", hidden), check=True, stdin=subprocess.DEVNULL)
    process = cluster.start()
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 2, cluster.said
    assert f"node1: does not see what is in {cluster.site.folder} here" in cluster.said
    assert "starting again" not in cluster.said
    assert not cluster.site.output.exists() and cluster.site.left_over() == []


def test_missing_host_is_named_in_the_last_message(cluster: Cluster) -> None:
    options = " ".join(cluster.site.options())
    process = cluster.start_command(f"{cluster.millrace} run --hosts node1,node2,nosuch {options}")
    ends_well(cluster, process)
    assert "starting again on 2 nodes (nosuch not answering)" in cluster.said
    assert "nosuch had no part in the end of this run: not answering" in cluster.said.splitlines()[-1]


def test_failed_start_quotes_the_words_of_the_launcher(cluster: Cluster) -> None:
    shell = cluster.site.folder / "shell"
    fails_once = f"case $* in *prted*) mkdir {shell}.called 2> /dev/null && exit 9;; esac"
    shell.write_text(f'#!/bin/sh\n{fails_once}\nexec {cluster.nodes.rsh} "$@"\n')
    shell.chmod(0o755)
    options = " ".join(cluster.site.options())
    command = f"{cluster.millrace} run --hosts {','.join(NAMES[1:])} {options}"
    process = cluster.start_command(f"env MILLRACE_RSH={shell} {command}")
    ends_well(cluster, process)
    assert re.search(r"starting again on 3 nodes; what is done is kept\n(  .*\n)*  .*status: +9\n", cluster.said), (
        cluster.said
    )


@pytest.mark.parametrize(
    ("where", "words"),
    [again("node2", "millrace run"), ("node1", "millrace run"), again("node3", "prted"), again("head", "prterun")],
    ids=["agent", "coordinator", "daemon", "launcher"],
)
def test_a_killed_part_is_started_again(cluster: Cluster, where: str, words: str) -> None:
    with cluster.site.held():
        process = cluster.start()
        under_way(cluster)
        os.kill(cluster.find_one(where, words), signal.SIGKILL)
        is_said(cluster, "starting again on 3 nodes")
    ends_well(cluster, process)


@pytest.mark.parametrize("name", ["node1", again("node3")], ids=["coordinator", "agent"])
def test_a_lost_node_is_left_out(cluster: Cluster, name: str) -> None:
    with cluster.site.held():
        process = cluster.start()
        under_way(cluster)
        cluster.nodes.kill(name)
        is_said(cluster, rf"starting again on 2 nodes \({name} not answering\)")
    ends_well(cluster, process)


def test_frozen_coordinator_is_detected_by_its_silence(cluster: Cluster) -> None:
    with cluster.site.held():
        process = cluster.start()
        under_way(cluster)
        os.kill(cluster.find_one("node1", "millrace run"), signal.SIGSTOP)
        # Who notices first, the supervisor or the other ranks, which then end the job, depends on a second.
        is_said(cluster, "starting again on 3 nodes")
    ends_well(cluster, process)


#: What the Python of each node runs first: once a rank has left MPI_Init, and all others wait for it in the first call of
#: all together, it is frozen. The supervisor's limit is over as soon as it is, for this one start.
FREEZE_ONCE = """
import os, signal, socket, sys, time

sleep = time.sleep

def freeze_once(seconds):
    if sys._getframe(1).f_code.co_name == "_start_mpi" and not os.path.exists({mark!r}):
        open({mark!r}, "w").close()
        os.kill(os.getpid(), signal.SIGSTOP)
    sleep(seconds)

if socket.gethostname() == "node2":
    time.sleep = freeze_once
if socket.gethostname() == "head":
    from millrace.launch import heartbeat
    measure = heartbeat.CoordinatorSigns.get_excessive_mpi_wait
    found = []

    def measure_once(*words):
        heartbeat.MAX_MPI_START_SECONDS = 0.1 if os.path.exists({mark!r}) and not any(found) else 600.0
        found.append(measure(*words))
        return found[-1]

    heartbeat.CoordinatorSigns.get_excessive_mpi_wait = measure_once
"""


def test_rank_frozen_during_mpi_start_is_left_out(cluster: Cluster) -> None:
    first = cluster.site.folder / "first"
    first.mkdir()
    (first / "sitecustomize.py").write_text(FREEZE_ONCE.format(mark=str(first / "frozen")))
    options = " ".join(cluster.site.options())
    run = f"{cluster.millrace} run --hosts {','.join(NAMES[1:])} {options}"
    process = cluster.start_command(f"env PYTHONPATH={first} {run}")
    ends_well(cluster, process)
    assert (first / "frozen").exists()
    assert re.search(r"MPI has not started on all nodes within \d+ s; starting again on 3 nodes", cluster.said)


@pytest.mark.parametrize(
    ("where", "words"), [("node2", "millrace run"), again("head", "prterun")], ids=["agent", "launcher"]
)
def test_a_frozen_part_does_not_stop_the_others(cluster: Cluster, where: str, words: str) -> None:
    with cluster.site.held():
        process = cluster.start()
        under_way(cluster)
        os.kill(cluster.find_one(where, words), signal.SIGSTOP)
    ends_well(cluster, process)


def test_killed_supervisor_ends_all_processes(cluster: Cluster) -> None:
    with cluster.site.held():
        process = cluster.start()
        under_way(cluster)
        os.kill(cluster.find_one("head", "bin/millrace run"), signal.SIGKILL)
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 137
    assert harness.wait_until(lambda: not cluster.left_over())
    assert cluster.site.left_over() == ["out.fa.millrace"]
    again = cluster.start()
    ends_well(cluster, again)
    assert "by earlier runs" in cluster.said


def test_stopped_run_keeps_results_and_resumes(cluster: Cluster) -> None:
    with cluster.site.held():
        process = cluster.start()
        under_way(cluster)
        os.kill(cluster.find_one("head", "bin/millrace run"), signal.SIGTERM)
        is_said(cluster, "no more work is handed out")
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 143, cluster.said
    assert "type the same command again" in cluster.said
    assert harness.wait_until(lambda: not cluster.left_over())
    ends_well(cluster, cluster.start())


def test_refused_fresh_start_restores_the_earlier_run(cluster: Cluster) -> None:
    site = cluster.site
    with cluster.site.held():
        process = cluster.start()
        under_way(cluster)
        os.kill(cluster.find_one("head", "bin/millrace run"), signal.SIGTERM)
        is_said(cluster, "no more work is handed out")
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 143, cluster.said
    assert harness.wait_until(lambda: not cluster.left_over())

    def all_of_it() -> dict[str, bytes]:
        # Nothing may have been written yet.
        files = [site.output, *(path for path in site.run_dir.rglob("*") if path.name != "lock")]
        return {str(path.relative_to(site.folder)): path.read_bytes() for path in files if path.is_file()}

    before = all_of_it()
    (site.folder / "other").write_text("#!/bin/sh\necho other release > $2\n")
    (site.folder / "other").chmod(0o755)
    for words in (f"mount --bind {site.folder}/other {site.folder}/tool", f"umount {site.folder}/tool"):
        subprocess.run(cluster.nodes.command("node2", words), check=True, stdin=subprocess.DEVNULL)
        if words.startswith("mount"):
            process = cluster.start("--fresh")
            assert process.wait(timeout=harness.LONGEST_SECONDS) == 4, cluster.said
            assert "is not the program that the coordinator has" in cluster.said
            assert harness.wait_until(lambda: not cluster.left_over())
            assert all_of_it() == before
    ends_well(cluster, cluster.start())
    assert "by earlier runs" in cluster.said


def test_database_lost_on_one_node_quarantines_no_record(cluster: Cluster, tmp_path: Path) -> None:
    site = cluster.site
    # Outside of the working folder: the view of it does not show what is mounted there later.
    db, other, begun, failed, lost = (tmp_path / name for name in ("db", "other", "begun", "failed", "lost"))
    db.write_text("old\n")
    other.write_text("other\n")
    waits = f": > {begun}.$(hostname); until [ -e {lost} ]; do sleep 0.05; done"
    looks = f"#!/bin/sh\ngrep -q old {db} || {{ : > {failed}.$(hostname); exit 1; }}\n{waits}"
    tool = (site.folder / "tool").read_text().replace("#!/bin/sh", looks, 1)
    (site.folder / "tool").write_text(tool)
    with site.held():
        process = cluster.start("--sync", "3600", "--shared", str(db))  # nobody looks in the meantime
        assert harness.wait_until(lambda: Path(f"{begun}.node2").exists(), process)
        hide = f"mount --bind {other} {db}"
        subprocess.run(cluster.nodes.command("node2", hide), check=True, stdin=subprocess.DEVNULL)
        lost.touch()
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 5, cluster.said
    assert re.search(r"node2 .*: database \S+/db: .*changed while the run was on", cluster.said), cluster.said
    assert "quarantined" not in cluster.said
    assert Path(f"{failed}.node2").exists() and not Path(f"{failed}.node1").exists()
    subprocess.run(cluster.nodes.command("node2", f"umount {db}"), check=True, stdin=subprocess.DEVNULL)
    ends_well(cluster, cluster.start("--shared", str(db)))


def test_piped_output_has_each_byte_once_after_a_restart(cluster: Cluster) -> None:
    words = (
        f"{cluster.millrace} run --hosts {','.join(NAMES[1:])} --slots 2 "
        "--batch 2 --progress none --format fasta -- ./tool - < in.fa > out.fa"
    )
    with cluster.site.held():
        process = cluster.start_command(words)
        under_way(cluster)
        os.kill(cluster.find_one("node3", "prted"), signal.SIGKILL)
        is_said(cluster, "starting again")
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    assert cluster.site.output.read_bytes() == cluster.site.expected


def test_a_run_without_a_node_that_answers_ends_with_an_error(cluster: Cluster) -> None:
    for name in NAMES[1:]:
        cluster.nodes.kill(name)
    process = cluster.start()
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 1
    assert "no node answers" in cluster.said
