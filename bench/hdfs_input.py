"""A filter over an input on a file server, and in HDFS with and without locality: the shape of SDAFT's Table 1, at a small scale.

    python -m bench.hdfs_input [--nodes 4] [--megabytes 64 128 256] [--mbit 25] [--replication 1] [--block 4] [--runs 1]

Nodes are namespaces of this machine with a DataNode each (`bench.hdfs_nodes`; root, Java, Open MPI's wheel and sshfs). The links
of nodes and of the file server carry so many Mbit/s each way. The same reads are a folder of files on the file server, which each
node mounts by sshfs, so that the tools read them in parallel; and one file in HDFS, which nodes cut: by where the
blocks are; with a NameNode that does not tell; and, as with `--batch`, read by the coordinator alone. Nothing is in the caches
of nodes before a run. Seconds are of whole commands, of which a run on almost nothing shows the start. The exit
status is 1 if an output is not the serial one.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench import table
from bench.hdfs_locality import HEAD, shape
from bench.hdfs_nodes import REPO, HdfsOfNodes, reason_not
from bench.sources_place import SFTP

import namespace_nodes  # isort: skip - found by `bench.hdfs_nodes`
from cluster_site import find_millrace  # isort: skip

FILES, MOUNT = "files", "/var/tmp/files"

#: Reads that hold a site: a filter that reads all and writes little.
SCAN = """#!/bin/sh
LC_ALL=C exec awk 'NR % 4 == 1 { name = $1 } NR % 4 == 2 && /GATTACAGA/ { print name, length($0) }' "$@"
"""

#: Bytes of a batch that the coordinator cuts.
BATCH_BYTES = 4 << 20


class Taken(NamedTuple):
    """What one way took: seconds, and bytes over the links of nodes and file server."""

    seconds: float
    network: int


def make_reads(n_bytes: int) -> bytes:
    """Make that many bytes of FASTQ, or some more."""
    chance, found, size = random.Random(7), list[bytes](), 0
    letters = "".join(chance.choices("ACGT", k=1 << 16)).encode()
    quality = "".join(chance.choices("@+FGHI#", k=1 << 16)).encode()
    while size < n_bytes:
        at, n = chance.randrange(1 << 15), chance.randint(80, 250)
        found.append(b"@read%d\n%b\n+\n%b\n" % (len(found), letters[at : at + n], quality[at : at + n]))
        size += len(found[-1])
    return b"".join(found)


class Bench:
    """Reads on a file server and in HDFS, and a filter over them."""

    def __init__(
        self, folder: Path, cluster: namespace_nodes.Nodes, hdfs: HdfsOfNodes, program: str, hosts: tuple[str, ...]
    ) -> None:
        self._folder, self._cluster, self._hdfs, self._program, self._hosts = folder, cluster, hdfs, program, hosts
        self._n_runs = 0
        self._serial: dict[int, bytes] = {}
        (folder / "scan").write_text(SCAN)
        (folder / "scan").chmod(0o755)

    def fill(self, megabytes: int, block_bytes: int) -> None:
        """Put reads on the file server, in files of the size of a block, and into HDFS; filter them serially."""
        content = make_reads(megabytes << 20 if megabytes else 1000)
        parts = self._folder / "export" / f"{megabytes}"
        parts.mkdir(parents=True)
        whole = self._folder / f"{megabytes}.fastq"
        whole.write_bytes(content)
        at = number = 0
        while at < len(content):
            end = content.find(b"\n@read", at + block_bytes) + 1 or len(content)
            (parts / f"{number:05d}.fastq").write_bytes(content[at:end])
            at, number = end, number + 1
        self._hdfs.put([whole], "in", block_bytes)
        self._serial[megabytes] = subprocess.run([self._folder / "scan", whole], check=True, capture_output=True).stdout
        whole.unlink()

    def serve_files(self, stack: ExitStack) -> None:
        """Serve the file server's folder, and mount it on all nodes and the head."""
        sftp = shutil.which("sftp-server", path=f"/usr/lib/openssh:{REPO}/.tools/openssh/usr/lib/openssh")
        words = [
            "nsenter",
            "--target",
            str(self._cluster.network(FILES)),
            "--net",
            sys.executable,
            "-c",
            SFTP,
            str(sftp),
        ]
        process = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        assert process.stdout and process.stdout.readline() == "ready\n"

    def run(self, way: str, megabytes: int) -> Taken:
        """Filter the reads in one way, with nothing on the nodes before."""
        self._n_runs += 1
        mount = f"umount -l {MOUNT}; mkdir -p {MOUNT}; sshfs -o directport=7777,ro {FILES}:{self._folder}/export {MOUNT} > /dev/null 2>&1"
        for host in (HEAD, *self._hosts):
            line = f"rm -rf /dev/shm/millrace-*; {mount if way == 'sshfs' else ':'}"
            subprocess.run(self._cluster.command(host, line), check=True, stdin=subprocess.DEVNULL)
        work = self._folder / f"run-{self._n_runs}"
        work.mkdir()
        conf = "silent" if way == "HDFS, anywhere" else "conf"
        words = f"--input {MOUNT}/{megabytes}:files -- ../scan {MOUNT}/{megabytes}"
        if way != "sshfs":
            url = f"{self._hdfs.uri}/in/{megabytes}.fastq"
            batch = f"--batch {BATCH_BYTES}B " if way == "HDFS, the coordinator reads" else ""
            words = f"{batch}--input {url} -- ../scan {url}"
        command = (
            f"cd {work}; exec env MILLRACE_RSH={self._cluster.rsh} HADOOP_CONF_DIR={self._folder}/hdfs/{conf} MILLRACE_CONFIG= "
            f"XDG_STATE_HOME={work}/state XDG_CACHE_HOME={work}/cache {self._program} run --hosts {','.join(self._hosts)} "
            f"--slots 1 --progress none --verify 0 {words} > out"
        )
        before, begun = self._over_links(), time.monotonic()
        with (work / "said").open("wb") as said:
            code = subprocess.run(
                self._cluster.command(HEAD, command), stdin=subprocess.DEVNULL, stderr=said
            ).returncode
        taken = Taken(time.monotonic() - begun, self._over_links() - before)
        said_text = (work / "said").read_text()
        if code or (work / "out").read_bytes() != self._serial[megabytes]:
            raise SystemExit(
                f"{way}, {megabytes} MB: exit code {code}, or other bytes than the serial ones: {said_text}"
            )
        for line in said_text.splitlines():
            if "input in HDFS" in line:
                print(f"{way}, {megabytes} MB: {line}", file=sys.stderr)
        return taken

    def _over_links(self) -> int:
        links = (self._cluster.link(host) for host in self._hosts)
        return sum(int(Path(f"/sys/class/net/{link}/statistics/tx_bytes").read_text()) for link in links)


