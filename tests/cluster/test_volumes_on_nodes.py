"""A database in HDFS: each node fetches the volumes, or the pieces, that it searches, and searches those that it holds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import harness
import pytest
from cluster_site import Cluster
from hdfs_site import NODES, Hdfs
from hmmer_profiles import profile
from protein_families import COLUMNS, draw_families

from millrace.adapters.blast import physical_fragments as splitting

pytestmark = pytest.mark.skipif(shutil.which("makeblastdb") is None, reason="BLAST+ is not installed")

#: Endings of what the coordinator fetches.
FETCHED = ("pal", "pdb", "pog", "pin")

#: Volumes of the database.
N = 4


@pytest.fixture
def databases(cluster: Cluster, hdfs: Hdfs, tmp_path: Path) -> dict[str, Path]:
    """Puts databases of the same entries into HDFS, and the queries into the site's folder; where the volumes of each are here."""
    database, queries = draw_families(3, 40, 12)
    (tmp_path / "prot.fa").write_text(database)
    (cluster.site.folder / "q.faa").write_text(queries)
    make = ["makeblastdb", "-in", "prot.fa", "-dbtype", "prot", "-parse_seqids", "-title", "all of them", "-out"]
    folders = {name: tmp_path / name for name in ("prot", "together")}
    subprocess.run([*make, "prot"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    splitting.split_database("prot", (N, 0), folders["prot"], tmp_path, os.environ)
    # Its volumes have one list of ids, as those have that NCBI distributes.
    words = [*make, "together/together", "-max_file_sz", "30000"]
    subprocess.run(words, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    for name, folder in folders.items():
        hdfs.put(folder.iterdir(), name)
    return folders


def serial(cluster: Cluster, databases: dict[str, Path], name: str) -> bytes:
    words = ["blastp", "-query", cluster.site.folder / "q.faa", "-db", name, "-outfmt", COLUMNS]
    return subprocess.run(words, cwd=databases[name], check=True, capture_output=True).stdout


def run(cluster: Cluster, hdfs: Hdfs, name: str, batch: int) -> bytes:
    words = (
        f"HADOOP_CONF_DIR={cluster.site.folder}/conf {cluster.millrace} run -v --hosts {','.join(NODES)} --slots 1 --progress none "
        f"--batch {batch} -- blastp -query q.faa -db {hdfs.uri}/{name}/{name} -outfmt '{COLUMNS}' -out out.fa"
    )
    process = cluster.start_command(words)
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    return cluster.site.output.read_bytes()


#: What is said at the end: searches where the fragment is, all of them, and what was fetched.
LOCALITY = re.compile(
    r"fragments in HDFS: (\d+) of (\d+) searches on nodes that had theirs; (\S+ \w+) of them were fetched"
)


def size_of(words: str) -> float:
    """Bytes, of a size in words."""
    number, unit = words.split()
    return float(number) * {"B": 1, "kB": 1e3, "MB": 1e6}[unit]


@pytest.mark.slow
def test_volumes_are_searched_where_they_are(cluster: Cluster, hdfs: Hdfs, databases: dict[str, Path]) -> None:
    """The output is that of the serial run."""
    wanted = serial(cluster, databases, "prot")
    assert b"# 0 hits found" not in wanted and wanted.count(b"\n") > 300
    assert run(cluster, hdfs, "prot", batch=20) == wanted, cluster.said
    assert f"fragments: {N}; the volumes in HDFS" in cluster.said
    # What no search reads is nowhere, and nothing is passed on: each fetches ids and indices of what it searches.
    first = [path.name for path in databases["prot"].iterdir() if path.name[-3:] in FETCHED]
    assert f" and {len(first) - 1} more files: " in cluster.said and len(first) == 3 * N + 1, cluster.said
    assert "to be copied" not in cluster.said
    found = LOCALITY.search(cluster.said)
    # Two batches. Who has nothing of its own left to do takes a volume of the other's, and has it from then on; what takes
    # long may be searched twice.
    assert found and int(found[2]) >= 2 * N and int(found[1]) >= N, cluster.said
    n_bytes = sum(path.stat().st_size for path in databases["prot"].glob("*.p[sh][qr]"))
    fetched = size_of(found[3])
    assert fetched >= n_bytes // 1000 * 1000, "each was fetched by one node or both"
    read = re.search(r"(\S+ \w+) more for candidates; (\S+ \w+) of that over the network", cluster.said)
    assert read, cluster.said
    more, far = size_of(read[1]), size_of(read[2])
    # Each reads its own from itself, where the NameNode tells in time whose that is; what it does not tell counts as far.
    assert far <= fetched + more - n_bytes / 2, cluster.said
    cluster.site.output.unlink()
    assert run(cluster, hdfs, "together", batch=40) == serial(cluster, databases, "together"), cluster.said
    assert re.search(r"fragments: [2-9]; the volumes in HDFS", cluster.said)


#: A command of HMMER for queries and targets, and what it needs beside sequences.
HMMER = {
    "phmmer": "phmmer -o out.txt --tblout out.fa q.faa {}",
    "hmmsearch": "hmmsearch -o out.txt --domtblout out.fa q.hmm {}",
}


def without_times(text: bytes) -> bytes:
    """What HMMER writes, but for times, and the number of threads, of which the serial run has none."""
    return re.sub(rb"(?m)^# (Date|CPU time|Mc/sec|Option settings|number of worker threads):.*\n", b"", text)


@pytest.fixture
def targets(cluster: Cluster, hdfs: Hdfs, tmp_path: Path) -> Path:
    """Puts a file of sequences of several blocks into HDFS, and queries into the site's folder; where the file is here."""
    database, queries = draw_families(4, 150, 100)
    path = tmp_path / "db.fa"
    path.write_text(database)
    few = queries.split(">")[1:6]
    (cluster.site.folder / "q.faa").write_text("".join(f">{each}" for each in few))
    models = b"".join(profile(f">{each}".encode(), f"model{number}") for number, each in enumerate(few))
    (cluster.site.folder / "q.hmm").write_bytes(models)
    hdfs.put(iter([path]), "hmmer")
    return path


@pytest.mark.skipif(shutil.which("hmmsearch") is None, reason="HMMER is not installed")
@pytest.mark.parametrize("program", [pytest.param("phmmer", marks=pytest.mark.slow), "hmmsearch"])
def test_nodes_fetch_only_the_pieces_that_they_search(
    cluster: Cluster, hdfs: Hdfs, targets: Path, program: str
) -> None:
    """The pieces are blocks of a file of sequences."""
    folder, command = cluster.site.folder, HMMER[program]
    serial = f"ln -s {targets} db.fa && {command.format('db.fa')} && rm db.fa"
    subprocess.run(["bash", "-ec", serial], cwd=folder, check=True, env={**os.environ, "HMMER_NCPU": "0"})
    wanted = {name: (folder / name).read_bytes() for name in ("out.fa", "out.txt")}
    for name in wanted:
        (folder / name).unlink()
    words = (
        f"HADOOP_CONF_DIR={folder}/conf {cluster.millrace} run -v --hosts {','.join(NODES)} --slots 1 --progress none "
        f"-- {command.format(f'{hdfs.uri}/hmmer/db.fa')}"
    )
    process = cluster.start_command(words)
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    n_blocks = -(-targets.stat().st_size // (1 << 20))
    assert n_blocks > 2 and f"fragments: {n_blocks}; the blocks in HDFS" in cluster.said, cluster.said
    for name, text in wanted.items():
        assert without_times((folder / name).read_bytes()) == without_times(text), name
    assert "passed on" not in cluster.said
    found = LOCALITY.search(cluster.said)
    assert found and int(found[2]) >= n_blocks, cluster.said
    # The coordinator has read all, and fetches none; the other node keeps what it has fetched: nothing, if it came late.
    assert size_of(found[3]) < 1.02 * targets.stat().st_size, cluster.said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("phmmer") is None, reason="HMMER is not installed")
def test_file_replaced_in_hdfs_ends_the_run_on_all_nodes(cluster: Cluster, hdfs: Hdfs, targets: Path) -> None:
    folder = cluster.site.folder
    (folder / "q.faa").write_text(draw_families(4, 150, 100)[1])
    words = (
        f"HADOOP_CONF_DIR={folder}/conf {cluster.millrace} run --hosts {','.join(NODES)} --slots 1 --batch 1 --progress none "
        f"-- {HMMER['phmmer'].format(f'{hdfs.uri}/hmmer/db.fa')}"
    )
    process = cluster.start_command(words)
    assert harness.wait_until(lambda: "slots: 2 in 2 processes" in cluster.said), cluster.said
    targets.write_bytes(targets.read_bytes()[::-1] + b"\n>z\n")
    hdfs.put(iter([targets]), "hmmer")
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 5, cluster.said
    assert "hmmer/db.fa: changed while it was read" in cluster.said, cluster.said
    assert "starting again" not in cluster.said, cluster.said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("hmmsearch") is None, reason="HMMER is not installed")
def test_several_processes_of_a_node_search_pieces(cluster: Cluster, hdfs: Hdfs, targets: Path) -> None:
    folder, command = cluster.site.folder, HMMER["hmmsearch"]
    serial = f"ln -s {targets} db.fa && {command.format('db.fa')} && rm db.fa"
    subprocess.run(["bash", "-ec", serial], cwd=folder, check=True, env={**os.environ, "HMMER_NCPU": "0"})
    wanted = {name: (folder / name).read_bytes() for name in ("out.fa", "out.txt")}
    for name in wanted:
        (folder / name).unlink()
    settings = {
        "HADOOP_CONF_DIR": f"{folder}/conf",
        "PRTE_MCA_plm_ssh_agent": str(cluster.nodes.rsh),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    words = (
        f"{' '.join(f'{name}={value}' for name, value in settings.items())} {Path(cluster.millrace).parent}/mpirun "
        f"--host {','.join(f'{name}:2' for name in NODES)} --map-by ppr:2:node --bind-to none -n 4 -x HADOOP_CONF_DIR "
        f"{cluster.millrace} run --slots 1 --batch 1 --progress none -- {command.format(f'{hdfs.uri}/hmmer/db.fa')}"
    )
    process = cluster.start_command(words)
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    assert "slots: 4 in 4 processes on 2 nodes" in cluster.said, cluster.said
    for name, text in wanted.items():
        assert without_times((folder / name).read_bytes()) == without_times(text), name
