"""``db split`` into HDFS: the volumes are there with all files, or not at all."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millrace.core.errors import MillraceError
from millrace.storage.hdfs_colocation import DataNode, NewHdfsFolder, parse_data_nodes, spread_groups

#: Writes files into a new folder of HDFS, and is killed as soon as one of them is there.
CUT_OFF = """
import os, signal, sys
from pathlib import Path
from millrace.storage.hdfs_colocation import NewHdfsFolder

class CutOff(NewHdfsFolder):
    def _write_file(self, path, node):
        super()._write_file(path, node)
        os.kill(os.getpid(), signal.SIGKILL)

with CutOff(sys.argv[1], os.environ) as new:
    new.write_groups([[Path(name)] for name in sys.argv[2:]], [])
"""


@dataclass
class Site:
    """A folder with a database and queries, and an HDFS."""

    here: Path
    #: Its folder in HDFS.
    top: str
    uri: str
    web: str
    environ: dict[str, str] = field(default_factory=dict)

    def settings(self, web: str) -> dict[str, str]:
        """Variables by which WebHDFS is at ``web``."""
        folder = self.here / f"conf-{web.replace(':', '-')}"
        folder.mkdir(exist_ok=True)
        item = f"<property><name>dfs.namenode.http-address</name><value>{web}</value></property>"
        (folder / "hdfs-site.xml").write_text(f"<configuration>{item}</configuration>")
        return {**os.environ, "HADOOP_CONF_DIR": str(folder)}

    def split(self, url: str, **environ: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "millrace", "db", "split", "prot", "3", "-o", url]
        return subprocess.run(
            words, cwd=self.here, env={**self.environ, **environ}, capture_output=True, text=True, check=False
        )

    def names(self, folder: str) -> list[str]:
        import hdfs_native

        there = hdfs_native.Client(self.uri).list_status(f"/{folder}")
        return sorted(entry.path.rpartition("/")[2] for entry in there)

    def holder(self, path: str) -> str:
        """The DataNode that has the one copy of the one block of a file, as the NameNode says."""
        with urllib.request.urlopen(f"http://{self.web}/webhdfs/v1/{path}?op=GETFILEBLOCKLOCATIONS") as answer:
            (block,) = json.load(answer)["BlockLocations"]["BlockLocation"]
        (node,) = block["names"]
        return str(node)

    def get(self, folder: str, to: Path) -> None:
        import hdfs_native

        to.mkdir()
        client = hdfs_native.Client(self.uri)
        for name in self.names(folder):
            with client.read(f"/{folder}/{name}") as file:
                (to / name).write_bytes(file.read())


@pytest.fixture
def site(small_hdfs: dict[str, str], hdfs_folder: str, tmp_path: Path) -> Site:
    if shutil.which("makeblastdb") is None:
        pytest.skip("BLAST+ is not installed")
    chance = random.Random(8)
    entries = [f">e{k}\n{''.join(chance.choices('ACDEFGHIKLMNPQRSTVWY', k=120))}\n" for k in range(30)]
    (tmp_path / "in").write_text("".join(entries))
    (tmp_path / "q").write_text("".join(entries[3::7]))
    words = ["makeblastdb", "-in", "in", "-dbtype", "prot", "-parse_seqids", "-title", "t", "-out", "prot"]
    subprocess.run(words, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    found = Site(tmp_path, hdfs_folder, small_hdfs["uri"], small_hdfs["http"].partition("//")[2])
    found.environ = found.settings(found.web)
    return found


def search(folder: Path) -> bytes:
    words = ["blastp", "-query", folder.parent / "q" if folder.name == "got" else "q", "-db", "prot", "-outfmt", "7"]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True).stdout


def test_split_into_hdfs_equals_the_database(site: Site) -> None:
    top = site.top
    url = f"{site.uri}/{top}/prot"
    done = site.split(url)
    assert done.returncode == 0, done.stderr
    assert f"-db {url}/prot\n" in done.stdout and "prot.02  10 entries" in done.stdout, done.stdout
    assert "\n3 of 3 fragments with all files on one DataNode, 1 to 2 on each of 2 DataNodes" in done.stdout, (
        done.stdout
    )
    assert site.names(top) == ["prot"]
    volumes = [[name for name in site.names(f"{top}/prot") if name.startswith(f"prot.{k:02}.")] for k in range(3)]
    held_by = [{site.holder(f"{top}/prot/{name}") for name in names} for names in volumes]
    assert min(map(len, volumes)) > 5 and {*map(len, held_by)} == {1} and len(set.union(*held_by)) == 2, held_by
    site.get(f"{top}/prot", site.here / "got")
    assert search(site.here / "got") == search(site.here) != b""
    again = site.split(url)
    assert again.returncode == 2 and f"{url} is there already" in again.stderr, again.stderr
    assert site.names(top) == ["prot"] and len(site.names(f"{top}/prot")) == len(list((site.here / "got").iterdir()))


def test_unwritable_target_is_refused_before_splitting(site: Site) -> None:
    top = site.top
    made = site.here / "made"
    (site.here / "bin").mkdir()
    (site.here / "bin" / "makeblastdb").write_text(f"#!/bin/sh\ntouch {made}; exit 1\n")
    (site.here / "bin" / "makeblastdb").chmod(0o755)
    path = f"{site.here}/bin:{os.environ['PATH']}"
    denied = site.split(f"{site.uri}/{top}/prot", PATH=path, HADOOP_USER_NAME="stranger")
    assert denied.returncode == 1 and "prot: permission denied" in denied.stderr, denied.stderr
    away = site.split("hdfs://127.0.0.1:1/prot", PATH=path)
    assert away.returncode == 1 and "see whether its NameNode and DataNodes are up" in away.stderr, away.stderr
    silent = site.split(f"{site.uri}/{top}/prot", **site.settings("127.0.0.1:1") | {"PATH": path})
    assert silent.returncode == 2 and "which DataNode gets a file cannot be chosen" in silent.stderr, silent.stderr
    assert "hdfs dfs -put" in silent.stderr
    other = site.split("s3://bucket/prot", PATH=path)
    assert other.returncode == 2 and "fragments are not made there" in other.stderr, other.stderr
    assert not made.exists() and not [name for name in site.names(top) if name != "x"]


def test_killed_split_leaves_no_database_and_is_replaced(site: Site) -> None:
    top = site.top
    url = f"{site.uri}/{top}/prot"
    files = [str(path) for path in sorted(site.here.glob("prot.p*"))]
    killed = subprocess.run([sys.executable, "-c", CUT_OFF, url, *files], cwd=site.here, env=site.environ)
    assert killed.returncode == -signal.SIGKILL
    (left,) = site.names(top)
    assert left.endswith(".part") and site.names(f"{top}/{left}"), "it had begun"
    assert site.split(url).returncode == 0
    assert site.names(top) == ["prot"]
    site.get(f"{top}/prot", site.here / "got")
    assert search(site.here / "got") == search(site.here)


def test_late_write_does_not_recreate_the_folder(site: Site) -> None:
    """DataNodes go on with what a killed process has asked for, when the next one has removed its folder already."""
    import hdfs_native

    top = site.top
    with NewHdfsFolder(f"{site.uri}/{top}/prot", site.environ) as new:
        (begun,) = site.names(top)
        hdfs_native.Client(site.uri).delete(f"/{top}/{begun}", recursive=True)
        with pytest.raises(MillraceError, match="Parent directory doesn't exist"):
            new.write_groups([[site.here / "in"]], [])
        assert site.names(top) == []


def test_groups_are_spread_evenly_over_free_datanodes() -> None:
    nodes = [DataNode(f"n{k}", "", 10**6) for k in range(4)]
    chosen = [node.name for node in spread_groups([1000 + k % 3 for k in range(32)], nodes)]
    assert {chosen.count(node.name) for node in nodes} == {8}
    full = [DataNode("full", "", 10), *nodes[:1]]
    assert {node.name for node in spread_groups([1000] * 3, full)} == {"n0"}
    assert len(spread_groups([10**9], nodes)) == 1, "HDFS says what is too much"


def test_decommissioned_datanodes_are_left_out() -> None:
    about = {"infoAddr": "10.0.0.1:9864", "infoSecureAddr": "10.0.0.1:9865", "remaining": 7, "adminState": "In Service"}
    live = json.dumps({"n1:9866": about, "n2:9866": about | {"adminState": "Decommission In Progress"}})
    assert parse_data_nodes(live, "http") == [DataNode("n1", "10.0.0.1:9864", 7)]
    assert parse_data_nodes(live, "https") == [DataNode("n1", "10.0.0.1:9865", 7)]
