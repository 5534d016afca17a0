"""Which node should search which fragment of a database that HDFS holds: rules compared on a simulated cluster.

    python -m bench.locality [--nodes 128] [--fragments 1024] [--replicas 3] [--runs 5]

Each fragment is searched once. A node that asks gets a fragment by the rule under test; it reads the fragment from its own disk, or
over the network from the holder that serves the fewest, whose link those share, and the switches, which all share. Rules know who holds what, and what is left; not
how long a search takes, which varies.

Rules: ``random``; ``sdaft`` (SDAFT: of the node's own the fragment whose least loaded other holder has most left; if none is its
own, the most redundant of all); ``pio`` (PIO: of the node's own that which the fewest others hold still; else that which most hold);
``cost`` (the least time to read as things are now; of equals that which the fewest nodes could take that have little else).
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

#: Bytes of a fragment, and bytes a second of a disk and of a link (1 Gbit/s), as in the time of the published figures.
FRAGMENT, DISK, LINK = 64e6, 100e6, 125e6

#: How many times what its switches carry the links of all nodes could.
OVERSUBSCRIBED = 8

#: Seconds that a search takes on the average, and the spread of its logarithm.
SEARCH, SPREAD = 1.0, 0.5


@dataclass
class Left:
    """What is not given out yet."""

    holders: dict[int, tuple[int, ...]]
    of_node: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    #: Readers that each node serves now.
    serves: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    fragments: dict[int, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for fragment, nodes in self.holders.items():
            self.fragments[fragment] = None
            for node in nodes:
                self.of_node[node].add(fragment)

    def take(self, fragment: int) -> None:
        del self.fragments[fragment]
        for node in self.holders[fragment]:
            self.of_node[node].discard(fragment)

    def load(self, fragment: int, but: int = -1) -> list[int]:
        """How many fragments each of its other holders has left."""
        return [len(self.of_node[node]) for node in self.holders[fragment] if node != but]


Rule = Callable[[int, Left, random.Random], int]


def at_random(node: int, left: Left, chance: random.Random) -> int:
    return chance.choice(list(left.fragments))


def sdaft(node: int, left: Left, chance: random.Random) -> int:
    if own := left.of_node[node]:
        return max(own, key=lambda fragment: (min(left.load(fragment, node), default=0), fragment))
    return max(left.fragments, key=lambda fragment: (min(left.load(fragment)), fragment))


def pio(node: int, left: Left, chance: random.Random) -> int:
    def spread(fragment: int) -> int:
        return sum(1 for other in left.holders[fragment] if left.of_node[other])

    if own := left.of_node[node]:
        return min(own, key=lambda fragment: (spread(fragment), fragment))
    return max(left.fragments, key=lambda fragment: (spread(fragment), fragment))


def cost(node: int, left: Left, chance: random.Random) -> int:
    def key(fragment: int) -> tuple[float, float, int]:
        if fragment in left.of_node[node]:
            # Left to others is what they could take as well, and have little else to do.
            return FRAGMENT / DISK, -sum(left.load(fragment, node)), fragment
        serving = min(left.serves[other] for other in left.holders[fragment])
        return FRAGMENT / min(DISK, LINK / (serving + 1)), -sum(left.load(fragment)), fragment

    return min(left.of_node[node] or left.fragments, key=key)


RULES: dict[str, Rule] = {"random": at_random, "sdaft": sdaft, "pio": pio, "cost": cost}


@dataclass
class Outcome:
    """What a rule came to."""

    makespan: float
    local: float
    network_bytes: float
    mean_read: float


def run(rule: Rule, nodes: int, fragments: int, replicas: int, seed: int) -> Outcome:
    """Search all fragments once."""
    chance = random.Random(seed)
    holders = {k: tuple(chance.sample(range(nodes), replicas)) for k in range(fragments)}
    search = [chance.lognormvariate(0, SPREAD) * SEARCH for _ in range(fragments)]
    speed = [chance.uniform(0.8, 1.2) for _ in range(nodes)]
    left, turns, reads, n_local = Left(holders), [(0.0, node, -1) for node in range(nodes)], [], 0
    switches, under_way = nodes * LINK / OVERSUBSCRIBED, 0
    heapq.heapify(turns)
    end = 0.0
    while turns:
        now, node, served = heapq.heappop(turns)
        if served >= 0:  # a read over the network is over
            left.serves[served] -= 1
            under_way -= 1
            continue
        end = max(end, now)
        if not left.fragments:
            continue
        fragment = rule(node, left, chance)
        left.take(fragment)
        if node in holders[fragment]:
            n_local, read = n_local + 1, FRAGMENT / DISK
        else:
            source = min(holders[fragment], key=lambda other: left.serves[other])
            left.serves[source] += 1
            under_way += 1
            read = FRAGMENT / min(DISK, LINK / left.serves[source], switches / under_way)
            heapq.heappush(turns, (now + read, node, source))
        reads.append(read)
        heapq.heappush(turns, (now + read + search[fragment] / speed[node], node, -1))
    return Outcome(end, n_local / fragments, (fragments - n_local) * FRAGMENT, statistics.mean(reads))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("nodes", 128), ("fragments", 1024), ("replicas", 3), ("runs", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    print("rule     local   network   mean read   makespan   of the bound")
    for name, rule in RULES.items():
        found = [run(rule, asked.nodes, asked.fragments, asked.replicas, seed) for seed in range(asked.runs)]
        mean = {
            each: statistics.mean(getattr(one, each) for one in found)
            for each in ("local", "network_bytes", "mean_read", "makespan")
        }
        # All work at once on all nodes, every read local.
        average = SEARCH * 2.718281828 ** (SPREAD**2 / 2)
        bound = asked.fragments * (FRAGMENT / DISK + average) / asked.nodes
        print(
            f"{name:7} {mean['local']:6.1%} {mean['network_bytes'] / 1e9:6.1f} GB {mean['mean_read'] * 1e3:8.0f} ms {mean['makespan']:8.1f} s {mean['makespan'] / bound:10.2f}"
        )


if __name__ == "__main__":
    main()
