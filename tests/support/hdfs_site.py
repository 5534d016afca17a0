"""A real HDFS for the nodes of namespaces: a NameNode and DataNodes in one Java process, which say that they are on these nodes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import harness
import namespace_nodes
import pytest
import storage_servers

from millrace.storage.hdfs_blocks import OPENER

REPO = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(__file__).with_name("hdfs") / "HdfsOfNodes.java"

#: The nodes that have a DataNode.
NODES = ("node1", "node2")


@dataclass
class Hdfs:
    """A NameNode and a DataNode for each of the nodes, in one process."""

    uri: str
    http: str

    def put(self, files: Iterator[Path], folder: str) -> None:
        for path in files:
            storage_servers.put(self.uri, f"/{folder}/{path.name}", path.read_bytes())


@contextmanager
def serve_hdfs(nodes: namespace_nodes.Nodes, folder: Path) -> Iterator[Hdfs]:
    """Serve it to the nodes, with its files in a folder."""
    hdfs_native = pytest.importorskip("hdfs_native")
    jars = REPO / ".tools" / "hadoop"
    if not shutil.which("java") or not jars.is_dir():
        pytest.skip("not installed: java, and Hadoop in .tools/hadoop (make tools, with mvn)")
    settings = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Ddir={folder}/hdfs"]
    command = ["java", *settings, f"-Dhost={nodes.gateway}", f"-Dnames={','.join(NODES)}", "-cp", f"{jars}/*"]
    with (folder / "log").open("wb") as log, subprocess.Popen(
        [*command, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
    ) as process:  # fmt: skip
        assert process.stdout and process.stdin
        line = process.stdout.readline()
        assert line, (folder / "log").read_text()
        said = json.loads(line)
        # What has just started may take longer for its first answers than a run waits.
        request = f"http://{said['http']}/webhdfs/v1/?op=LISTSTATUS&user.name=root"
        with OPENER.open(request, timeout=harness.LONGEST_SECONDS) as answer:
            assert answer.read()
        storage_servers.put(said["uri"], "/first", b"first")
        with hdfs_native.Client(said["uri"]).read("/first") as file:
            assert bytes(file.read()) == b"first"
        yield Hdfs(said["uri"], said["http"])
        process.stdin.close()


def write_settings(hdfs: Hdfs, conf: Path) -> None:
    """Write the settings of its clients into a new folder."""
    conf.mkdir()
    text = f"<configuration><property><name>dfs.namenode.http-address</name><value>{hdfs.http}</value></property></configuration>"
    (conf / "hdfs-site.xml").write_text(text)
