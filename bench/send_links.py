"""How a large result gets to another machine soonest, over links of several rates and delays: as it is, by zstd, or packed while it is made.

    python -m bench.send_links [--mbit 10 100 1000] [--delay 0 25 50] [--part 100] [--grow 1]

Two nodes (namespaces of this machine, root only) and a real ``sshd``; between them a link (`bench.wan`). Each time the search is run, and
its result brought to the other node: by ``sftp``, by ``zstd | ssh`` after the search or while it lasts, or by ``run --pack-to`` with
``millrace send`` beside it. Seconds are from the start of the search to the whole result there, which is compared. A delay is from one end to the other.

Each node has one core to itself, if there are two. Others who use the machine make all of it slower, so the ways take turns.

Then ParaMEDIC's inequality: `millrace pack --plan` says below which rate a pack is there before the result as it is. Both are sent over
links of 0.8 and 1.2 times that rate, after the search. The exit status is 1 if a result differs, or if the other way is sooner.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import namespace_nodes  # noqa: E402
import ssh_nodes  # noqa: E402

from bench import pack, wan  # noqa: E402
from bench.results import show_table  # noqa: E402

COMMAND = "blastp -query q.faa -db prot -outfmt 0 -num_descriptions 500 -num_alignments 500 -out hits"

#: The ways, by the names of the files that they write there.
WAYS = {
    "raw": "raw by sftp",
    "zstd": "zstd by ssh",
    "piped": "zstd by ssh while it is made",
    "packed": "packed while it is made",
}

#: How far from the rate at which both ways take the same time they are compared.
MARGIN = 0.2

#: How often each is sent there; the median counts.
TURNS = 3


class Ends:
    """Two nodes; the far one has database and queries, too."""

    def __init__(self, folder: Path, part: int, grow: int, ways: list[str], stack: ExitStack) -> None:
        self.near, self.far = folder / "near", folder / "far"
        self.near.mkdir()
        pack.prepare(self.near, part, grow)
        self.far.mkdir()
        for path in self.near.iterdir():
            (self.far / path.name).symlink_to(path)
        self._nodes = stack.enter_context(namespace_nodes.Nodes(folder / "n", ("near", "far"), os.getpid() % 256))
        self._pin()
        stack.enter_context(ssh_nodes.ssh(self._nodes, folder))
        named = f"-o BatchMode=yes -o HostName={wan.FAR} -o HostKeyAlias=far"
        run = f"{pack.MILLRACE} run --fresh --progress none"
        send = (
            f"{pack.MILLRACE} send hits.mrp far:{self.far}/packed --ssh 'ssh {named}' --millrace {pack.MILLRACE} "
            f"--db {self.far}/prot --queries {self.far}/q.faa"
        )
        put = f"echo put hits {self.far}/raw | sftp -q -b - {named} far"
        #: Searches and brings the result there.
        self.all_of_it = {
            "raw": f"{run} -- {COMMAND} && {put}",
            "zstd": f"{run} -- {COMMAND} && zstd -qc hits | ssh {named} far 'zstd -qd > {self.far}/zstd'",
            "piped": f"{run} -- {COMMAND.removesuffix(' -out hits')} | zstd -qc | ssh {named} far 'zstd -qd > {self.far}/piped'",
            "packed": f"{run} --pack-to hits.mrp -- {COMMAND} & job=$!; "
            "until [ -e .hits.mrp.packing/pack ] || [ -e hits.mrp ]; do sleep 0.05; done; "
            f"{send} && wait $job",
        }
        self.all_of_it = {way: line for way, line in self.all_of_it.items() if way in ways}
        #: Brings the result of a search that is over there.
        self.result_alone = {"raw": put, "packed": f"{pack.MILLRACE} pack hits -o hits.mrp -- {COMMAND} && {send}"}

    def _pin(self) -> None:
        """Give each node a core of its own, with all that is started there: as two machines, they work side by side."""
        cores = sorted(os.sched_getaffinity(0))
        for number, name in enumerate(("near", "far")):
            for pid in self._nodes.pids(name):
                os.sched_setaffinity(pid, {cores[number % len(cores)]})

    def link(self, mbit: float, delay_ms: float):  # type: ignore[no-untyped-def]
        """`wan.link` between the two."""
        return wan.link(self._nodes.network("near"), self._nodes.network("far"), mbit, delay_ms)

    def on_near(self, line: str) -> str:
        """What a line of shell says in the near node."""
        script = f"cd {self.near}; rm -rf hits.mrp .hits.mrp.packing; {line}"
        done = subprocess.run(
            self._nodes.command("near", script), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{line}\n{done.stdout.decode(errors='replace')}")
        return done.stdout.decode(errors="replace")

    def seconds(self, way: str, line: str) -> float:
        """Until the result is there, by this way."""
        (self.far / way).unlink(missing_ok=True)
        begun = time.monotonic()
        self.on_near(line)
        seconds = time.monotonic() - begun
        if not filecmp.cmp(self.far / way, self.near / "expected", shallow=False):
            sys.exit(f"{way}: another result")
        return seconds


def over_links(ends: Ends, rates: list[float], delays: list[float]) -> list[tuple[str, ...]]:
    """A row for each link."""
    rows: list[tuple[str, ...]] = []
    for mbit in rates:
        for delay in delays:
            with ends.link(mbit, delay):
                took = {way: ends.seconds(way, line) for way, line in ends.all_of_it.items()}
            best = min(took, key=lambda way: took[way])
            rows.append((f"{mbit:g} Mbit/s", f"{delay:g} ms", *(f"{each:.1f} s" for each in took.values()), best))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    return rows


def planned(ends: Ends) -> float:
    """The rate, in Mbit/s, below which the inequality sees the pack there first."""
    said = ends.on_near(f"cp expected hits; {pack.MILLRACE} pack --plan --bandwidth 100M -- {COMMAND}")
    rate = re.search(r"packed is sooner than as it is below ([\d,.]+) Mbit/s", said)
    if not rate:
        sys.exit(said)
    return float(rate[1].replace(",", ""))


def at_the_crossover(ends: Ends) -> tuple[float, float, list[tuple[str, ...]]]:
    """The rate that the inequality says, the one at which both took the same time, and what happens on both sides of the former."""
    ends.on_near(
        f"cp expected hits; {pack.MILLRACE} pack hits -o hits.mrp -- {COMMAND}"
    )  # the database is known from here on
    crossover = median(planned(ends) for _ in range(TURNS))
    turns = []
    for _ in range(TURNS):
        took: dict[tuple[float, str], float] = {}
        for share in (1 - MARGIN, 1 + MARGIN):
            with ends.link(crossover * share, 0.0):
                took |= {(share, way): ends.seconds(way, line) for way, line in ends.result_alone.items()}
        turns.append(took)
        print(crossover, took, file=sys.stderr, flush=True)
    rows, seconds = [], {key: median(turn[key] for turn in turns) for key in turns[0]}
    for share, sooner in ((1 - MARGIN, "packed"), (1 + MARGIN, "raw")):
        sides = {way: seconds[share, way] for way in ends.result_alone}
        said = "yes" if min(sides, key=lambda way: sides[way]) == sooner else "NO"
        rows.append((f"{crossover * share:.2f} Mbit/s", *(f"{each:.1f} s" for each in sides.values()), sooner, said))
    return crossover, measured_crossover(crossover, seconds), rows


def measured_crossover(crossover: float, seconds: dict[tuple[float, str], float]) -> float:
    """At which rate both ways take the same time, in Mbit/s: that of the raw result is a part that goes with the link, and one that does not."""
    low, high = 1 - MARGIN, 1 + MARGIN
    with_link = (seconds[low, "raw"] - seconds[high, "raw"]) / (1 / low - 1 / high)
    beside = seconds[low, "raw"] - with_link / low
    packed = (seconds[low, "packed"] + seconds[high, "packed"]) / 2
    return crossover * with_link / (packed - beside)


def main() -> int:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=float, nargs="*", default=[10, 100, 1000], help="of the link (10 100 1000)")
    parser.add_argument("--delay", type=float, nargs="+", default=[0, 25, 50], help="in milliseconds (0 25 50)")
    parser.add_argument("--part", type=int, default=100, help="so many queries (100)")
    parser.add_argument("--grow", type=int, default=1, help="so many times the database (1)")
    parser.add_argument("--ways", nargs="+", default=[*WAYS], choices=[*WAYS], help="which ways to measure (all)")
    parser.add_argument("--no-crossover", action="store_true", help="leave out ParaMEDIC's inequality")
    asked = parser.parse_args()
    if reason := namespace_nodes.reason_not() or ssh_nodes.reason_not():
        raise SystemExit(reason)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mr-")))
        ends = Ends(folder, asked.part, asked.grow, asked.ways, stack)
        begun = time.monotonic()
        ends.on_near(f"{COMMAND} && mv hits expected")
        serial = time.monotonic() - begun
        rows = over_links(ends, asked.mbit, asked.delay)
        crossover, measured, sides = (0.0, 0.0, []) if asked.no_crossover else at_the_crossover(ends)
    print(f"{COMMAND}, {asked.part} queries; serial search {serial:.1f} s\n")
    head = ("link", "delay", *(WAYS[way] for way in ends.all_of_it), "soonest")
    show_table("send_links", head, rows)
    if asked.no_crossover:
        return 0
    print(
        f"\nBy the inequality a pack is there first below {crossover:.2f} Mbit/s, as measured below {measured:.2f}:\n"
    )
    crossing = ("link", "raw by sftp", "pack and send", "sooner, by the inequality", "so it is")
    show_table("send_links", crossing, sides, "crossover")
    return int(any(row[-1] == "NO" for row in sides))


if __name__ == "__main__":
    sys.exit(main())
