"""Ranges of the entries of a database as a short text, for plans that travel to all nodes."""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Iterable
from itertools import accumulate, chain, pairwise


def pack_ranges(runs: Iterable[tuple[int, int]]) -> str:
    """Encode ranges as a short text, which is sent to all nodes.

    >>> unpack_ranges(pack_ranges([(2, 4), (7, 8)]))
    [(2, 4), (7, 8)]
    """
    edges = chain.from_iterable(runs)
    steps = array("Q", (after - before for before, after in pairwise(chain([0], edges))))
    return base64.b85encode(zlib.compress(steps.tobytes(), 1)).decode()


def unpack_ranges(text: str) -> list[tuple[int, int]]:
    """Decode the ranges that ``pack_ranges`` has encoded."""
    steps = array("Q", zlib.decompress(base64.b85decode(text)))
    edges = iter(accumulate(steps))
    return list(zip(edges, edges, strict=True))
