"""Which node should search which fragment of a database that HDFS holds: rules compared on a simulated cluster.

    python -m bench.locality [--nodes 128] [--fragments 1024] [--replicas 3] [--runs 5]

Each fragment is searched once. A node that asks gets a fragment by the rule under test; it reads the fragment from its own disk, or
over the network from the holder that serves the fewest, whose link those share, and the switches, which all share. Rules know who holds what, and what is left; not
how long a search takes, which varies.

Rules are those of runs (`millrace.scheduler.waiting_tasks`), and ``random``.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from dataclasses import dataclass

from bench.results import show_table
from millrace.scheduler.fragment_holders import FragmentHolders
from millrace.scheduler.waiting_tasks import DISK_BYTES_PER_SECOND, LINK_BYTES_PER_SECOND, RULES, LocalityRule

#: Bytes of a fragment; disks and links (1 Gbit/s) are of the time of the published figures, too.
FRAGMENT = 64e6

#: How many times what its switches carry the links of all nodes could.
OVERSUBSCRIBED = 8

#: Seconds that a search takes on the average, and the spread of its logarithm.
SEARCH, SPREAD = 1.0, 0.5


def at_random(chance: random.Random) -> LocalityRule:
    """Any fragment that is left."""
    return lambda node, holders: chance.choice(list(holders.left))


@dataclass
class Outcome:
    """What a rule came to."""

    makespan: float
    local: float
    network_bytes: float
    mean_read: float


def run(rule: LocalityRule | None, nodes: int, fragments: int, replicas: int, seed: int) -> Outcome:
    """Search all fragments once; None: at random."""
    chance = random.Random(seed)
    rule = rule or at_random(chance)
    holders = {k: tuple(chance.sample(range(nodes), replicas)) for k in range(fragments)}
    search = [chance.lognormvariate(0, SPREAD) * SEARCH for _ in range(fragments)]
    speed = [chance.uniform(0.8, 1.2) for _ in range(nodes)]
    left, turns, reads, n_local = FragmentHolders(holders), [(0.0, node, -1) for node in range(nodes)], [], 0
    for fragment in holders:
        left.add_search(fragment)
    switches, under_way = nodes * LINK_BYTES_PER_SECOND / OVERSUBSCRIBED, 0
    heapq.heapify(turns)
    end = 0.0
    while turns:
        now, node, served = heapq.heappop(turns)
        if served >= 0:  # a read over the network is over
            left.serves[served] -= 1
            under_way -= 1
            continue
        end = max(end, now)
        if not left.left:
            continue
        fragment = rule(node, left)
        left.remove_search(fragment)
        if node in holders[fragment]:
            n_local, read = n_local + 1, FRAGMENT / DISK_BYTES_PER_SECOND
        else:
            source = min(holders[fragment], key=lambda other: left.serves[other])
            left.serves[source] += 1
            under_way += 1
            read = FRAGMENT / min(
                DISK_BYTES_PER_SECOND, LINK_BYTES_PER_SECOND / left.serves[source], switches / under_way
            )
            heapq.heappush(turns, (now + read, node, source))
        reads.append(read)
        heapq.heappush(turns, (now + read + search[fragment] / speed[node], node, -1))
    return Outcome(end, n_local / fragments, (fragments - n_local) * FRAGMENT, statistics.mean(reads))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("nodes", 128), ("fragments", 1024), ("replicas", 3), ("runs", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    rows = []
    for name, rule in {"random": None, **RULES}.items():
        found = [run(rule, asked.nodes, asked.fragments, asked.replicas, seed) for seed in range(asked.runs)]
        mean = {
            each: statistics.mean(getattr(one, each) for one in found)
            for each in ("local", "network_bytes", "mean_read", "makespan")
        }
        # All work at once on all nodes, every read local.
        average = SEARCH * 2.718281828 ** (SPREAD**2 / 2)
        bound = asked.fragments * (FRAGMENT / DISK_BYTES_PER_SECOND + average) / asked.nodes
        rows.append((
            name, f"{mean['local']:.1%}", f"{mean['network_bytes'] / 1e9:.1f} GB", f"{mean['mean_read'] * 1e3:.0f} ms",
            f"{mean['makespan']:.1f} s", f"{mean['makespan'] / bound:.2f}",
        ))  # fmt: skip
    show_table(
        "locality", ("rule", "local", "over the network", "mean read", "until all is done", "of the bound"), rows
    )


if __name__ == "__main__":
    main()