WAYS = ("sshfs", "HDFS, by the blocks", "HDFS, anywhere", "HDFS, the coordinator reads")


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("nodes", 4), ("mbit", 25), ("replication", 1), ("block", 4), ("runs", 1)):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--ways", nargs="+", default=WAYS, help="some of the ways alone")
    asked = parser.parse_args()
    if reason := reason_not():
        raise SystemExit(reason)
    if "sshfs" in asked.ways and not shutil.which("sshfs"):
        raise SystemExit("sshfs is not installed")
    program = find_millrace()
    hosts = tuple(f"node{k}" for k in range(1, asked.nodes + 1))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mr-")))
        cluster = stack.enter_context(namespace_nodes.Nodes(folder / "n", (HEAD, *hosts, FILES), os.getpid() % 256))
        hdfs = stack.enter_context(HdfsOfNodes(folder / "hdfs", cluster, hosts, asked.replication))
        hdfs.settings("silent", "127.0.0.1:1")  # where nobody answers
        bench = Bench(folder, cluster, hdfs, program, hosts)
        bench.serve_files(stack)
        for megabytes in asked.megabytes:
            bench.fill(megabytes, asked.block << 20)
        shape(cluster, (*hosts, FILES), asked.mbit)
        rows = []
        for way in asked.ways:
            taken = {size: [bench.run(way, size) for _ in range(asked.runs)] for size in asked.megabytes}
            seconds = [f"{statistics.median(each.seconds for each in taken[size]):.1f} s" for size in asked.megabytes]
            network = statistics.median(each.network for each in taken[asked.megabytes[-1]])
            rows.append((way, *seconds, f"{network / 1e6:.0f} MB"))
    print(
        f"{asked.nodes} nodes of one slot, replication {asked.replication}, links of {asked.mbit} Mbit/s, blocks of {asked.block} MiB\n"
    )
    print(
        table.markdown(("the reads", *(f"{size} MB" for size in asked.megabytes), "over links of nodes, largest"), rows)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
