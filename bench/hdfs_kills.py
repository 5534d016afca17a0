"""``python -m bench.hdfs_kills --runs 50``: kill a part of a run whose input nodes cut in HDFS, again and again.

As `bench.chaos_cluster`: 2 to so many nodes, each run hit once, also the command itself, which is
typed again then. The input has many blocks on the DataNodes of a real HDFS (Java; `make tools`), which are not hit. The exit
status is 1 if a byte is not the serial one, or anything is lost or left over.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.chaos_cluster import HEAD, NAMES, REPO, TARGETS, Chaos, Hit, report
from bench.hdfs_nodes import reason_not

import namespace_nodes  # isort: skip - found by `bench.chaos_cluster`
import process_lookup  # isort: skip
import storage_servers  # isort: skip
from cluster_site import find_millrace  # isort: skip

PROGRAM = REPO / "tests" / "support" / "hdfs" / "HdfsOfNodes.java"

#: Bytes of a block, and letters of a record.
BLOCK_BYTES, LETTERS = 64 << 10, 9000

#: The supervisor, which nobody watches.
COMMAND = "command"


@dataclass
class InputChaos(Chaos):
    """Runs a filter over an input in HDFS."""

    uri: str = ""
    #: Those of the run at hand.
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        content = "".join(f">record{k}\n{'ACDEFGHIK' * (LETTERS // 9)}\n" for k in range(self.n_records)).encode()
        self.expected = content.replace(b">", b">seen ")
        (self.folder / "in.fa").unlink()
        import hdfs_native

        options = hdfs_native.WriteOptions(block_size=BLOCK_BYTES, replication=2, overwrite=True)
        with hdfs_native.Client(self.uri).create("/in.fa", options) as file:
            file.write(content)

    def start(self, hosts: tuple[str, ...]) -> subprocess.Popen[bytes]:
        shutil.rmtree(self.run_dir, ignore_errors=True)
        (self.folder / "out.fa").unlink(missing_ok=True)
        return self.type_command(hosts)

    def type_command(self, hosts: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """Start the command, or resume it."""
        self.hosts = hosts
        command = (
            f"cd {self.folder}; exec env MILLRACE_RSH={self.cluster.rsh} HADOOP_CONF_DIR={self.folder.parent} {self.program} run "
            f"--hosts {','.join(hosts)} --slots 2 --keep-run-dir --progress none --input {self.uri}/in.fa --output out.fa "
            f"-- ./tool {self.uri}/in.fa out.fa"
        )
        with (self.folder / "said.txt").open("ab") as said:
            return subprocess.Popen(
                self.cluster.command(HEAD, command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
            )

    def hit(self, target: str, hosts: tuple[str, ...], number: signal.Signals) -> bool:
        if target != COMMAND:
            return super().hit(target, hosts, number)
        found = process_lookup.with_words(self.cluster.pids(HEAD), "millrace run")
        if found:
            os.kill(min(found), signal.SIGKILL)  # its guard came later
        return bool(found)

    def problems(self, code: int) -> list[str]:
        if code < 0 or code > 128:  # the command was killed, and is typed again
            code = self.type_command(self.hosts).wait(timeout=300)
        return super().problems(code)

    def left(self) -> list[str]:
        """Processes and files that should be gone; the folder with the names of URLs stays for the next run."""
        return [path for path in super().left() if "millrace-names-" not in path and "millrace-stage-" not in path]


@contextmanager
def serve_hdfs(folder: Path, cluster: namespace_nodes.Nodes) -> Iterator[str]:
    """Serve an HDFS whose DataNodes say that they are on the nodes, with its settings in ``folder``; yield its URL."""
    settings = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Ddir={folder}/hdfs"]
    words = [
        "java",
        *settings,
        f"-Dhost={cluster.gateway}",
        f"-Dnames={','.join(cluster.names[1:])}",
        "-cp",
        f"{storage_servers.JARS}/*",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(
        [*words, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        said = json.loads(process.stdout.readline())
        item = f"<property><name>dfs.namenode.http-address</name><value>{said['http']}</value></property>"
        (folder / "hdfs-site.xml").write_text(f"<configuration>{item}</configuration>")
        yield said["uri"]
        process.stdin.close()


def main() -> int:
    """Hit, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="runs that are hit (50)")
    parser.add_argument("--seed", type=int, default=1, help="decides nodes, moments and targets (1)")
    parser.add_argument("--records", type=int, default=160, help="records of each run (160)")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds of a task (0.3)")
    parser.add_argument("--nodes", type=int, default=3, help="nodes at most (3)")
    asked = parser.parse_args()
    if reason := reason_not():
        raise SystemExit(reason)
    TARGETS[COMMAND] = "millrace run"
    program = find_millrace()
    hits = list[Hit]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mr-")))
        cluster = stack.enter_context(
            namespace_nodes.Nodes(folder / "n", (HEAD, *NAMES[: asked.nodes]), os.getpid() % 256)
        )
        uri = stack.enter_context(serve_hdfs(folder, cluster))
        dice = random.Random(asked.seed)
        chaos = InputChaos(
            cluster, folder / "work", program, dice, asked.records, asked.seconds, n_nodes=(2, asked.nodes), uri=uri
        )
        while len(hits) < asked.runs:
            if hit := chaos.once():
                hits.append(hit)
                print(f"{len(hits):3} {hit.target:12} {hit.signal:8} {hit.n_nodes} nodes, hit at {hit.at:5.1f} s, took {hit.took:5.1f} {hit.problems or ''}", flush=True)  # fmt: skip
    report(hits)
    return 1 if any(hit.problems for hit in hits) else 0


if __name__ == "__main__":
    sys.exit(main())
