"""All nodes at once: ends what a job left on them, and learns which of them answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from millrace.launch import command, sweep
from millrace.launch.allocation import Allocation

#: Seconds within which a node answers, or is taken for lost.
PATIENCE = 8.0

#: Nodes that are asked side by side.
WIDTH = 64


def sweep_all(allocation: Allocation, nodes: Sequence[str], token: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """End whatever carries ``token``, here and on all ``nodes``; returns those that answered."""
    # First here: what starts processes elsewhere goes before what it has started.
    sweep.sweep(token)
    if not nodes:
        return ()
    with ThreadPoolExecutor(min(WIDTH, len(nodes))) as pool:
        answered = list(pool.map(lambda node: _sweep_one(allocation, node, token, environ), nodes))
    return tuple(node for node, lives in zip(nodes, answered, strict=True) if lives)


def _sweep_one(allocation: Allocation, node: str, token: str, environ: Mapping[str, str]) -> bool:
    words = command.on_node(allocation, node, [sys.executable, "-m", "millrace.launch.sweep"], environ)
    try:
        done = subprocess.run(
            words, input=f"{token}\n".encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=PATIENCE, check=False, env=dict(environ), start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
