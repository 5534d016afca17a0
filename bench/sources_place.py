"""Nodes that read a database from a file server, mounted by sshfs, and from a web server, over cables of several rates. For `bench.sources`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import cluster_site  # noqa: E402
import namespace_nodes  # noqa: E402

from millrace.storage.reading_costs import (  # noqa: E402
    MeasuredCost,
    ReadCost,
    ReadCostLine,
)

HOSTS = ("node1", "node2", "node3", "node4")
HEAD, FILES, MIRROR = "node1", "files", "mirror"
WAYS = ("in place", "each its copy", "broadcast", "replica", "auto")

#: What `--stage` is for each; a copy of their own is read in place.
STAGE = {"in place": "off", "each its copy": "off", "broadcast": "ram", "replica": "ram", "auto": "auto"}

#: Batches of each node.
PASSES = 4

#: What `millrace data probe` is shown, in MB.
PROBED_MB = 64

#: Where each node mounts the file server, and where it may keep a copy of its own.
MOUNT, COPY = "/var/tmp/files", "/dev/shm/copy"

#: One sftp-server for each connection: no keys, no cipher.
SFTP = """
import socket, subprocess, sys
listening = socket.create_server(("0.0.0.0", 7777))
print("ready", flush=True)
while True:
    connection, _ = listening.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    subprocess.Popen([sys.argv[1]], stdin=connection.fileno(), stdout=connection.fileno(), stderr=subprocess.DEVNULL)
    connection.close()
"""
WEB = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import web_server
with web_server.serve(host=sys.argv[2]) as web:
    for path in Path(sys.argv[3]).iterdir():
        web.put(path.name, path.read_bytes())
    print(web.url, flush=True)
    time.sleep(1 << 30)
"""

#: What each node believes of the servers.
Believed = dict[str, dict[str, MeasuredCost]]


def reason_not() -> str:
    """Why this cannot be done here; empty if it can."""
    return namespace_nodes.reason_not() or ("" if shutil.which("sshfs") else "sshfs is not installed")


@dataclass(frozen=True)
class Cell:
    """One cell of the grid.

    Args:
        mb: Of the database.
        slots: Of each node.
        mbit: Rate of the file server's cable, in Mbit/s.
        mirror: So many times that is the rate of the web server's.
    """

    mb: int
    slots: int
    mbit: float
    mirror: float


@dataclass(frozen=True)
class Taken:
    """What one way took.

    Args:
        seconds: Of the whole command.
        sent: Bytes that both servers sent.
        chosen: What the run says that it does with the database.
    """

    seconds: float
    sent: int
    chosen: str


