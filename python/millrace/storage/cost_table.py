"""What was measured of places, as this node sees them: a small file in the user's cache folder, which may go at any time."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from millrace import lock, state
from millrace.errors import MillraceError
from millrace.own import replace_whole
from millrace.plan import costs
from millrace.plan.filesystems import IN_MEMORY, SHARED, is_of_any_speed, kind
from millrace.replicas import is_url
from millrace.storage.probe import Measured, probe_quickly


def server(place: str) -> str:
    """What readers of a place share: the server of a URL, or the filesystem of a path."""
    if is_url(place):
        parts = urlsplit(place)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    path = os.path.realpath(place)
    while not os.path.ismount(path) and path != "/":
        path = os.path.dirname(path)
    return path


def nature(place: str) -> str:
    """Its kind, one of `millrace.plan.costs.GUESSES`."""
    if is_url(place):
        return "network"
    found = kind(Path(place))
    return "memory" if found in IN_MEMORY else "shared" if found in SHARED else "disk"


def cost_of(place: str, table: Mapping[str, Measured]) -> tuple[costs.Cost, float]:
    """(what it costs, when that was measured), the latter 0 for a guess."""
    if measured := table.get(server(place)):
        return measured.cost, measured.when
    return costs.guess(nature(place)), 0.0


def path_of(environ: Mapping[str, str]) -> Path | None:
    """This node's table, there or not; None for a user without a folder of his own."""
    folder = state.cache(environ)
    return folder / f"costs-{socket.gethostname()}.json" if folder else None


def read(environ: Mapping[str, str]) -> dict[str, Measured]:
    """What was measured, by server; empty if there is nothing that can be understood."""
    path = path_of(environ)
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Measured]) if path else {}
    return {}


def add(measured: Measured, environ: Mapping[str, str]) -> None:
    """Keep what was measured, if it can be kept."""
    if path := path_of(environ):
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _alone(path):
                replace_whole(path, msgspec.json.encode({**read(environ), server(measured.place): measured}))


def measure_unknown(place: str, size: int, environ: Mapping[str, str]) -> dict[str, Measured]:
    """`read` the table, after a quick measurement of a place of which its kind tells nothing and that nobody has measured.

    A share, or a filesystem in user space, may be anything from faster than a disk to a line into another building.

    Args:
        place: A file there.
        size: Its bytes; a small one is not worth it.
    """
    table = read(environ)
    if size < LEAST_BYTES or is_url(place) or server(place) in table or not is_of_any_speed(kind(Path(place))):
        return table
    with suppress(MillraceError, OSError):
        measured = probe_quickly(place)
        add(measured, environ)
        table[server(place)] = measured
    return table


#: Fewest bytes of a transfer that tell something of a place, and what the last one counts against what was known.
LEAST_BYTES, SHARE = 4 << 20, 0.3


def learn(place: str, n_bytes: int, seconds: float, environ: Mapping[str, str]) -> None:
    """Let a transfer by one reader correct what was measured of its place; where nothing was, nothing is learnt."""
    measured = read(environ).get(server(place))
    if measured and n_bytes >= LEAST_BYTES and seconds > 0:
        add(
            msgspec.structs.replace(
                measured, cost=costs.corrected(measured.cost, n_bytes, seconds, SHARE), when=time.time()
            ),
            environ,
        )


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock.wait_for(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
