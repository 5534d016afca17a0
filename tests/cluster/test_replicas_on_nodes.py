"""A database on shared storage that groups of nodes hold: it is read once for each group, and kept for the next job."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
import storage_servers
import web_server
from cluster_site import NAMES, Cluster
from protein_families import COLUMNS, draw_families

from millrace.adapters.blast import physical_fragments as splitting

pytestmark = pytest.mark.skipif(shutil.which("makeblastdb") is None, reason="BLAST+ is not installed")

#: Volumes of the database.
N = 6

#: What is said at the end: what was fetched of volumes, and for candidates.
FETCHED = re.compile(r"volumes on shared storage: \d+ of (\d+) searches on nodes that had theirs; (.+) of them were fetched, (.+) more for candidates")  # fmt: skip


@pytest.fixture
def volumes(cluster: Cluster, tmp_path: Path) -> Path:
    """Make a database of volumes with the name ``nr``, and queries in the site's folder."""
    database, queries = draw_families(5, 60, 40)
    (tmp_path / "prot.fa").write_text(database)
    # Few queries, so that their candidates are a small part of each volume.
    (cluster.site.folder / "q.faa").write_text("".join(f">{each}" for each in queries.split(">")[1:5]))
    make = ["makeblastdb", "-in", "prot.fa", "-dbtype", "prot", "-parse_seqids", "-title", "all of them", "-out", "nr"]
    subprocess.run(make, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    splitting.split_database("nr", (N, 0), tmp_path / "db", tmp_path, os.environ)
    return tmp_path / "db"


def search_serially(cluster: Cluster, name: str, folder: Path) -> bytes:
    words = ["blastp", "-query", cluster.site.folder / "q.faa", "-db", name, "-evalue", "1e-5", "-outfmt", COLUMNS]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True).stdout


def run(cluster: Cluster, name: str, *options: str, environ: str = "", wanted: int = 0) -> bytes:
    words = (
        f"{environ} {cluster.millrace} run --hosts {','.join(NAMES[1:])} --slots 1 --progress none --batch 2 "
        f"{' '.join(options)} -- blastp -query q.faa -db {name} -evalue 1e-5 -outfmt '{COLUMNS}' -out out.fa"
    )
    process = cluster.start_command(words)
    assert process.wait(timeout=harness.LONGEST_SECONDS) == wanted, cluster.said
    return cluster.site.output.read_bytes() if wanted == 0 else b""


def count_volume_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("nr.*.p[sh][qr]"))


@pytest.fixture
def server(cluster: Cluster, volumes: Path) -> Iterator[web_server.Web]:
    pytest.importorskip("requests")
    with web_server.serve(host=cluster.nodes.gateway) as web:
        for path in volumes.iterdir():
            web.put(f"db/{path.name}", path.read_bytes())
        yield web


@pytest.mark.parametrize(
    ("n_groups", "more"),
    [(1, ()), pytest.param(2, (), marks=pytest.mark.slow), pytest.param(1, ("--partition-size", "2"), marks=pytest.mark.slow)],
)  # fmt: skip
def test_volumes_are_sent_once_for_each_group(
    cluster: Cluster, server: web_server.Web, volumes: Path, n_groups: int, more: tuple[str, ...]
) -> None:
    """The server counts what it sends: whole volumes as often as there are groups, and ranges for candidates."""
    wanted = search_serially(cluster, "nr", volumes)
    assert wanted.count(b"\n") > 100
    assert run(cluster, f"{server.url}/db/nr", "--replicas", str(n_groups), *more) == wanted, cluster.said
    assert f"each kept by {n_groups} node" in cluster.said, cluster.said
    # Whole volumes; a range for candidates is a part of one.
    whole = sum(n * len(server.files[name]) for name, n in server.whole.items() if re.search(r"\.p(sq|hr)$", name))
    n_bytes = count_volume_bytes(volumes)
    assert n_bytes <= whole <= n_groups * n_bytes, (server.whole, cluster.said)
    sent = sum(n for name, n in server.sent.items() if re.search(r"\.p(sq|hr)$", name))
    assert sent < whole + n_bytes, (server.sent, cluster.said)
    # The next job finds what the nodes have kept.
    server.sent.clear()
    cluster.site.output.unlink()
    assert run(cluster, f"{server.url}/db/nr", "--replicas", str(n_groups), "--fresh") == wanted, cluster.said
    found = FETCHED.search(cluster.said)
    assert found and int(found[1]) >= N and found[2] == "0 B", cluster.said
    assert sum(n for name, n in server.sent.items() if re.search(r"\.p(sq|hr)$", name)) < n_bytes, server.sent


def test_mounted_volumes_are_fetched_by_groups_of_nodes(cluster: Cluster, volumes: Path) -> None:
    """A database in a folder that all nodes mount is typed by its path, which the output shows as the serial tool does."""
    name = str(volumes / "nr")
    wanted = search_serially(cluster, name, volumes)
    assert f"# Database: {name}".encode() in wanted
    assert run(cluster, name, "--replicas", "2") == wanted, cluster.said
    found = FETCHED.search(cluster.said)
    assert found, cluster.said
    fetched = size_of(found[2])
    n_bytes = count_volume_bytes(volumes)
    assert 0.99 * n_bytes <= fetched <= 2.01 * n_bytes, cluster.said


def size_of(words: str) -> float:
    """Bytes, of a size in words."""
    number, unit = words.split()
    return float(number) * {"B": 1, "kB": 1e3, "MB": 1e6}[unit]


@pytest.mark.slow
def test_lost_node_has_its_volumes_fetched_by_others(cluster: Cluster, server: web_server.Web, volumes: Path) -> None:
    wanted = search_serially(cluster, "nr", volumes)
    words = (
        f"{cluster.millrace} run --hosts {','.join(NAMES[1:])} --slots 1 --progress none --batch 1 --replicas 1 "
        f"-- blastp -query q.faa -db {server.url}/db/nr -evalue 1e-5 -outfmt '{COLUMNS}' -out out.fa"
    )
    process = cluster.start_command(words)
    assert harness.wait_until(lambda: sum(server.whole.values()) > N), cluster.said
    cluster.nodes.kill(NAMES[3])
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
    assert cluster.site.output.read_bytes() == wanted, cluster.said


@pytest.mark.slow
def test_volumes_in_s3_are_sent_once(cluster: Cluster, volumes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests for volumes, as the server logs them: one for each of their files, or for parts of it."""
    wanted = search_serially(cluster, "nr", volumes)
    requests = RequestLog()
    logging.getLogger("werkzeug").addHandler(requests)
    try:
        with storage_servers.s3_of_nodes(cluster.nodes.gateway, monkeypatch, verbose=True) as (client, environ):
            for path in volumes.iterdir():
                client.put_object(Bucket="blast", Key=f"db/{path.name}", Body=path.read_bytes())
            found = run(cluster, "s3://blast/db/nr", "--replicas", "1", environ=environ)
    finally:
        logging.getLogger("werkzeug").removeHandler(requests)
    assert found == wanted, cluster.said
    fetched = FETCHED.search(cluster.said)
    # With each volume comes its index, and its ids.
    own = sum(path.stat().st_size for path in volumes.glob("nr.*.p??") if path.suffix in (".pin", ".pdb", ".pog"))
    assert fetched and size_of(fetched[2]) <= 1.01 * (count_volume_bytes(volumes) + own), cluster.said
    asked = Counter(re.findall(r"GET /blast/db/(nr\.\d+\.psq)", "\n".join(requests.lines)))
    assert len(asked) == N, asked


class RequestLog(logging.Handler):
    """Keeps what a server logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
