"""An input in HDFS: cut by the nodes that hold its blocks, and given to tools where it lies."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import harness
import pytest
import storage_servers
from cluster_site import Cluster
from hdfs_site import NODES, Hdfs

#: What a record comes to: its name and its letters or lines. A record that is cut elsewhere comes to something else.
COUNT = {
    "fastq": "NR % 4 == 1 { name = $0 } NR % 4 == 2 { n = length($0) } NR % 4 == 0 { print name, n, substr($0, 1, 3) }",
    "fasta": "/^>/ { if (name) print name, n; name = $0; n = 0; next } { n += length($0) } END { if (name) print name, n }",
    "lines": "{ print length($0), $0 }",
    "sdf": '{ n++ } /^\\$\\$\\$\\$/ { print n; n = 0 } END { if (n) print n, "cut" }',
    "mol2": "/^@<TRIPOS>MOLECULE/ { if (n) print n; n = 0 } { n++ } END { if (n) print n }",
}

MEGABYTES = 5


def make_input(form: str) -> bytes:
    chance = random.Random(form)
    found, size = list[str](), 0
    while size < MEGABYTES << 20:
        letters = "".join(chance.choices("ACGT", k=chance.randint(20, 300)))
        quality = "@" + "".join(chance.choices("@+I", k=len(letters) - 1))
        number = len(found)
        record = {
            "fastq": f"@r{number}\n{letters}\n+\n{quality}\n",
            "fasta": f">r{number}\n{letters}\n",
            "lines": f"{letters}\n",
            "sdf": f"mol{number}\n\n\n{letters}\nM  END\n> <a>\n{letters}\n\n$$$$\n",
            "mol2": f"@<TRIPOS>MOLECULE\n{letters}\n@<TRIPOS>ATOM\n1 C\n",
        }[form]
        found.append(record)
        size += len(record)
    return "".join(found).encode()


def put_input(cluster: Cluster, hdfs: Hdfs, form: str) -> bytes:
    """Put an input into HDFS, and the tool for it into the site's folder; return what the serial tool writes."""
    content = make_input(form)
    storage_servers.put(hdfs.uri, f"/in/in.{form}", content)
    tool = cluster.site.folder / "tool"
    tool.write_text(f'#!/bin/sh\n{{ [ -z "$SLEEP" ] || sleep "$SLEEP"; }}\nexec awk \'{COUNT[form]}\' "$1" > "$2"\n')
    return subprocess.run(["awk", COUNT[form]], input=content, check=True, capture_output=True).stdout


def start_run(cluster: Cluster, hdfs: Hdfs, form: str, *options: str, sleep: str = "0") -> subprocess.Popen[bytes]:
    url = f"{hdfs.uri}/in/in.{form}"
    return cluster.start_command(
        f"HADOOP_CONF_DIR={cluster.site.folder}/conf {cluster.millrace} run --hosts {','.join(NODES)} --slots 1 "
        f"--progress none --input {url}:{form} --output out.fa {' '.join(options)} -- ./tool {url} out.fa",
        sleep,
    )


#: What is said at the end.
LOCALITY = re.compile(
    r"input in HDFS: (\d+) of (\d+) tasks on nodes that had their block; (\S+) MB of it were read, (\S+) (\w+) of that"
)


@pytest.mark.parametrize("form", [pytest.param(each, marks=pytest.mark.slow) for each in COUNT])
def test_input_is_cut_by_the_nodes_that_hold_it(cluster: Cluster, hdfs: Hdfs, form: str) -> None:
    wanted = put_input(cluster, hdfs, form)
    process = start_run(cluster, hdfs, form, "--verify", "0")
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    assert cluster.site.output.read_bytes() == wanted, cluster.said
    assert "cut by the nodes that hold its blocks, in 6 pieces" in cluster.said, cluster.said
    found = LOCALITY.search(cluster.said)
    assert found, cluster.said
    n_bytes = (MEGABYTES << 20) / 1e6
    # Each piece is read once, with a little more at its border; the coordinator cuts small batches, and what takes long runs twice.
    assert n_bytes <= float(found[3]) < 2 * n_bytes, cluster.said
    far = float(found[4]) * {"B": 1, "kB": 1e3, "MB": 1e6}[found[5]]
    assert int(found[1]) > 0 and far < 1e6 * float(found[3]) / 2, cluster.said
    assert not (Path(cluster.site.folder) / f"in.{form}").exists()


