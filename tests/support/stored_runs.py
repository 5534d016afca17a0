"""What runs with a store of searches say and write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_KNOWN = re.compile(r"store: ([\d,]+) of [\d,]+ (quer|record)\w+ known(?:, results of ([\d,]+) known)?")


class KnownQueries(NamedTuple):
    """Numbers of queries of which a run knew the candidates, or the results."""

    candidates: int = 0
    results: int = 0


def count_known(told: str) -> KnownQueries:
    """Count the queries that need not be searched whole, as a run has said it."""
    found = _KNOWN.search(told)
    if not found:
        return KnownQueries()
    first, results = (int((number or "0").replace(",", "")) for number in (found[1], found[3]))
    return KnownQueries(first, results) if found[2] == "quer" else KnownQueries(0, first)


def read_without_date(path: Path) -> bytes:
    """Read an output of HMMER without its lines on the day and the time taken."""
    return re.sub(rb"(?m)^# Date:.*\n|^# CPU time:.*\n|^# Mc/sec:.*\n", b"", path.read_bytes())
