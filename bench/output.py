"""The ways to write the output of a job on several nodes, side by side: real MPI over links as slow as a cluster's.

The shape is that of mpiBLAST-PIO's output experiments: far more output than input, most results small and some very
large (lognormal), those of neighbouring queries on different nodes. Nodes are namespaces of this machine. Each has a link
of its own to the others (``tc``) and one of the same rate to the storage that all share (`storage_link.c`, mounted by each
node: what crosses it is counted). The storage itself is memory, so that links are the limit, as they are on a cluster.

    python -m bench.output                                # 8 nodes, 50 Mbit/s; root only; seven minutes
    python -m bench.output --ways merge coordinator --shares 0.7 --repeats 1

With ``--tool blastp`` the results are reports of BLAST+ (`-outfmt 0`), recorded and replayed: each has a banner and closing statistics,
which the whole output has once. Only output is measured.

    python -m bench.output --tool blastp --link 10 --megabytes 32

A tool takes time in proportion to what it writes. ``--shares``: what all tools together write in a second, as a share of
what one link carries; 0 is a tool that costs nothing, so that nothing but output is measured.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import random
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from bench.results import show_table

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import exact_cases  # noqa: E402
import namespace_nodes  # noqa: E402
from cluster_site import installation  # noqa: E402

WAYS = ("merge", "individual", "collective", "coordinator")

HEAD = "head"

#: Spread of the bytes of a record's output (of their logarithm), and their mean and largest.
SPREAD, MEAN, LARGEST = 2.0, 128 << 10, 2 << 20

#: Writes so many bytes for each line as the line says, and takes its time for them.
EMIT_C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static char text[1 << 20];
int main(int argc, char **argv) {
    char line[64]; unsigned state = 1; double all = 0, rate = atof(argv[3]);
    FILE *in = fopen(argv[1], "r"), *out = fopen(argv[2], "w");
    for (size_t k = 0; k < sizeof text; k++) { state = state * 1664525u + 1013904223u; text[k] = k % 80 == 79 ? '\n' : 'A' + (state >> 27) % 26; }
    while (fgets(line, sizeof line, in)) {
        long left = atol(line), at = left * 7919 % 4099;
        all += left;
        while (left > 0) {
            long n = left < (long)sizeof text - at ? left : (long)sizeof text - at;
            if (fwrite(text + at, 1, n, out) != (size_t)n) return 1;
            left -= n; at = 0;
        }
    }
    if (rate > 0) usleep((useconds_t)(all / rate * 1e6));
    return fclose(out) != 0;
}
"""

LOOK_SECONDS = 0.05


def sizes(total: int) -> list[int]:
    """Bytes of the output of each record: lognormal, about ``total`` in all."""
    rng = random.Random(1)
    found: list[int] = []
    left = total
    while left > 0:
        found.append(min(int(rng.lognormvariate(0, SPREAD) * MEAN / 7.389), LARGEST) + 1)  # e^(SPREAD^2/2)
        left -= found[-1]
    return found


class Emit:
    """A tool of ours: it writes as many bytes as each line of its input says."""

    words = ("--input", "in.txt:lines", "--output", "out", "--")
    name = "in.txt"

    def prepare(self, folder: Path, options: argparse.Namespace) -> int:
        """Make tool, input and what it writes serially; return the number of records."""
        (folder / "emit.c").write_text(EMIT_C)
        subprocess.run(["cc", "-O2", "-o", "emit", "emit.c"], cwd=folder, check=True)
        records = sizes(options.megabytes << 20)
        (folder / self.name).write_text("".join(f"{size}\n" for size in records))
        subprocess.run(["./emit", "in.txt", "serial", "0"], cwd=folder, check=True)
        return len(records)

    def command(self, folder: Path, rate: float) -> list[str]:
        return [str(folder / "emit"), "in.txt", "out", str(rate)]


#: Gives what BLAST+ wrote for each query when it was asked once; for all else it is BLAST+.
REPLAY = """#!/bin/sh
case "$*" in *-query*) ;; *) exec {blastp} "$@" ;; esac
while [ $# -gt 1 ]; do
    case $1 in -query) in=$2 ;; -out) out=$2 ;; esac
    shift
done
cd {folder}/sections
exec cat banner $(sed -n 's/^>//p' "$OLDPWD/$in") footer > "$OLDPWD/$out"
"""


