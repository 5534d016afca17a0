"""A real HDFS on nodes that are namespaces of this machine: a NameNode beside them, a DataNode in each. Root only.

Each DataNode has an address of its own, so that the NameNode knows who is near, and what a node reads from another one goes
over its link, where it can be counted. Recipe: tests/support/namespace_nodes.py for the nodes; Hadoop as ``make tools`` gets it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import namespace_nodes  # noqa: E402
import storage_servers  # noqa: E402

JAVA = "java -Xmx{memory}m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -cp {jars}/*"
SERVER = "org.apache.hadoop.hdfs.server"

#: Ports of the NameNode, at an address that only these nodes have.
PORT, WEB = 8020, 9870

#: Seconds that servers may take to start.
PATIENCE_SECONDS = 300.0


def reason_not() -> str:
    """Why there can be no HDFS on nodes here; empty if there can."""
    if reason := namespace_nodes.reason_not():
        return str(reason)
    return str(storage_servers.no_hdfs())


class HdfsOfNodes:
    """Use as a context; the DataNodes end with their nodes.

    Args:
        folder: For data and logs; it is made.
        names: The nodes that get a DataNode.
        replication: Copies of each block.
    """

    def __init__(self, folder: Path, cluster: namespace_nodes.Nodes, names: Iterable[str], replication: int) -> None:
        self._folder, self._cluster, self._names, self._replication = folder, cluster, tuple(names), replication
        self.uri = f"hdfs://{cluster.gateway}:{PORT}"
        self._web = f"{cluster.gateway}:{WEB}"
        self._name_node: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> HdfsOfNodes:
        self._folder.mkdir()
        self.settings("conf", self._web)
        name_node = [*self._java(192), f"{SERVER}.namenode.NameNode", *self._words(
            "dfs.namenode.name.dir", f"{self._folder}/name", "dfs.namenode.safemode.extension", "0",
            "dfs.namenode.http-address", self._web, "dfs.namenode.heartbeat.recheck-interval", "2000",
            "dfs.namenode.datanode.registration.ip-hostname-check", "false",
            "dfs.namenode.fs-limits.min-block-size", "4096",
        )]  # fmt: skip
        with (self._folder / "name.log").open("wb") as log:
            subprocess.run([*name_node, "-format", "-force", "-nonInteractive"], stdout=log, stderr=log, check=True)
            self._name_node = subprocess.Popen(name_node, stdout=log, stderr=log)
        for name in self._names:
            own = self._words("dfs.datanode.data.dir", f"{self._folder}/{name}", "dfs.datanode.hostname", name)
            command = shlex.join([*self._java(128), f"{SERVER}.datanode.DataNode", *own])
            shell = f"{command} > {self._folder}/{name}.log 2>&1 & echo $! > {self._folder}/{name}.pid"
            subprocess.run(self._cluster.command(name, shell), check=True)
        try:
            self._wait(len(self._names))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._name_node:
            self._name_node.kill()
            self._name_node.wait()

    def _java(self, memory: int) -> list[str]:
        return JAVA.format(memory=memory, jars=storage_servers.JARS).split()

    def _words(self, *own: str) -> list[str]:
        both = (
            "fs.defaultFS", self.uri, "hadoop.tmp.dir", f"{self._folder}/tmp", "dfs.replication", str(self._replication),
            "dfs.heartbeat.interval", "1", "dfs.permissions.enabled", "false", *own,
        )  # fmt: skip
        return [word for key, value in zip(both[::2], both[1::2], strict=True) for word in ("-D", f"{key}={value}")]

    def _wait(self, n: int) -> None:
        """Until so many DataNodes have reported."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        question = f"http://{self._web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        while True:
            with suppress(OSError, ValueError, LookupError), urllib.request.urlopen(question, timeout=10) as answer:
                if json.load(answer)["beans"][0]["NumLiveDataNodes"] >= n:
                    return
            if time.monotonic() > deadline:
                logs = {path.name: path.read_text(errors="replace")[-500:] for path in self._folder.glob("*.log")}
                raise TimeoutError(f"no {n} DataNodes: {logs}")
            time.sleep(0.1)

    def settings(self, name: str, web: str) -> Path:
        """A folder for ``HADOOP_CONF_DIR`` by which WebHDFS is at ``web``."""
        folder = self._folder / name
        folder.mkdir()
        item = f"<property><name>dfs.namenode.http-address</name><value>{web}</value></property>"
        (folder / "hdfs-site.xml").write_text(f"<configuration>{item}</configuration>")
        return folder

    def put(self, files: Iterable[Path], folder: str, block_bytes: int = 128 << 20) -> int:
        """Write files, a block each if blocks are not smaller, from outside of the nodes: the NameNode draws who holds them. Returns their bytes."""
        total = 0
        for path in files:
            content = path.read_bytes()
            deadline, pause_seconds = time.monotonic() + PATIENCE_SECONDS, 0.0
            while True:
                try:
                    self._write(f"/{folder}/{path.name}", content, block_bytes, pause_seconds)
                    break
                except RuntimeError:  # a busy DataNode has not reported a block before the client asks for the next one
                    if time.monotonic() > deadline:
                        raise
                    pause_seconds = 2 * pause_seconds + 0.2
            total += len(content)
        return total

    def _write(self, path: str, content: bytes, block_bytes: int, pause_seconds: float) -> None:
        import hdfs_native

        options = hdfs_native.WriteOptions(block_size=block_bytes, replication=self._replication, overwrite=True)
        with hdfs_native.Client(self.uri).create(path, options) as file:
            for at in range(0, len(content), block_bytes):
                file.write(content[at : at + block_bytes])
                time.sleep(pause_seconds)

    def sizes(self, folder: str) -> dict[str, int]:
        """The files of a folder, with their bytes."""
        import hdfs_native

        entries = hdfs_native.Client(self.uri).list_status(f"/{folder}")
        return {entry.path.rpartition("/")[2]: entry.length for entry in entries}

    def kill(self, name: str) -> None:
        """``kill -9`` of the DataNode of a node."""
        pid = (self._folder / f"{name}.pid").read_text().strip()
        subprocess.run(self._cluster.command(name, f"kill -9 {pid}"), check=True)
