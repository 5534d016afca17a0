"""The table of measured costs of places, as this node sees them: a small file in the user's cache folder."""

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
    """Return the resource that readers of a place share: the server of a URL, or the mount point of a path."""
    if is_url(place):
        parts = urlsplit(place)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    path = os.path.realpath(place)
    while not os.path.ismount(path) and path != "/":
        path = os.path.dirname(path)
    return path


def nature(place: str) -> str:
    """Classify a place into one of ``millrace.plan.costs.GUESSES``."""
    if is_url(place):
        return "network"
    found = kind(Path(place))
    return "memory" if found in IN_MEMORY else "shared" if found in SHARED else "disk"


def cost_of(place: str, table: Mapping[str, Measured]) -> tuple[costs.Cost, float]:
    """Return the cost of a place and the time of its measurement, 0 for a guess."""
    if measured := table.get(server(place)):
        return measured.cost, measured.when
    return costs.guess(nature(place)), 0.0


def path_of(environ: Mapping[str, str]) -> Path | None:
    """Return the path of this node's table, existing or not; None for a user without a home folder."""
    folder = state.cache(environ)
    return folder / f"costs-{socket.gethostname()}.json" if folder else None


def read(environ: Mapping[str, str]) -> dict[str, Measured]:
    """Read the measurements, by server; empty if the file is missing or invalid."""
    path = path_of(environ)
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Measured]) if path else {}
    return {}


def add(measured: Measured, environ: Mapping[str, str]) -> None:
    """Add a measurement to the table; write errors are ignored."""
    if path := path_of(environ):
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _alone(path):
                replace_whole(path, msgspec.json.encode({**read(environ), server(measured.place): measured}))


def measure_unknown(place: str, size: int, environ: Mapping[str, str]) -> dict[str, Measured]:
    """Read the table; first measure a place quickly if its kind tells nothing and it is not in the table.

    A network share, or a filesystem in user space, may be faster than a disk or slower than a long-distance line.

    Args:
        place: A file there.
        size: Its bytes; a place of a small file is not measured.
    """
    table = read(environ)
    if size < LEAST_BYTES or is_url(place) or server(place) in table or not is_of_any_speed(kind(Path(place))):
        return table
    with suppress(MillraceError, OSError):
        measured = probe_quickly(place)
        add(measured, environ)
        table[server(place)] = measured
    return table


#: Fewest bytes of a transfer that measure a place, and the weight of the last transfer against the earlier ones.
LEAST_BYTES, SHARE = 4 << 20, 0.3


def learn(place: str, n_bytes: int, seconds: float, environ: Mapping[str, str]) -> None:
    """Correct the measured cost of a place by a transfer of one reader; a place without a measurement gets none."""
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