class Place:
    """Nodes, two servers, and a user's folders."""

    def __init__(self, folder: Path, sizes: list[int], stack: ExitStack) -> None:
        self.folder, self.user = folder, folder / "user"
        self.exported = folder / "export"
        self.exported.mkdir()
        for mb in {*sizes, PROBED_MB}:
            (self.exported / f"{mb}.bin").write_bytes(os.urandom(mb << 20))
        (folder / "scan").write_text('#!/bin/sh\ncat "$1" > /dev/null && exec cat\n')
        (folder / "scan").chmod(0o755)
        (folder / "in.fa").write_text("".join(f">record{k}\nMKV\n" for k in range(PASSES * len(HOSTS))))
        for name in ("config", "cache/millrace"):
            (self.user / name).mkdir(parents=True)
        self.millrace = cluster_site.installation("openmpi")
        self.nodes = stack.enter_context(
            namespace_nodes.Nodes(folder / "n", (*HOSTS, FILES, MIRROR), os.getpid() % 256)
        )
        sftp = shutil.which("sftp-server", path=f"/usr/lib/openssh:{REPO}/.tools/openssh/usr/lib/openssh")
        self._serve(FILES, stack, SFTP, str(sftp))
        address = self.nodes.gateway.rpartition(".")[0] + f".{self.nodes.names.index(MIRROR) + 1}"
        self.url = self._serve(MIRROR, stack, WEB, str(REPO / "tests" / "support"), address, str(self.exported))

    def _inside(self, node: str) -> list[str]:
        return ["nsenter", "--target", str(self.nodes.network(node)), "--net"]

    def _serve(self, node: str, stack: ExitStack, *words: str) -> str:
        """Start a server in a node; its first line."""
        words = (*self._inside(node), sys.executable, "-c", *words)
        process = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        assert process.stdout
        return process.stdout.readline().strip()

    def rate(self, node: str, mbit: float) -> None:
        """How much a server's cable carries."""
        words = f"tc qdisc replace dev eth0 root tbf rate {mbit}mbit burst 64kb latency 100ms".split()
        subprocess.run([*self._inside(node), *words], check=True)

    def _on(self, line: str) -> str:
        """What a line of shell says on the first node."""
        # Nodes do not have the environment of this process. What is fetched has to be where `_forget` finds it.
        own = f"export TMPDIR=/var/tmp XDG_CONFIG_HOME={self.user}/config XDG_CACHE_HOME={self.user}/cache"
        words = self.nodes.command(HEAD, f"cd {self.folder}; {own}; {line}")
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            sys.exit(f"{line}\n{done.stdout}")
        return done.stdout

    def _on_all(self, line: str) -> None:
        running = [
            subprocess.Popen(self.nodes.command(name, line), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for name in HOSTS
        ]
        codes = [process.wait() for process in running]
        if any(codes):
            sys.exit(f"{line}: fails on a node")

    def _forget(self) -> None:
        """Nothing of the database is on any node."""
        mount = f"sshfs -o directport=7777,ro,kernel_cache {FILES}:{self.exported} {MOUNT}"
        self._on_all(
            f"umount -l {MOUNT}; rm -rf /dev/shm/* /var/tmp/millrace*; mkdir -p {MOUNT}; {mount} > /dev/null 2>&1"
        )

    def _sent(self) -> int:
        links = (Path(f"/sys/class/net/{self.nodes.link(node)}/statistics/rx_bytes") for node in (FILES, MIRROR))
        return sum(int(path.read_text()) for path in links)

    def _believe(self, found: Believed) -> None:
        for name in HOSTS:
            path = self.user / f"cache/millrace/costs-{name}.json"
            path.write_bytes(msgspec.json.encode(found.get(name, {})))

    def probed(self) -> Believed:
        """What `millrace data probe` measures of both servers on the node that decides; the same for all."""
        self._believe({})
        self._forget()
        self._on(f"{self.millrace} data probe {MOUNT}/{PROBED_MB}.bin {self.url}/{PROBED_MB}.bin")
        path = self.user / f"cache/millrace/costs-{HEAD}.json"
        return dict.fromkeys(HOSTS, msgspec.json.decode(path.read_bytes(), type=dict[str, MeasuredCost]))

    def _forged(self) -> Believed:
        """Costs with which a replica is always taken."""
        found = {}
        for place, rate in ((MOUNT, 1e3), (self.url, 1e12)):
            cost = ReadCost(lines=(ReadCostLine(readers=1, start_seconds=0.0, seconds_per_byte=1 / rate),))
            found[place] = MeasuredCost(place=place, size=1, cost=cost, checks=(), when=time.time())
        return dict.fromkeys(HOSTS, found)

    def measure(self, cell: Cell, way: str, probed: Believed) -> Taken:
        """One way, with nothing on the nodes before."""
        rules = f'[[replica]]\npath = "{MOUNT}/*"\nat = ["{self.url}/*"]\n' if way in ("replica", "auto") else ""
        (self.user / "config/millrace.toml").write_text(rules)
        self._believe(self._forged() if way == "replica" else probed)
        self._forget()
        copied = way == "each its copy"
        database = COPY if copied else f"{MOUNT}/{cell.mb}.bin"
        before, begun = self._sent(), time.monotonic()
        if copied:
            self._on_all(f"cp {MOUNT}/{cell.mb}.bin {COPY}")
        said = self._on(
            f"MILLRACE_RSH={self.nodes.rsh} {self.millrace} run -v --fresh --hosts {','.join(HOSTS)} --slots {cell.slots} --batch 1 "
            f"--verify 0 --progress none --stage {STAGE[way]} --shared {database} --format fasta -- ./scan {database} < in.fa > out.fa"
        )
        seconds = time.monotonic() - begun
        if (self.folder / "out.fa").read_bytes() != (self.folder / "in.fa").read_bytes():
            sys.exit(f"{way}: other bytes")
        chosen = "; ".join(line for line in said.splitlines() if line.startswith("databases: "))
        if way == "replica" and self.url not in chosen:
            sys.exit(f"{way}: the run did something else: {chosen}")
        sent = self._sent() - before
        if sent < cell.mb << 20:
            sys.exit(f"{way}: the servers sent {sent} bytes: the nodes had some of the database before")
        return Taken(seconds, sent, chosen)