class Blastp:
    """BLAST+'s report for people, of a protein's parts against thousands of relatives: recorded, and replayed in no time."""

    #: Nothing is verified: that would run tools twice, and read what they wrote.
    words = ("--as", "blastp", "--verify", "0", "--")
    name = "q.faa"
    #: Queries that BLAST+ itself has searched; the others are the same ones under other names.
    n_recorded = 6

    def prepare(self, folder: Path, options: argparse.Namespace) -> int:
        """Make database, queries and what BLAST+ writes for them; return the number of queries."""
        data = Path(os.environ.get("MILLRACE_TEST_DATA", REPO / ".tools" / "data"))
        exact_cases.make_relatives(data, folder / "one.faa", folder / "relatives")
        make = ["makeblastdb", "-in", "relatives", "-dbtype", "prot", "-out", "relatives"]
        subprocess.run(make, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        protein = "".join((folder / "one.faa").read_text().split("\n")[1:])
        parts = [protein[30 * k : 30 * k + 150] for k in range(self.n_recorded)]
        (folder / self.name).write_text("".join(f">query\n{part}\n" for part in parts))
        subprocess.run(["blastp", *self.options(folder), "-out", "recorded"], cwd=folder, check=True)
        banner, *sections = (folder / "recorded").read_bytes().split(b"Query= query\n")
        at = sections[-1].rindex(b"\n\n  Database: ")
        sections[-1], footer = sections[-1][:at], sections[-1][at + 2 :]
        (folder / "sections").mkdir()
        (folder / "sections" / "banner").write_bytes(banner)
        (folder / "sections" / "footer").write_bytes(footer)
        queries, n_bytes = list[str](), 0
        while n_bytes < options.megabytes << 20:
            k = len(queries)
            section = b"Query= query%d\n%s" % (k, sections[k % len(sections)].rstrip(b"\n") + b"\n\n\n")
            (folder / "sections" / f"query{k}").write_bytes(section)
            queries.append(f">query{k}\n{parts[k % len(parts)]}\n")
            n_bytes += len(section)
        (folder / self.name).write_text("".join(queries))
        (folder / "blastp").write_text(REPLAY.format(blastp=shutil.which("blastp"), folder=folder))
        (folder / "blastp").chmod(0o755)
        subprocess.run([*self.command(folder, 0)[:-1], "serial"], cwd=folder, check=True)
        return len(queries)

    def options(self, folder: Path) -> list[str]:
        found = ["-num_descriptions", "500", "-num_alignments", "500"]
        return ["-query", self.name, "-db", str(folder / "relatives"), "-outfmt", "0", *found]

    def command(self, folder: Path, rate: float) -> list[str]:
        return [str(folder / "blastp"), *self.options(folder), "-out", "out"]


class Watch:
    """CPU seconds of the processes of Millrace on the coordinator's node, without their tools."""

    def __init__(self, cluster: namespace_nodes.Nodes, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._seen: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> float:
        self._over.set()
        self._thread.join()
        return sum(self._seen.values())

    def _look(self) -> None:
        ticks, turn = os.sysconf("SC_CLK_TCK"), 0
        ours: set[int] = set()
        while not self._over.wait(LOOK_SECONDS):
            if turn % 10 == 0:
                for pid in self._cluster.pids(self._name):
                    with suppress(OSError):
                        if b"millrace\0run" in Path(f"/proc/{pid}/cmdline").read_bytes():
                            ours.add(pid)
            turn += 1
            for pid in ours:
                with suppress(OSError, IndexError):
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    self._seen[pid] = (int(fields[11]) + int(fields[12])) / ticks


class Site:
    """Nodes with links, and a folder that all of them see through theirs."""

    def __init__(self, stack: ExitStack, options: argparse.Namespace) -> None:
        self.options, self.tool = options, TOOLS[options.tool]()
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mr-out-")))
        self.storage, self.shared = self.folder / "storage", self.folder / "shared"
        self.storage.mkdir()
        self.shared.mkdir()
        stack.enter_context(_memory(self.storage))
        self._compile()
        self.names = tuple(f"node{k}" for k in range(1, options.nodes + 1))
        self.cluster = stack.enter_context(
            namespace_nodes.Nodes(self.folder / "nodes", (HEAD, *self.names), number=203)
        )
        rate = options.link * 1e6 / 8
        for name in (HEAD, *self.names):
            words = [
                self.folder / "storage_link",
                self.storage,
                rate,
                self.folder / f"counts-{name}",
                "-f",
                self.shared,
            ]
            subprocess.Popen(self.cluster.command(name, shlex.join(map(str, words))), stdin=subprocess.DEVNULL)
        for name in self.names:
            self._shape(name)
        (self.storage / "there").touch()
        for name in (HEAD, *self.names):
            while subprocess.run(self.cluster.command(name, f"test -e {self.shared}/there")).returncode:
                time.sleep(0.05)

    def _compile(self) -> None:
        fuse = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True)
        if fuse.returncode:
            raise SystemExit(f"bench.output: libfuse 3 and its headers are needed: {fuse.stderr.strip()}")
        source = Path(__file__).with_name("storage_link.c")
        link = ["cc", "-O2", "-o", "storage_link", str(source), *fuse.stdout.split()]
        subprocess.run(link, cwd=self.folder, check=True)

    def _shape(self, name: str) -> None:
        """Limit what a node sends and what it gets."""
        k = (HEAD, *self.names).index(name)
        bucket = f"root tbf rate {self.options.link}mbit burst 64kb latency 100ms"
        subprocess.run(["tc", "qdisc", "add", "dev", f"mrv203-{k}", *bucket.split()], check=True)
        subprocess.run(self.cluster.command(name, f"tc qdisc add dev eth0 {bucket}"), check=True)

    def carried(self, name: str) -> tuple[int, int]:
        """Bytes between a node and the storage, and between it and other nodes."""
        read, written = struct.unpack("QQ", (self.folder / f"counts-{name}").read_bytes())
        about = Path(f"/sys/class/net/mrv203-{(HEAD, *self.names).index(name)}/statistics")
        return read + written, sum(int((about / f"{way}_bytes").read_text()) for way in ("rx", "tx"))

    def run(self, way: str, rate: float) -> dict[str, Any]:
        """One run; its figures. ``rate``: bytes that a tool writes in a second, 0: as many as it can."""
        folder = self.storage / "run"
        folder.mkdir()
        shutil.copy(self.folder / self.tool.name, folder)
        words = [self.options.millrace, "run", "-q", "--write", way, "--hosts", ",".join(self.names), "--slots", "1"]
        words += ["--batch", str(self.options.batch), *self.tool.words, *self.tool.command(self.folder, rate)]
        command = f"cd {self.shared}/run; exec env MILLRACE_RSH={self.cluster.rsh} {shlex.join(words)}"
        before = self.carried(self.names[0])
        watch = Watch(self.cluster, self.names[0])
        begun = time.perf_counter()
        try:
            done = subprocess.run(self.cluster.command(HEAD, command), capture_output=True, stdin=subprocess.DEVNULL)
            wall = time.perf_counter() - begun
        finally:
            cpu = watch.stop()
        if done.returncode:
            raise SystemExit(f"{way}: ended with {done.returncode}: {done.stderr.decode(errors='replace')[-800:]}")
        stored, sent = (after - first for after, first in zip(self.carried(self.names[0]), before, strict=True))
        same = filecmp.cmp(folder / "out", self.folder / "serial", shallow=False)
        shutil.rmtree(folder)
        return {"wall": wall, "cpu": cpu, "stored": stored, "sent": sent, "same": same}


TOOLS: dict[str, type[Emit | Blastp]] = {"emit": Emit, "blastp": Blastp}


@contextmanager
def _memory(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", choices=["openmpi", "mpich"], default="openmpi")
    parser.add_argument("--tool", choices=TOOLS, default="emit")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--link", type=int, default=50, help="Mbit/s of each link, each way")
    parser.add_argument("--megabytes", type=int, default=48)
    parser.add_argument("--batch", type=int, default=4, help="records of a batch")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shares", nargs="*", type=float, default=[0.7, 0.0])
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    options = parser.parse_args()
    missing = namespace_nodes.reason_not() or next(
        (f"{each} is not installed" for each in ("tc", "cc", "pkg-config") if not shutil.which(each)), ""
    )
    if missing:
        raise SystemExit(f"bench.output: {missing}")
    options.millrace = installation(options.mpi)
    with ExitStack() as stack:
        site = Site(stack, options)
        n_records = site.tool.prepare(site.folder, options)
        shares = options.shares if options.tool == "emit" else [0.0]
        found: dict[tuple[float, str], list[dict[str, Any]]] = {
            (share, way): [] for share in shares for way in options.ways
        }
        for _ in range(options.repeats):
            for share, way in found:  # by turns, as the machine's mood changes
                one = site.run(way, share * options.link * 1e6 / 8 / options.nodes)
                found[share, way].append(one)
                print(share, way, one, file=sys.stderr, flush=True)
    print(
        f"\n{options.tool}: {options.megabytes} MB of {n_records} records on {options.nodes} nodes with links of {options.link} Mbit/s, "
        f"{options.mpi}; medians of {options.repeats}\n"
    )
    lines = [
        (
            f"{share:g}", way, f"{median(each['wall'] for each in runs):.1f}", f"{min(each['wall'] for each in runs):.1f}",
            f"{median(each['stored'] for each in runs) / 1e6:.0f}", f"{median(each['sent'] for each in runs) / 1e6:.1f}",
            f"{median(each['cpu'] for each in runs):.2f}", "yes" if all(each["same"] for each in runs) else "NO",
        )
        for (share, way), runs in found.items()
    ]  # fmt: skip
    head = (
        "tools write", "way", "s", "best", "coordinator: MB to and from storage", "to and from nodes", "CPU s", "serial's bytes",
    )  # fmt: skip
    show_table("output", head, lines)
    return int(not all(each["same"] for runs in found.values() for each in runs))


if __name__ == "__main__":
    sys.exit(main())