@pytest.mark.slow
def test_node_that_is_left_ends_what_several_began(cluster: Cluster, hdfs: Hdfs) -> None:
    wanted = put_input(cluster, hdfs, "fasta")
    process = start_run(cluster, hdfs, "fasta", "--keep-run-dir", sleep="1")
    journals = cluster.site.run_dir
    assert harness.wait_until(lambda: any(path.stat().st_size > 1000 for path in journals.glob("*.mrj"))), cluster.said
    cluster.nodes.kill(NODES[1])
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    assert cluster.site.output.read_bytes() == wanted, cluster.said
    assert f"{NODES[1]} not answering" in cluster.said, cluster.said


#: The nodes of a run that shares nothing but HDFS; the first has the coordinator, and is where the user types.
APART = ("head", *NODES)


@pytest.fixture
def apart(cluster: Cluster, hdfs: Hdfs) -> bytes:
    """Give each node a working folder of its own, with the tool; return what the serial tool writes."""
    wanted = put_input(cluster, hdfs, "fastq")
    storage_servers.put(hdfs.uri, "/out/there", b"a folder")
    folder = cluster.site.folder
    for name in NODES:
        own = f"mkdir /dev/shm/own && cp -a {folder}/. /dev/shm/own && mount --bind /dev/shm/own {folder}"
        subprocess.run(cluster.nodes.command(name, own), check=True)
    return wanted


def run_apart(cluster: Cluster, hdfs: Hdfs, *options: str, sleep: str = "0") -> subprocess.Popen[bytes]:
    source, dest = f"{hdfs.uri}/in/in.fastq", f"{hdfs.uri}/out/out.txt"
    return cluster.start_command(
        f"HADOOP_CONF_DIR={cluster.site.folder}/conf {cluster.millrace} run --hosts {','.join(APART)} --slots 1 "
        f"--progress none --input {source}:fastq --output {dest} {' '.join(options)} -- ./tool {source} {dest}",
        sleep,
    )


def read_result(hdfs: Hdfs) -> bytes:
    hdfs_native = pytest.importorskip("hdfs_native")
    with hdfs_native.Client(hdfs.uri).read("/out/out.txt") as file:
        return bytes(file.read())


def test_nodes_that_share_only_hdfs_run_a_filter(cluster: Cluster, hdfs: Hdfs, apart: bytes) -> None:
    """Results travel to the journal of the coordinator, and from there to HDFS; no node keeps anything."""
    process = run_apart(cluster, hdfs)
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    assert read_result(hdfs) == apart, cluster.said
    assert re.search(r"node1 \(rank 1\), node2 \(rank 2\): no folder is shared", cluster.said), cluster.said
    found = LOCALITY.search(cluster.said)
    assert found and int(found[1]) > 0, cluster.said
    for name in APART:
        words = cluster.nodes.command(name, f"ls -A {cluster.site.folder}")
        names = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
        assert not [each for each in names if "out" in each or "millrace" in each], (name, names)


@pytest.mark.slow
def test_lost_node_without_a_shared_folder_is_replaced(cluster: Cluster, hdfs: Hdfs, apart: bytes) -> None:
    process = run_apart(cluster, hdfs, sleep="1")
    journals = cluster.site.folder / "out.txt.millrace"
    assert harness.wait_until(lambda: any(path.stat().st_size > 1000 for path in journals.glob("*.mrj"))), cluster.said
    cluster.nodes.kill(NODES[1])
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    assert read_result(hdfs) == apart, cluster.said
