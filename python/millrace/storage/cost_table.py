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
from millrace.own import replace_file
from millrace.plan import costs
from millrace.plan.filesystems import IN_MEMORY, SHARED, find_filesystem_kind, has_unknown_speed
from millrace.replicas import is_url
from millrace.storage.probe import MeasuredCost, measure_place_quickly


def find_server(place: str) -> str:
    """Return the resource that readers of a place share: the server of a URL, or the mount point of a path."""
    if is_url(place):
        parts = urlsplit(place)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    path = os.path.realpath(place)
    while not os.path.ismount(path) and path != "/":
        path = os.path.dirname(path)
    return path


def classify_place(place: str) -> str:
    """Classify a place into one of ``millrace.plan.costs.GUESSES``."""
    if is_url(place):
        return "network"
    found = find_filesystem_kind(Path(place))
    return "memory" if found in IN_MEMORY else "shared" if found in SHARED else "disk"


def find_cost(place: str, table: Mapping[str, MeasuredCost]) -> tuple[costs.ReadCost, float]:
    """Return the cost of a place and the time of its measurement, 0 for a guess."""
    if measured := table.get(find_server(place)):
        return measured.cost, measured.when
    return costs.guess_read_cost(classify_place(place)), 0.0


def find_table_path(environ: Mapping[str, str]) -> Path | None:
    """Return the path of this node's table, existing or not; None for a user without a home folder."""
    folder = state.find_cache_folder(environ)
    return folder / f"costs-{socket.gethostname()}.json" if folder else None


def read_cost_table(environ: Mapping[str, str]) -> dict[str, MeasuredCost]:
    """Read the measurements, by server; empty if the file is missing or invalid."""
    path = find_table_path(environ)
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, MeasuredCost]) if path else {}
    return {}


def add_measurement(measured: MeasuredCost, environ: Mapping[str, str]) -> None:
    """Add a measurement to the table; write errors are ignored."""
    if path := find_table_path(environ):
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _lock_table(path):
                replace_file(
                    path, msgspec.json.encode({**read_cost_table(environ), find_server(measured.place): measured})
                )


def measure_unknown_place(place: str, size: int, environ: Mapping[str, str]) -> dict[str, MeasuredCost]:
    """Read the table; first measure a place quickly if its kind tells nothing and it is not in the table.

    A network share, or a filesystem in user space, may be faster than a disk or slower than a long-distance line.

    Args:
        place: A file there.
        size: Its bytes; a place of a small file is not measured.
    """
    table = read_cost_table(environ)
    if (
        size < MIN_TRANSFER_BYTES
        or is_url(place)
        or find_server(place) in table
        or not has_unknown_speed(find_filesystem_kind(Path(place)))
    ):
        return table
    with suppress(MillraceError, OSError):
        measured = measure_place_quickly(place)
        add_measurement(measured, environ)
        table[find_server(place)] = measured
    return table


#: Fewest bytes of a transfer that measure a place, and the weight of the last transfer against the earlier ones.
MIN_TRANSFER_BYTES, SHARE = 4 << 20, 0.3


def learn_from_transfer(place: str, n_bytes: int, seconds: float, environ: Mapping[str, str]) -> None:
    """Correct the measured cost of a place by a transfer of one reader; a place without a measurement gets none."""
    measured = read_cost_table(environ).get(find_server(place))
    if measured and n_bytes >= MIN_TRANSFER_BYTES and seconds > 0:
        add_measurement(
            msgspec.structs.replace(
                measured, cost=costs.correct_read_cost(measured.cost, n_bytes, seconds, SHARE), when=time.time()
            ),
            environ,
        )


@contextmanager
def _lock_table(path: Path) -> Iterator[None]:
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock.wait_for_flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
