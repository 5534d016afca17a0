"""``python -m bench.diamond_cluster``: DIAMOND on four nodes, by Millrace and by its own ``--multiprocessing``, beside the serial run.

The nodes are namespaces of this machine (root only), so what is compared is the CPU time of all processes, and the bytes: a
table, a table with taxa, a database that is searched in blocks (``-b``), and a run in which a node is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import random
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import namespace_nodes  # noqa: E402
from cluster_site import find_millrace  # noqa: E402

from bench.diamond import database  # noqa: E402
from bench.known_tools import proteins  # noqa: E402
from bench.results import show_table  # noqa: E402

HEAD, NODES = "head", tuple(f"node{number}" for number in range(1, 5))

#: Taxa that the entries are dealt to, below the root.
N_TAXA = 50

#: Options of each case; DIAMOND's own ``--multiprocessing`` must have a temporary folder that all nodes see.
CASES = {
    "table": "-f 6",
    "taxa": "-f 6 qseqid sseqid evalue bitscore staxids",
    "blocks of 20 million letters": "-f 6 -b 0.02",
}
#: Share of the time of an undisturbed run after which a node is lost.
LOSS = 0.5


class CpuGroup:
    """Control group of this process and all that it starts, with their CPU time. Use as a context; all that it starts must end before."""

    def __init__(self) -> None:
        root = Path("/sys/fs/cgroup")
        self._is_unified = (root / "cgroup.controllers").exists()
        self._folder = (root if self._is_unified else root / "cpuacct") / f"millrace-bench-{time.monotonic_ns()}"

    def __enter__(self) -> CpuGroup:
        self._folder.mkdir()
        (self._folder / "cgroup.procs").write_text("0")
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder.parent / "cgroup.procs").write_text("0")
        self._folder.rmdir()

    def read_seconds(self) -> float:
        """Return the CPU seconds of all processes so far."""
        if not self._is_unified:
            return int((self._folder / "cpuacct.usage").read_text()) / 1e9
        return int((self._folder / "cpu.stat").read_text().split()[1]) / 1e6


@contextlib.contextmanager
def measured_nodes() -> Iterator[tuple[Path, namespace_nodes.Nodes, CpuGroup]]:
    """Serve the nodes; yield a folder that all of them see, the nodes, and the group of all processes.

    Raises:
        SystemExit: There can be no nodes here; says why.
    """
    if reason := namespace_nodes.reason_not():
        raise SystemExit(reason)
    with CpuGroup() as group, tempfile.TemporaryDirectory(prefix="mr-") as place:
        folder = Path(place, "work")
        folder.mkdir()
        with namespace_nodes.Nodes(Path(place, "n"), (HEAD, *NODES), 7) as cluster:
            yield folder, cluster, group


@contextlib.contextmanager
def lose_node(cluster: namespace_nodes.Nodes, after_seconds: float) -> Iterator[None]:
    """Switch the third node off while the caller's run goes on, and on again behind it."""
    timer = threading.Timer(after_seconds, cluster.kill, [NODES[2]])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if not cluster.is_on(NODES[2]):
            cluster.start(NODES[2])


