"""Does `millrace data probe` foretell how long transfers take, where the network is what limits them?

    python -m bench.probe [--mbit 50 100 200 400] [--seconds 2] [--repeats 3]

A server of files and a node (a namespace of this machine, root only), whose link carries so many Mbit/s (``tbf``). The node probes
the server, and then one reader fetches a file, and four do at the same time, of the size that takes one so many seconds. Beside each
transfer stands what the probe said it would take. The exit status is 1 if the median error of a row is above 10 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import namespace_nodes  # noqa: E402
import web_server  # noqa: E402

from bench.results import show_table  # noqa: E402
from millrace.storage import locations  # noqa: E402
from millrace.storage.place_probe import READERS, measure_place  # noqa: E402

#: The most that a prediction may miss, as a share of what is measured.
GOAL = 0.1

READER = "reader"

#: Bytes that a link may carry at once after it was idle: a wire has none to spare, and what comes free would flatter short reads.
BURST = 16 << 10


def read(url: str, n_bytes: int, readers: int) -> float:
    """Seconds until all of so many readers have read the first ``n_bytes``."""

    def one(_: int) -> int:
        with closing(locations.open_location(url)) as location:
            return sum(len(piece) for piece in location.stream_bytes(0, n_bytes, location.query_status()))

    with ThreadPoolExecutor(readers) as pool:
        begun = time.monotonic()
        assert set(pool.map(one, range(readers))) == {n_bytes}
        return time.monotonic() - begun


def measure(url: str, n_bytes: int, repeats: int) -> list[tuple[int, float, float]]:
    """(readers, predicted, measured), for each number of readers, again and again."""
    found = []
    for _ in range(repeats):
        cost = measure_place(url).cost
        for readers in READERS:
            found.append((readers, cost.predict_seconds(n_bytes, readers), read(url, n_bytes, readers)))
    return found


def on_node(cluster: namespace_nodes.Nodes, url: str, n_bytes: int, repeats: int) -> list[tuple[int, float, float]]:
    """`measure`, in the node."""
    call = f"import json; from bench.probe import measure; print(json.dumps(measure({url!r}, {n_bytes}, {repeats})))"
    shell = f'cd {REPO}; PYTHONPATH=python exec {sys.executable} -c "{call}"'
    done = subprocess.run(cluster.command(READER, shell), check=True, stdout=subprocess.PIPE)
    return [(int(readers), predicted, seconds) for readers, predicted, seconds in json.loads(done.stdout)]


def rows(mbit: int, n_bytes: int, found: Sequence[tuple[int, float, float]]) -> list[tuple[str, ...]]:
    """A line for each number of readers: medians, the median error, and the largest."""
    lines: list[tuple[str, ...]] = []
    for readers in READERS:
        own = [(predicted, seconds) for n, predicted, seconds in found if n == readers]
        errors = [abs(predicted - seconds) / seconds for predicted, seconds in own]
        predicted, seconds = (statistics.median(column) for column in zip(*own, strict=True))
        lines.append((
            f"{mbit} Mbit/s", str(readers), f"{n_bytes / 1e6:.0f} MB", f"{predicted:.2f} s", f"{seconds:.2f} s",
            f"{statistics.median(errors):.1%}", f"{max(errors):.1%}",
        ))  # fmt: skip
    return lines


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, nargs="+", default=[50, 100, 200, 400], help="of the link (50 100 200 400)")
    parser.add_argument("--seconds", type=float, default=2.0, help="that one reader should take (2)")
    parser.add_argument("--repeats", type=int, default=3, help="probes and transfers of each row (3)")
    asked = parser.parse_args()
    if reason := namespace_nodes.reason_not():
        raise SystemExit(reason)
    lines: list[tuple[str, ...]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mr-")))
        cluster = stack.enter_context(namespace_nodes.Nodes(folder / "n", (READER,), os.getpid() % 256))
        server = stack.enter_context(web_server.serve(host=cluster.gateway))
        for mbit in asked.mbit:
            n_bytes = int(asked.seconds * mbit * 1e6 / 8)
            url = server.put(f"{mbit}.bin", os.urandom(max(n_bytes, 8 << 20)))
            rate = f"root tbf rate {mbit}mbit burst {BURST} latency 100ms"
            subprocess.run(["tc", "qdisc", "replace", "dev", cluster.link(READER), *rate.split()], check=True)
            lines += rows(mbit, n_bytes, on_node(cluster, url, n_bytes, asked.repeats))
    print(f"load {os.getloadavg()[0]:.0f}, {os.cpu_count()} cores\n")
    head = ("link", "readers", "bytes each", "predicted", "measured", "error, median", "largest")
    show_table("probe", head, lines)
    return int(any(float(line[5].rstrip("%")) > 100 * GOAL for line in lines))


if __name__ == "__main__":
    sys.exit(main())
