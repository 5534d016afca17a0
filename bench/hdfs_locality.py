"""Are the volumes of a database in HDFS searched by the nodes that hold them? On a real HDFS, with all bytes counted.

    python -m bench.hdfs_locality [--nodes 4] [--fragments 32] [--replication 2] [--megabytes 128] [--mbit 200] [--ids] [--drawn]

Nodes are namespaces of this machine with a DataNode each (`bench.hdfs_nodes`; root, Java and Open MPI's wheel), whose links carry
so many Mbit/s each way. `millrace db split` puts the volumes there, each with all its files on one DataNode; with --drawn
the NameNode draws for each file, as with `hdfs dfs -put`. The same search three times, each with empty caches on all nodes: by where the blocks are; with a NameNode
that does not tell, so that volumes go to nodes as the NameNode's dice put them; and by where the blocks are again, while a
DataNode is killed when a fifth of the searches has begun; the others wait until it is dead. What went over the links is what their interfaces count, MPI and HDFS together.
With --hmmer it is a file of sequences for hmmsearch, in blocks of 4 MiB, and the second run passes it on as a whole.
The exit status is 1 if an output is not the serial one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from bench import inputs
from bench.hdfs_nodes import HdfsOfNodes, reason_not
from bench.results import show_table
from millrace.adapters.blast import physical_fragments
from millrace.storage import hdfs_blocks

import namespace_nodes  # isort: skip - found by `bench.hdfs_nodes`
from cluster_site import find_millrace  # isort: skip

HEAD = "head"
COLUMNS = "7 qaccver saccver stitle evalue bitscore"

#: Of a file of sequences.
HMMER_BLOCK_BYTES = 4 << 20

#: Searches that begin before the DataNode is killed, as a share of all.
KILLED_AFTER = 0.2

#: blastp, of which so many searches begin at once, and the others once they may.
HELD = """#!/bin/sh
case "$*" in *-query*) echo >> {work}/begun; [ $(wc -l < {work}/begun) -le {most} ] || until [ -e {work}/go ]; do sleep 0.05; done ;; esac
exec {blastp} "$@"
"""


class Found(NamedTuple):
    """What one run came to."""

    name: str
    #: Searches, and those of them on nodes that held half of their volume at the start.
    searches: int
    local: int
    #: Bytes that came over the links of all nodes.
    network: int
    seconds: float
    is_serial: bool


class Bench:
    """A database in HDFS, and the search of it."""

    def __init__(
        self, folder: Path, cluster: namespace_nodes.Nodes, hdfs: HdfsOfNodes, program: str, hosts: tuple[str, ...]
    ) -> None:
        self._folder, self._cluster, self._hdfs, self._program, self._hosts = folder, cluster, hdfs, program, hosts
        self.n_bytes = 0
        self._wanted = b""
        #: What is run, with the options of millrace, and the output.
        self._command = ""
        #: Hosts that hold each fragment, from 1.
        self._holders: dict[int, frozenset[str]] = {}

    @property
    def n_fragments(self) -> int:
        return len(self._holders)

    def fill(self, fragments: int, n_bytes: int, queries: int, *, ids: bool, drawn: bool) -> None:
        """Make the database, put it into HDFS, and search it serially.

        Args:
            ids: Have the ids of its entries parsed.
            drawn: Leave to the NameNode where each file goes.
        """
        inputs.write_fasta(self._folder / "db.faa", n_bytes)
        chance, entries = random.Random(3), inputs.records(self._folder / "db.faa")
        asked = [inputs.mutated(entry, 1, inputs.AMINO, chance) for entry in chance.sample(entries, queries)]
        (self._folder / "q.faa").write_bytes(b"".join(asked))
        quiet = {"cwd": self._folder, "check": True, "stdout": subprocess.DEVNULL}
        words = [
            "makeblastdb",
            "-in",
            "db.faa",
            "-dbtype",
            "prot",
            "-title",
            "all",
            "-out",
            "db",
            *(["-parse_seqids"] if ids else []),
        ]
        subprocess.run(words, **quiet)  # type: ignore[call-overload]
        environ = {**os.environ, "HADOOP_CONF_DIR": str(self._folder / "hdfs" / "conf")}
        if drawn:
            parts = self._folder / "parts"
            physical_fragments.split_database("db", (fragments, 0), parts, self._folder, os.environ)
            self._hdfs.put(parts.iterdir(), "db")
        else:
            words = [self._program, "db", "split", "db", str(fragments), "-o", f"{self._hdfs.uri}/db"]
            said = subprocess.run(
                words, cwd=self._folder, env=environ, check=True, capture_output=True, text=True
            ).stdout
            print(said.splitlines()[-1])
        serial = ["blastp", "-query", "q.faa", "-db", "db", "-outfmt", COLUMNS]
        self._wanted = subprocess.run(serial, cwd=self._folder, check=True, capture_output=True).stdout
        self._command = f"-- blastp -query q.faa -db {self._hdfs.uri}/db/db -outfmt '{COLUMNS}' -out out"
        sizes = self._hdfs.sizes("db")
        for fragment in range(1, fragments + 1):
            own = [name for name in sizes if re.fullmatch(rf"db\.0*{fragment - 1}\.p(sq|hr)", name)]
            places = hdfs_blocks.locate_blocks([f"{self._hdfs.uri}/db/{name}" for name in own], environ)
            held: Mapping[str, int] = hdfs_blocks.sum_bytes_by_host(places.values())
            n_own = sum(sizes[name] for name in own)
            self.n_bytes += n_own
            self._holders[fragment] = frozenset(host for host in self._hosts if 2 * held.get(host, 0) >= n_own)

    def fill_for_hmmer(self, n_bytes: int, queries: int) -> None:
        """Put a file of sequences into HDFS, and search it serially with as many profiles."""
        from hmmer_profiles import profile

        inputs.write_fasta(self._folder / "db.faa", n_bytes)
        chance, entries = random.Random(3), inputs.records(self._folder / "db.faa")
        asked = enumerate(chance.sample(entries, queries))
        models = b"".join(profile(entry, f"m{number}") for number, entry in asked)
        (self._folder / "q.faa").write_bytes(models)
        self._hdfs.put([self._folder / "db.faa"], "db", block_bytes=HMMER_BLOCK_BYTES)
        serial = ["hmmsearch", "--cpu", "0", "--tblout", "table", "-o", os.devnull, "q.faa", "db.faa"]
        subprocess.run(serial, cwd=self._folder, check=True)
        self._wanted = without_times((self._folder / "table").read_bytes())
        self._command = f"-- hmmsearch --cpu 0 --tblout out -o /dev/null q.faa {self._hdfs.uri}/db/db.faa"
        url = f"{self._hdfs.uri}/db/db.faa"
        found = hdfs_blocks.locate_blocks(
            [url], {**os.environ, "HADOOP_CONF_DIR": str(self._folder / "hdfs" / "conf")}
        )[url]
        self.n_bytes = n_bytes
        for fragment, block in enumerate(found, 1):
            self._holders[fragment] = frozenset(host for host in self._hosts if host in block.hosts)

    def run(self, name: str, conf: str, killed: str = "", options: str = "") -> Found:
        """Search it, with nothing on the nodes before.

        Args:
            conf: The folder of HDFS's settings.
            killed: The node whose DataNode is killed meanwhile.
            options: More of them for Millrace.
        """
        for host in self._hosts:
            subprocess.run(self._cluster.command(host, "rm -rf /dev/shm/millrace-stage-*"), check=True)
        work = self._folder / name.replace(" ", "-")
        work.mkdir()
        (work / "q.faa").symlink_to(self._folder / "q.faa")
        before, begun = self._over_links(), time.monotonic()
        if killed:
            most = int(KILLED_AFTER * len(self._holders))
            (work / "bin").mkdir()
            (work / "bin" / "blastp").write_text(HELD.format(work=work, most=most, blastp=shutil.which("blastp")))
            (work / "bin" / "blastp").chmod(0o755)
        process = self._start(work, conf, options)
        if killed:
            while process.poll() is None and not is_longer(work / "begun", most):
                time.sleep(0.02)
            if process.poll() is not None:
                raise SystemExit(f"{name}: ended before the DataNode could be killed: {(work / 'said').read_text()}")
            self._hdfs.kill(killed)
            (work / "go").touch()
        code = process.wait()
        seconds, network = time.monotonic() - begun, self._over_links() - before
        if code:
            raise SystemExit(f"{name}: exit code {code}: {(work / 'said').read_text()}")
        searched = self._searched(work)
        local = sum(self._hosts[slot] in self._holders[fragment] for fragment, slot in searched)
        same = without_times((work / "out").read_bytes()) == self._wanted
        return Found(name, len(searched), local, network, seconds, same)

    def _start(self, work: Path, conf: str, options: str) -> subprocess.Popen[bytes]:
        command = (
            f"cd {work}; exec env MILLRACE_RSH={self._cluster.rsh} HADOOP_CONF_DIR={self._folder}/hdfs/{conf} MILLRACE_CONFIG= "
            f"XDG_STATE_HOME={work}/state XDG_CACHE_HOME={work}/cache PATH={work}/bin:$PATH {self._program} run --hosts {','.join(self._hosts)} --slots 1 "
            f"--progress none --verify 0 --batch 1000000 --keep-run-dir {options} {self._command}"
        )
        with (work / "said").open("wb") as said:
            return subprocess.Popen(self._cluster.command(HEAD, command), stdin=subprocess.DEVNULL, stderr=said)

    def _searched(self, work: Path) -> list[tuple[int, int]]:
        """(fragment, slot) of all searches that have ended; a node has one slot."""
        found = []
        with suppress(OSError), (work / "out.millrace" / "events.jsonl").open() as lines:
            for line in lines:
                with suppress(ValueError):  # the last line may be half written
                    event = json.loads(line)
                    if event["event"] == "task" and 0 < event.get("fragment", 0) <= len(self._holders):
                        found.append((event["fragment"], event.get("slot", 0)))
        return found

    def _over_links(self) -> int:
        """Bytes that all nodes have received so far: what this end of their links has sent."""
        links = (self._cluster.link(host) for host in self._hosts)
        return sum(int(Path(f"/sys/class/net/{link}/statistics/tx_bytes").read_text()) for link in links)


def without_times(text: bytes) -> bytes:
    """What a tool writes, but for what no two runs of HMMER have in common."""
    return re.sub(rb"(?m)^# (Date|Option settings|Target file|Current dir): .*\n", b"", text)


def is_longer(log: Path, n: int) -> bool:
    """Whether a log has more than so many lines."""
    return log.exists() and len(log.read_text().splitlines()) > n


def shape(cluster: namespace_nodes.Nodes, hosts: tuple[str, ...], mbit: int) -> None:
    """Let the links of nodes carry so many Mbit/s each way."""
    rate = f"root tbf rate {mbit}mbit burst 256kb latency 100ms"
    for host in hosts:
        subprocess.run(cluster.command(host, f"tc qdisc replace dev eth0 {rate}"), check=True)
        subprocess.run(["tc", "qdisc", "replace", "dev", cluster.link(host), *rate.split()], check=True)


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("nodes", 4),
        ("fragments", 32),
        ("replication", 2),
        ("megabytes", 128),
        ("queries", 4),
        ("mbit", 200),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    parser.add_argument("--ids", action="store_true", help="have the ids of entries parsed (makeblastdb -parse_seqids)")
    parser.add_argument("--drawn", action="store_true", help="leave to the NameNode where each file goes")
    parser.add_argument("--hmmer", action="store_true", help="sequences for hmmsearch instead of volumes for blastp")
    asked = parser.parse_args()
    if reason := reason_not():
        raise SystemExit(reason)
    program = find_millrace()
    hosts = tuple(f"node{k}" for k in range(1, asked.nodes + 1))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mr-")))
        cluster = stack.enter_context(namespace_nodes.Nodes(folder / "n", (HEAD, *hosts), os.getpid() % 256))
        hdfs = stack.enter_context(HdfsOfNodes(folder / "hdfs", cluster, hosts, asked.replication))
        bench = Bench(folder, cluster, hdfs, program, hosts)
        hdfs.settings("silent", "127.0.0.1:1")  # where nobody answers
        if asked.hmmer:
            bench.fill_for_hmmer(asked.megabytes << 20, asked.queries)
            shape(cluster, hosts, asked.mbit)
            found = [
                bench.run("by the blocks", "conf"),
                bench.run("passed on as a whole", "conf", options="--fragments 1 --batch 1"),
            ]
        else:
            bench.fill(asked.fragments, asked.megabytes << 20, asked.queries, ids=asked.ids, drawn=asked.drawn)
            shape(cluster, hosts, asked.mbit)
            found = [
                bench.run("by the blocks", "conf"), bench.run("anywhere", "silent"),
                bench.run("by the blocks, a DataNode killed", "conf", killed=hosts[-1]),
            ]  # fmt: skip
    print(
        f"{bench.n_fragments} fragments, {bench.n_bytes / 1e6:.0f} MB, on {asked.nodes} nodes, replication {asked.replication}, links of {asked.mbit} Mbit/s\n"
    )
    rows = [
        (each.name, str(each.searches), f"{each.local}", f"{each.network / 1e6:.1f} MB", f"{each.seconds:.1f} s",
         "yes" if each.is_serial else "NO")
        for each in found
    ]  # fmt: skip
    head = ("fragments go", "searches", "local", "over links", "wall", "serial's bytes")
    show_table("hdfs_locality", head, rows)
    return 0 if all(each.is_serial for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
