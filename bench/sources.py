"""From where four nodes read a database: each way measured, and what Millrace chooses beside the best of them.

    python -m bench.sources [--mb 2 8 32] [--slots 1 3] [--mbit 50 200 800] [--mirror 0.5 4] [--log rows.jsonl] [--plot sources.svg]

Root only; needs sshfs. Four nodes and two servers are namespaces of this machine. The nodes mount the file server by sshfs, which keeps
what was read (as NFS does); its cable carries so many Mbit/s, and that of a web server, which has the same file, so many times that
(``--mirror``). In each cell of the grid ``millrace run`` reads the whole file for each of 16 batches, with nothing on the nodes before:

- in place: ``--stage off``; each its copy: every node copies the file itself, and the run reads the copies;
- broadcast: ``--stage ram``, one reader, who passes it on; replica: the same from the web server;
- auto: as a user types it, after ``millrace data probe`` of both servers.

Seconds are of the whole command. Where auto takes more than 1.1 times as long as the best way, that cell is measured twice more, and
medians count. With ``--log`` the same command goes on behind the last cell. The exit status is 1 if auto took longer than that in a cell.

``--plot`` draws performance profiles (Dolan and More, 2002): in which share of the cells a way takes at most x times as long as the best.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

import msgspec

from bench import svg
from bench.results import show_table
from bench.sources_place import FILES, HOSTS, MIRROR, WAYS, Believed, Cell, Place, Taken, reason_not

#: The most that the way which was chosen may take, of the best one's time.
GOAL = 1.1

#: How often a cell is measured in which that fails.
TURNS = 3


@dataclass(frozen=True)
class Row:
    """One cell, and each way's turns."""

    cell: Cell
    taken: dict[str, list[Taken]]

    def seconds(self, way: str) -> float:
        """The median of its turns."""
        return median(each.seconds for each in self.taken[way])

    @property
    def best(self) -> str:
        """The soonest of the ways that somebody can choose."""
        return min(WAYS[:-1], key=self.seconds)

    def ratio(self, way: str) -> float:
        """Its time, of the best one's."""
        return self.seconds(way) / self.seconds(self.best)


def measure(place: Place, cell: Cell, probed: Believed) -> Row:
    """All ways, in turn."""
    row = Row(cell, {way: [] for way in WAYS})
    for _ in range(TURNS):
        for way in WAYS:
            row.taken[way].append(place.measure(cell, way, probed))
        if row.ratio("auto") <= GOAL:
            break
    print(" | ".join(words(row)), row.taken["auto"][0].chosen, file=sys.stderr, flush=True)
    return row


def words(row: Row) -> tuple[str, ...]:
    """A line of the table."""
    cell = row.cell
    times = (f"{row.seconds(way):.1f}" for way in WAYS)
    shares = (f"{median(each.sent for each in row.taken[way]) / (cell.mb << 20):.1f}" for way in WAYS)
    where = (f"{cell.mb} MB", f"{len(HOSTS) * cell.slots}", f"{cell.mbit:g}", f"{cell.mbit * cell.mirror:g}")
    return (*where, *times, row.best, f"{row.ratio('auto'):.2f}", " / ".join(shares))


def profile(rows: list[Row]) -> str:
    """The plot."""
    factors = (1, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 8)
    lines = [
        svg.Line(way, [(x, sum(row.ratio(way) <= x for row in rows) / len(rows)) for x in factors], way != "auto")
        for way in WAYS
    ]
    title = f"Reading a database: time of each way, of the best one's ({len(rows)} cells)"
    return svg.chart(title, "at most so many times the best", "share of cells", lines, (0, 1), (0, 0.25, 0.5, 0.75, 1))


def kept(log: Path | None) -> list[Row]:
    """Rows of an earlier start."""
    lines = log.read_bytes().splitlines() if log and log.exists() else []
    return [msgspec.json.decode(line, type=Row) for line in lines]


def grid(asked: argparse.Namespace, rows: list[Row]) -> None:
    """Measure what ``rows`` lacks."""
    done = {row.cell for row in rows}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mr-", dir="/tmp", ignore_cleanup_errors=True))
        place = Place(Path(folder), asked.mb, stack)
        for mbit, mirror in product(asked.mbit, asked.mirror):
            cells = [Cell(mb, slots, mbit, mirror) for mb, slots in product(asked.mb, asked.slots)]
            if done.issuperset(cells):
                continue
            place.rate(FILES, mbit)
            place.rate(MIRROR, mbit * mirror)
            probed = place.probed()
            for cell in cells:
                if cell not in done:
                    rows.append(measure(place, cell, probed))
                    if asked.log:
                        with asked.log.open("ab") as log:
                            log.write(msgspec.json.encode(rows[-1]) + b"\n")


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, nargs="+", default=[2, 8, 32], help="of the database (2 8 32)")
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 3], help="of each node (1 3)")
    parser.add_argument("--mbit", type=float, nargs="+", default=[50, 200, 800], help="of the file server (50 200 800)")
    parser.add_argument(
        "--mirror", type=float, nargs="+", default=[0.5, 4], help="times that, of the web server (0.5 4)"
    )
    parser.add_argument("--log", type=Path, help="file of rows, to go on from")
    parser.add_argument("--plot", type=Path, help="file for the plot (SVG)")
    asked = parser.parse_args()
    if reason := reason_not():
        raise SystemExit(reason)
    rows = kept(asked.log)
    grid(asked, rows)
    head = ("database", "readers", "file server", "web server", *WAYS, "best", "auto / best", "servers sent, of the database")  # fmt: skip
    show_table("sources", head, [words(row) for row in rows])
    ratios = sorted(row.ratio("auto") for row in rows)
    n_good = sum(ratio <= GOAL for ratio in ratios)
    print(
        f"\n{n_good} of {len(ratios)} within {GOAL:g} of the best; median {median(ratios):.2f}, largest {ratios[-1]:.2f}"
    )
    if asked.plot:
        asked.plot.write_text(profile(rows))
    return int(n_good < len(ratios))


if __name__ == "__main__":
    sys.exit(main())