class ClusterBench:
    """Contenders on the nodes of one cluster, in one folder that all nodes see."""

    def __init__(self, cluster: namespace_nodes.Nodes, folder: Path, group: CpuGroup) -> None:
        self._cluster, self._folder, self._group = cluster, folder, group
        self.rows: list[list[str]] = []

    def measure_case(self, name: str, options: str) -> None:
        """Measure the contenders of one case, and compare their bytes with the serial run's."""
        serial, serial_seconds, expected = self._run([self._build(options, "out")])
        self._add_row(name, "diamond -p 1", serial, serial_seconds, serial, same=True)
        run = f"env MILLRACE_RSH={self._cluster.rsh} {find_millrace()} run -q --fresh --hosts {','.join(NODES)} --slots 1 --"
        command = f"{run} {self._build(options, 'out')}"
        cpu, seconds, found = self._run([command])
        self._add_row(name, "Millrace", cpu, seconds, serial, same=found == expected)
        with lose_node(self._cluster, LOSS * seconds):
            cpu, lost_seconds, found = self._run([command])
        self._add_row(name, "Millrace, a node lost", cpu, lost_seconds, serial, same=found == expected)
        shared = self._folder / "shared"
        shared.mkdir(exist_ok=True)
        own = f"{self._build(options, 'mp')} --multiprocessing --parallel-tmpdir {shared} --tmpdir {shared}"
        cpu, seconds, found = self._run([f"{own} --mp-init"], [own] * len(NODES), out="mp_000000")
        self._add_row(name, "diamond --multiprocessing", cpu, seconds, serial, same=found == expected)
        subprocess.run(["rm", "-r", shared], check=True)

    def _build(self, options: str, out: str) -> str:
        return f"diamond blastp --quiet --algo 0 -p 1 -q q.faa -d dmnd -o {out} {options}"

    def _run(self, *steps: list[str], out: str = "out") -> tuple[float, float, str]:
        """Run steps one after the other, the commands of each side by side on the nodes; return CPU seconds, seconds, and the digest of ``out``."""
        result = self._folder / out
        result.unlink(missing_ok=True)
        cpu, begun = self._group.read_seconds(), time.monotonic()
        for commands in steps:
            nodes = NODES if len(commands) > 1 else (HEAD,)
            lines = [f"cd {shlex.quote(str(self._folder))}; exec {command}" for command in commands]
            words = [self._cluster.command(node, line) for node, line in zip(nodes, lines, strict=True)]
            processes = [subprocess.Popen(each, stdin=subprocess.DEVNULL) for each in words]
            codes = [process.wait() for process in processes]
            if any(codes):
                raise SystemExit(f"bench.diamond_cluster: {commands[0]} failed")
        seconds, cpu = time.monotonic() - begun, self._group.read_seconds() - cpu
        return cpu, seconds, hashlib.sha256(result.read_bytes()).hexdigest()

    def _add_row(self, case: str, who: str, cpu: float, seconds: float, serial: float, *, same: bool) -> None:
        bytes_are = "the serial run's" if same else "OTHER"
        row = [case, who, f"{cpu:.1f}", f"{cpu / serial:.2f}", f"{seconds:.1f}", bytes_are]
        self.rows.append(row)
        print("; ".join(row), file=sys.stderr, flush=True)


def write_taxa(folder: Path) -> None:
    """Write a taxonomy of one level, deal the entries of ``prot.faa`` to its taxa, and make the database again with them."""
    chosen = random.Random(11)
    (folder / "nodes.dmp").write_text(
        "1\t|\t1\t|\tno rank\t|\t\n" + "".join(f"{each}\t|\t1\t|\tspecies\t|\t\n" for each in range(2, N_TAXA + 2))
    )
    with (
        (folder / "prot.faa").open() as given,
        (folder / "named.faa").open("w") as fasta,
        (folder / "taxa.tsv").open("w") as taxa,
    ):
        taxa.write("accession\taccession.version\ttaxid\tgi\n")
        for number, line in enumerate(given):
            if line.startswith(">"):
                taxa.write(f"P{number}\tP{number}.1\t{chosen.randrange(2, N_TAXA + 2)}\t0\n")
                line = f">P{number}.1\n"
            fasta.write(line)
    made = "diamond makedb --in named.faa -d dmnd --quiet --taxonmap taxa.tsv --taxonnodes nodes.dmp"
    subprocess.run(made.split(), cwd=folder, check=True)


def main() -> int:
    """Measure, and print the table; 1 if Millrace's bytes were not the serial run's."""
    parser = argparse.ArgumentParser(prog="python -m bench.diamond_cluster", description=__doc__)
    parser.add_argument("--queries", type=int, default=30_000, help="(default 30000)")
    parser.add_argument("--megabytes", type=int, default=50, help="of the database (default 50)")
    options = parser.parse_args()
    with measured_nodes() as (folder, cluster, group):
        proteins(folder, options.queries)
        database(options.megabytes, folder)
        write_taxa(folder)
        bench = ClusterBench(cluster, folder, group)
        for name, given in CASES.items():
            bench.measure_case(name, given)
    show_table("diamond_cluster", ("case", "by", "CPU s", "of serial", "s", "bytes"), bench.rows)
    return int(any(row[1].startswith("Millrace") and row[-1] == "OTHER" for row in bench.rows))


if __name__ == "__main__":
    sys.exit(main())
