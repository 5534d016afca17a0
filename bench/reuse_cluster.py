"""``python -m bench.reuse_cluster``: what a store saves where four nodes search, by ``--hosts`` and by Dask's workers.

The nodes are namespaces of this machine (root only), so what is compared is the CPU time of all processes, and the bytes.
Database and queries are those of ``bench.reuse``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import namespace_nodes  # noqa: E402
from cluster_site import find_millrace  # noqa: E402
from dask_site import DaskSite  # noqa: E402

from bench.diamond_cluster import HEAD, NODES, CpuGroup, measured_nodes  # noqa: E402
from bench.results import show_table  # noqa: E402
from bench.reuse import Searches  # noqa: E402

#: Queries, database, and whether the store is used, for each row of the table.
STEPS = {
    "all of it, without a store": ("q.faa", "after", False),
    "before, without a store": ("q.faa", "before", False),
    "before, into an empty store": ("q.faa", "before", True),
    "3 % of the entries new": ("q.faa", "after", True),
    "nothing new": ("q.faa", "after", True),
    "1 % of the queries new": ("more.faa", "after", True),
}


class StoreBench:
    """The steps on one kind of cluster, and the bytes of the serial runs."""

    def __init__(self, place: Searches, cluster: namespace_nodes.Nodes, group: CpuGroup) -> None:
        self._place, self._cluster, self._group = place, cluster, group
        self.rows: list[list[str]] = []
        for queries in ("q.faa", "more.faa"):
            place.search(queries, "after", f"{queries}.serial")

    def measure_steps(self, name: str, run: str) -> None:
        """Run all steps by the words ``run``, and add their rows."""
        whole = 0.0
        for step, (queries, database, is_kept) in STEPS.items():
            store = f"--store store-{name}" if is_kept else "--fresh"
            begun = self._group.read_seconds()
            self._run(f"{run} {store}", f"-query {queries} -db {database}")
            cpu = self._group.read_seconds() - begun
            whole = whole or cpu
            bytes_are = self._compare(queries) if database == "after" else ""
            row = [name, step, f"{cpu:.1f}", f"{cpu / whole:.2f}", bytes_are]
            self.rows.append(row)
            print("; ".join(row), file=sys.stderr, flush=True)

    def _run(self, run: str, given: str) -> None:
        tool = f"blastp {given} {' '.join(self._place.options)} -out out"
        line = f"cd {self._place.folder}; rm -f out; export MILLRACE_RSH={self._cluster.rsh}; exec {run} -q -- {tool}"
        subprocess.run(self._cluster.command(HEAD, line), stdin=subprocess.DEVNULL, check=True)

    def _compare(self, queries: str) -> str:
        folder = self._place.folder
        same = (folder / "out").read_bytes() == (folder / f"{queries}.serial").read_bytes()
        return "the serial run's" if same else "OTHER"


def main() -> int:
    """Measure, and print the table; 1 if bytes were not the serial run's."""
    parser = argparse.ArgumentParser(prog="python -m bench.reuse_cluster", description=__doc__)
    parser.add_argument("--part", type=int, default=100, help="queries")
    parser.add_argument("--grow", type=int, default=1, help="size of the database")
    asked = parser.parse_args()
    with measured_nodes() as (folder, cluster, group):
        bench = StoreBench(Searches(folder, asked.part, asked.grow, "-evalue 1e-5 -outfmt 6"), cluster, group)
        bench.measure_steps("hosts", f"{find_millrace()} run --hosts {','.join(NODES)} --slots 1")
        with DaskSite(folder / "dask", nodes=cluster) as site:
            site.start_scheduler()
            for _ in NODES:
                site.start_worker()
            bench.measure_steps("dask", f"{sys.executable} -m millrace run --dask {site.address}")
    show_table("reuse_cluster", ("nodes", "", "CPU s", "CPU share", "bytes"), bench.rows)
    return int(any(row[-1] == "OTHER" for row in bench.rows))


if __name__ == "__main__":
    sys.exit(main())
