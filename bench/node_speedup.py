"""``python -m bench.node_speedup``: how much sooner four nodes end than one. Root only.

The nodes are namespaces of this machine, and the kernel gives each the same share of a core's time: so four nodes have four
times as much as one, also on a machine with two cores. Nothing else may use these. All contenders start on the first node.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import namespace_nodes  # noqa: E402
from cluster_site import find_millrace  # noqa: E402

from bench.diamond import database  # noqa: E402
from bench.diamond_cluster import NODES  # noqa: E402
from bench.known_tools import make, proteins  # noqa: E402
from bench.results import show_table  # noqa: E402

#: Microseconds in which each node may use its share once.
PERIOD = 50_000

CGROUPS = Path("/sys/fs/cgroup")

COMMANDS = {
    "mmseqs, target in FASTA": "mmseqs easy-search q.faa prot.faa out tmp -v 0",
    "mmseqs, target with an index": "mmseqs easy-search q.faa target out tmp -v 0",
    "diamond": "diamond blastp --quiet --algo 0 -q q.faa -d dmnd -o out",
}

#: Words with which a command runs with one thread.
SERIAL = {"mmseqs": "--threads 1", "diamond": "-p 1"}


@contextlib.contextmanager
def limited_nodes(cluster: namespace_nodes.Nodes, share: float) -> Iterator[None]:
    """Give each node ``share`` of a core's time, until the end of the context.

    Raises:
        OSError: The kernel has no control groups for CPU time, or they are not ours.
    """
    is_unified = (CGROUPS / "cgroup.controllers").exists()
    if is_unified:
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
    root = CGROUPS if is_unified else CGROUPS / "cpu"
    made = []
    try:
        for name in NODES:
            group = root / f"millrace-bench-{name}"
            group.mkdir()
            made.append(group)
            quota = int(share * PERIOD)
            if is_unified:
                (group / "cpu.max").write_text(f"{quota} {PERIOD}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            for process in cluster.pids(name):
                (group / "cgroup.procs").write_text(str(process))
        yield
    finally:
        for group in made:
            for pid in (group / "cgroup.procs").read_text().split():
                (root / "cgroup.procs").write_text(pid)
            group.rmdir()


def measure(cluster: namespace_nodes.Nodes, folder: Path, command: str) -> tuple[float, bytes]:
    """Run a command on the first node; return its seconds, and ``out``."""
    (folder / "out").unlink(missing_ok=True)
    line = f"cd {shlex.quote(str(folder))}; export MILLRACE_RSH={cluster.rsh}; exec {command}"
    begun = time.monotonic()
    subprocess.run(cluster.command(NODES[0], line), stdin=subprocess.DEVNULL, check=True)
    return time.monotonic() - begun, (folder / "out").read_bytes()


def main() -> int:
    """Measure, and print the table; 1 if bytes were not the serial run's."""
    parser = argparse.ArgumentParser(prog="python -m bench.node_speedup", description=__doc__)
    parser.add_argument("--share", type=float, default=0.45, help="of a core, for each node (default 0.45)")
    parser.add_argument("--queries", type=int, default=10_000, help="(default 10000)")
    parser.add_argument("--only", default="", help="the commands whose name begins so")
    asked = parser.parse_args()
    if reason := namespace_nodes.reason_not():
        raise SystemExit(reason)
    rows, is_same = [], True
    with tempfile.TemporaryDirectory(prefix="mr-") as place:
        folder = Path(place, "work")
        folder.mkdir()
        proteins(folder, asked.queries)
        database(5, folder)
        make("mmseqs createdb prot.faa target -v 0", folder)
        make("mmseqs createindex target tmp -v 0", folder)
        with namespace_nodes.Nodes(Path(place, "n"), NODES, 9) as cluster, limited_nodes(cluster, asked.share):
            run = partial(measure, cluster, folder)
            for name, command in COMMANDS.items():
                if not name.startswith(asked.only):
                    continue
                serial, expected = run(f"{command} {SERIAL[command.split()[0]]}")
                words = f"{find_millrace()} run -q --fresh --slots 1"
                one, first = run(f"{words} -- {command}")
                four, second = run(f"{words} --hosts {','.join(NODES)} -- {command}")
                same = expected == first == second
                is_same = is_same and same
                rows.append([name, f"{serial:.1f}", f"{one:.1f}", f"{four:.1f}", f"{one / four:.2f}", "yes" if same else "NO"])  # fmt: skip
                print("; ".join(rows[-1]), file=sys.stderr, flush=True)
    show_table("node_speedup", ("", "the tool, s", "one node, s", "four nodes, s", "times", "same bytes"), rows)
    return int(not is_same)


if __name__ == "__main__":
    sys.exit(main())
