"""``run --pack-to`` and ``run --store`` on several nodes: each lists the hits of its batches, or searches what is not known."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import harness
import pytest
from cluster_site import NAMES, Cluster, Site
from harness import wait_until
from private_slurm import Slurm
from tool_batches import need

from millrace.extensions.pack import pack_transfer

COMMAND = "blastp -query q3.faa -db prot -outfmt 0 -num_descriptions 50 -num_alignments 50 -out out"


@pytest.fixture
def expected(bench_of: Path, site: Site) -> bytes:
    """The serial result, in the folder of the run."""
    for pattern in ("prot.*", "q3.faa"):
        for path in bench_of.glob(pattern):
            (site.folder / path.name).symlink_to(path)
    subprocess.run([need("blastp"), *COMMAND.split()[1:]], cwd=site.folder, check=True)
    (site.folder / "out").rename(site.folder / "expected")
    return (site.folder / "expected").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("is_lost", [False, True])
def test_pack_is_unpacked_by_all_nodes(cluster: Cluster, expected: bytes, is_lost: bool) -> None:
    words = [cluster.millrace, "run", "--pack-to", "r.mrp", "--with-queries", "--batch", "1", "--", *COMMAND.split()]
    subprocess.run(words, cwd=cluster.site.folder, check=True, stdin=subprocess.DEVNULL, timeout=540)
    nodes = ",".join(NAMES[1:])
    process = cluster.start_command(f"{cluster.millrace} unpack r.mrp --yes --hosts {nodes} --slots 1 -o again")
    for name in NAMES[1:]:
        assert wait_until(lambda name=name: cluster.find(name, "unpack --rank"), process), cluster.said
    if is_lost:
        cluster.nodes.kill("node2")
    assert process.wait(harness.LONGEST_SECONDS) == 0, cluster.said
    assert (cluster.site.folder / "again").read_bytes() == expected
    assert not list(cluster.site.folder.glob("*.unpack"))


@pytest.mark.slow
def test_received_pack_is_regenerated_by_all_nodes(cluster: Cluster, expected: bytes) -> None:
    folder = cluster.site.folder
    words = [cluster.millrace, "run", "--pack-to", "r.mrp", "--with-queries", "--batch", "1", "--", *COMMAND.split()]
    subprocess.run(words, cwd=folder, check=True, stdin=subprocess.DEVNULL, timeout=540)
    pack = (folder / "r.mrp").read_bytes()
    with (folder / "sent").open("wb") as sent:
        pack_transfer.write_line(sent, pack_transfer.ResumePosition(bytes=0))
        for piece in (pack, b""):
            pack_transfer.write_piece(sent, piece)
    receive = f"{cluster.millrace} receive --hosts {','.join(NAMES[1:])} --slots 1 -o again"
    process = cluster.start_command(f"sh -c 'cat sent | {receive} > heard'")
    assert wait_until(lambda: cluster.find("node3", "unpack --rank"), process), cluster.said
    assert process.wait(harness.LONGEST_SECONDS) == 0, cluster.said
    assert (folder / "again").read_bytes() == expected
    assert (folder / "heard").read_bytes().count(b"\n") == 1  # the ranks wrote nothing into the protocol
    assert not list(folder.glob(".again*"))


def unpack(millrace: str, site: Site) -> bytes:
    words = [millrace, "unpack", "r.mrp", "--yes", "-o", "again"]
    told = subprocess.run(words, cwd=site.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=540)
    assert told.returncode == 0, told.stderr
    return (site.folder / "again").read_bytes()


def left_over(site: Site) -> set[str]:
    return {path.name for path in site.folder.iterdir() if path.name.startswith((".r.mrp", "r.mrp.", "out"))}


@pytest.mark.slow
def test_lost_node_does_not_end_the_packing(cluster: Cluster, expected: bytes) -> None:
    options = "--slots 1 --batch 1 --progress none --pack-to r.mrp --with-queries"
    nodes = ",".join(NAMES[1:])
    process = cluster.start_command(f"{cluster.millrace} run --hosts {nodes} {options} -- {COMMAND}")
    journals = cluster.site.folder / "r.mrp.millrace"
    assert wait_until(lambda: bool(list(journals.glob("*.mrj"))), process), cluster.said
    cluster.nodes.kill("node1")  # where the coordinator is
    assert process.wait(harness.LONGEST_SECONDS) == 0, cluster.said
    assert "starting again" in cluster.said
    assert unpack(cluster.millrace, cluster.site) == expected
    assert left_over(cluster.site) == set()


def test_pack_is_made_by_all_nodes(cluster: Cluster, expected: bytes) -> None:
    nodes = ",".join(NAMES[1:])
    options = "--slots 1 --batch 1 --progress none --pack-to r.mrp --with-queries --verify-pack 0.1"
    process = cluster.start_command(f"{cluster.millrace} run -v --hosts {nodes} {options} -- {COMMAND}")
    assert process.wait(harness.LONGEST_SECONDS) == 0, cluster.said
    assert "slots: 3 in 3 processes on 3 nodes" in cluster.said
    assert "by the command itself" in cluster.said
    assert unpack(cluster.millrace, cluster.site) == expected
    assert left_over(cluster.site) == set()


@pytest.mark.slow
def test_pack_is_made_in_a_job_of_slurm(slurm: Slurm, site: Site, millrace: str, expected: bytes) -> None:
    words = ["run", "-v", "--slots", "1", "--batch", "1", "--progress", "none", "--pack-to", "r.mrp", "--with-queries"]
    done = subprocess.run(
        ["salloc", "-N2", millrace, *words, "--", *COMMAND.split()], cwd=site.folder, env=slurm.environ,
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=harness.LONGEST_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 nodes of the Slurm job" in done.stderr
    assert unpack(millrace, site) == expected
    assert left_over(site) == set()


def test_store_is_kept_and_used_by_runs_on_nodes(cluster: Cluster, expected: bytes) -> None:
    """A supervisor passes the output on, then removes the run directory; the next run searches a sample alone."""
    folder = cluster.site.folder
    for known in (False, True):
        (folder / "out").unlink(missing_ok=True)
        options = "--slots 1 --progress none --store store"
        process = cluster.start_command(f"{cluster.millrace} run --hosts {','.join(NAMES[1:])} {options} -- {COMMAND}")
        assert process.wait(harness.LONGEST_SECONDS) == 0, cluster.said
        assert (folder / "out").read_bytes() == expected
        assert ("queries known" in cluster.said) == known, cluster.said
        assert [path.name for path in (folder / "store").iterdir()] == ["candidates"]
        with closing(sqlite3.connect(folder / "store" / "candidates" / "candidates.sqlite")) as tables, tables:
            tables.execute("DELETE FROM results")  # else nothing is left to search
