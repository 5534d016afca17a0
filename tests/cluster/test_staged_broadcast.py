"""Databases on several nodes: read once, copied to the memory of each, kept for the next job."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import harness
import pytest
import reading_tool
from cluster_site import NAMES, Cluster
from parameter_choice import again


@pytest.fixture
def database(cluster: Cluster) -> Path:
    folder = cluster.site.folder
    reading_tool.write(cluster)
    path = folder / "db"
    path.write_bytes(os.urandom(9_000_001))
    (folder / "db.small").write_bytes(b"x" * 5)
    return path


def start(cluster: Cluster, *options: str, before: str = "") -> subprocess.Popen[bytes]:
    words = (
        f"{before} {cluster.millrace} run --hosts {','.join(NAMES[1:])} --slots 2 --batch 2 --verify 0 --progress none --shared db --shared "
        f"db.small {' '.join(options)} --format fasta -- ./tool {cluster.site.folder}/db < in.fa > out.fa"
    )
    return cluster.start_command(words)


def run(cluster: Cluster, *options: str) -> Counter[str]:
    """What the tasks say of the database: how many of each."""
    reading_tool.forget(cluster)
    assert start(cluster, *options).wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    return said(cluster)


def said(cluster: Cluster) -> Counter[str]:
    return Counter(line for line in cluster.site.output.read_text().splitlines() if line.startswith("node"))


def copies(cluster: Cluster, name: str) -> list[str]:
    listed = subprocess.run(
        cluster.nodes.command(name, "ls -A /dev/shm/millrace-stage-0"), capture_output=True, text=True, check=True
    )
    return sorted(line.partition("-")[2] for line in listed.stdout.split() if line != ".lock")


def test_each_node_reads_its_own_copy(cluster: Cluster, database: Path) -> None:
    """The copies stay, and the next job reads them."""
    in_place = str(database.stat().st_ino)
    used = run(cluster, "--stage", "ram")
    first = reading_tool.seen(cluster)
    assert set(used) <= first
    assert "9.0 MB in 2 files, to be copied to the memory of 3 nodes" in cluster.said
    assert {line.split()[0] for line in first} == set(NAMES[1:])
    assert in_place not in {reading_tool.inode(line) for line in first}
    assert len({line.split()[1] for line in first}) == 3, "one copy a node"
    assert len({line.split()[2] for line in first}) == 1, "the same bytes"
    for name in NAMES[1:]:
        assert copies(cluster, name) == ["db", "db.small"]
    used = run(cluster, "--stage", "ram", "--fresh")
    assert "kept by an earlier job in the memory of 3 nodes" in cluster.said
    assert set(used) <= reading_tool.seen(cluster) == first


def test_node_without_room_reads_in_place_and_forwards(cluster: Cluster, database: Path) -> None:
    subprocess.run(cluster.nodes.command("node2", "mount -o remount,size=4M /dev/shm"), check=True)
    found = run(cluster, "--stage", "ram")
    assert "to be copied to the memory of 2 nodes" in cluster.said
    assert "node2 reads them in place: 9.0 MB do not fit into its memory filesystem" in cluster.said
    in_place = str(database.stat().st_ino)
    assert {line.split()[0] for line in found if reading_tool.inode(line) == in_place} == {"node2"}


#: What the Python of each node runs first: node3 freezes in the middle of its first copy.
FREEZE_ONCE = """
import os, signal, socket

if socket.gethostname() == "node3":
    from millrace.cluster.node_staging import NodeStaging
    turn = NodeStaging.advance_transfer

    def freeze_once(keeper):
        if keeper.n_steps_done and not os.path.exists({mark!r}):
            open({mark!r}, "w").close()
            os.kill(os.getpid(), signal.SIGSTOP)
        return turn(keeper)

    NodeStaging.advance_transfer = freeze_once
"""


def start_half(cluster: Cluster, database: Path) -> subprocess.Popen[bytes]:
    """Start it, and wait until node3 stands still with half a copy."""
    os.truncate(database, 60_000_000)  # far more than is under way at a time
    first, mark = cluster.site.folder / "first", cluster.site.folder / "frozen"
    first.mkdir()
    (first / "sitecustomize.py").write_text(FREEZE_ONCE.format(mark=str(mark)))
    process = start(cluster, "--stage", "ram", before=f"env PYTHONPATH={first}")
    assert harness.wait_until(mark.exists, process), cluster.said
    return process


@pytest.mark.parametrize("hit", [again("node3"), "node1"], ids=["agent", "coordinator"])
def test_interrupted_broadcast_starts_again(cluster: Cluster, database: Path, hit: str) -> None:
    process = start_half(cluster, database)
    os.kill(cluster.find_one(hit, "millrace run"), signal.SIGKILL)
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    assert "starting again" in cluster.said
    assert len({line.split()[2] for line in said(cluster)}) == 1
    for name in NAMES[1:]:
        assert copies(cluster, name) == ["db", "db.small"], "nothing half done"


def test_run_stopped_during_the_broadcast_ends_at_once(cluster: Cluster, database: Path) -> None:
    process = start_half(cluster, database)
    os.kill(cluster.find_one("head", "bin/millrace run"), signal.SIGTERM)
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 143, cluster.said
    assert "type the same command again" in cluster.said
    for name in NAMES[1:]:
        assert "db" not in copies(cluster, name)


def test_database_local_to_each_node_is_read_in_place(cluster: Cluster, database: Path) -> None:
    found = run(cluster, "--verbose")
    assert "databases: in place\n" in cluster.said
    assert {reading_tool.inode(line) for line in found} == {str(database.stat().st_ino)}
