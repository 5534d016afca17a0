"""The table of what reading costs at places, as this node has measured it, and the places that have a file.

The table is a small file in the user's cache folder; ``millrace.storage.place_probe`` measures. Places are asked which
have the bytes now, before one is chosen.
"""

from __future__ import annotations

import fcntl
import fnmatch
import functools
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import msgspec

from millrace.core import replica_rules
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.replica_rules import is_url
from millrace.core.tool_use import FrozenValue
from millrace.host import core_allocation, file_lock, memory_limits, permissions
from millrace.host.file_lock import IN_MEMORY, SHARED, find_filesystem_kind, has_unknown_speed
from millrace.host.permissions import replace_file
from millrace.storage import locations, reading_costs
from millrace.storage.clients.base import FileStatus
from millrace.storage.reading_costs import (
    MeasuredCost,
    ReadCostFunction,
    ReadCostModel,
    ReadOffer,
    ReadSample,
)
from millrace.storage.staging_choice import MEMORY_SHARE


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
    """Classify a place into one of ``millrace.storage.reading_costs.GUESSES``."""
    if is_url(place):
        return "network"
    found = find_filesystem_kind(Path(place))
    return "memory" if found in IN_MEMORY else "shared" if found in SHARED else "disk"


#: Group of entry points, each a model of costs (``millrace.storage.reading_costs.ReadCostModel``).
COSTS_GROUP = "millrace.costs"

#: Names of our own models: the default, and the table of dSOARS.
FITTED, NEAREST = "fitted", "nearest"


@functools.cache
def load_cost_model(name: str) -> ReadCostModel:
    """Load the model that ``costs`` of the settings names.

    Raises:
        RefusedError: There is none, or it cannot be loaded.
    """
    if name in (FITTED, NEAREST):
        return reading_costs.use_nearest_samples if name == NEAREST else _use_default
    from importlib.metadata import entry_points

    points = entry_points(group=COSTS_GROUP)
    for point in points.select(name=name):
        try:
            model = point.load()
        except Exception as error:
            raise RefusedError(
                f"costs = {name!r}: {point.value} cannot be loaded: {error}", "repair its package"
            ) from error
        if not callable(model):
            raise RefusedError(
                f"costs = {name!r}: {point.value} is no function", "see: millrace.costs in docs/storage.md"
            )
        return cast(ReadCostModel, model)
    known = ", ".join(sorted({FITTED, NEAREST, *points.names}))
    raise RefusedError(f"costs = {name!r}: no such model of costs is installed", f"known are {known}")


def _use_default(place: str, samples: tuple[ReadSample, ...]) -> None:
    return None


def find_cost(place: str, table: Mapping[str, MeasuredCost], costs: str) -> tuple[ReadCostFunction, str]:
    """Return the cost of a place, and when it was measured or by which model; empty: it is a guess.

    Args:
        costs: Name of the model.

    Raises:
        RefusedError: There is no such model, or it fails.
    """
    model, measured = load_cost_model(costs), table.get(find_server(place))
    try:
        found = model(place, measured.samples if measured else ())
    except Exception as error:
        shown = replica_rules.redact_place(place)
        raise RefusedError(f"costs = {costs!r}: it fails for {shown}: {error}", "repair its package") from error
    if found and costs != NEAREST:
        return found, f"by {costs}"
    if measured:
        return found or measured.cost, time.strftime("%Y-%m-%d", time.localtime(measured.when))
    return reading_costs.guess_read_cost(classify_place(place)), ""


def find_table_path(environ: Mapping[str, str]) -> Path | None:
    """Return the path of this node's table, existing or not; None for a user without a home folder."""
    folder = permissions.find_cache_folder(environ)
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
    from millrace.storage import place_probe  # few runs measure

    with suppress(MillraceError, OSError):
        measured = place_probe.measure_place_quickly(place)
        add_measurement(measured, environ)
        table[find_server(place)] = measured
    return table


#: Fewest bytes of a transfer that measure a place, and the weight of the last transfer against the earlier ones.
MIN_TRANSFER_BYTES, SHARE = 4 << 20, 0.3


def learn_from_transfer(place: str, n_bytes: int, seconds: float, environ: Mapping[str, str]) -> None:
    """Correct the measured cost of a place by a transfer of one reader; a place without a measurement gets none."""
    measured = read_cost_table(environ).get(find_server(place))
    if measured and n_bytes >= MIN_TRANSFER_BYTES and seconds > 0:
        add_measurement(measured.correct_times(n_bytes, seconds, SHARE, time.time()), environ)


@contextmanager
def _lock_table(path: Path) -> Iterator[None]:
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        file_lock.wait_for_flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class PlaceStatus(FrozenValue, frozen=True):
    """A place that may have the file, and its answer."""

    place: str
    about: FileStatus | None
    #: Why the file cannot be read from there; empty: it can.
    why_not: str = ""


def make_absolute(name: str) -> str:
    """Return a URL as it is, a path as an absolute one."""
    return name if replica_rules.is_url(name) else os.path.abspath(name)


def query_places(name: str, rules: Sequence[replica_rules.ReplicaRule]) -> list[PlaceStatus]:
    """Ask all places of a file in parallel: the named one first, then those of the rules.

    The first that answers defines the bytes. A place with another size or checksum is marked as unusable.
    """
    places = [name, *replica_rules.find_replicas(name, rules)]
    with ThreadPoolExecutor(len(places)) as pool:
        found = list(pool.map(_query_place, places))
    original = next((each.about for each in found if each.about), None)
    return [_compare_with_original(each, original) for each in found]


def list_offers(found: Sequence[PlaceStatus], readers: int, costs: str, environ: Mapping[str, str]) -> list[ReadOffer]:
    """List the costs of the bytes at the places that have them.

    Args:
        readers: Number of readers of the whole run. On a node's own filesystem only the cores of this node count.
        costs: Name of the model of costs.
    """
    table = read_cost_table(environ)
    here = min(readers, core_allocation.count_usable_cores(environ)[0])
    made = []
    for each in found:
        if each.about and not each.why_not:
            own = classify_place(each.place) in ("memory", "disk")
            made.append(make_offer(each.place, each.about.size, here if own else readers, table, costs))
    return made


def make_offer(place: str, size: int, readers: int, table: Mapping[str, MeasuredCost], costs: str) -> ReadOffer:
    """Make the offer of a place for ``size`` bytes."""
    cost, source = find_cost(place, table, costs)
    known = table.get(find_server(place))
    is_kept = not is_url(place) and (known is None or known.is_kept) and fits_in_page_cache(size)
    return ReadOffer(place=place, size=size, cost=cost, readers=readers, measured=source, is_kept=is_kept)


def fits_in_page_cache(size: int) -> bool:
    """Tell whether this node keeps so many bytes in memory once they were read."""
    return size < MEMORY_SHARE * memory_limits.read_usable_memory()[0]


def list_example_files(rules: Sequence[replica_rules.ReplicaRule]) -> list[str]:
    """List one large file at each place of the rules that can be listed."""
    found = []
    for place in dict.fromkeys(place for rule in rules for place in rule.at):
        if "*" not in place:
            found.append(place)
            continue
        folder, _, pattern = place.rpartition("/")
        with suppress(MillraceError), closing(locations.open_location(folder + "/")) as location:
            names = fnmatch.filter(location.list_names(), pattern)[:16]
            found.append(max((f"{folder}/{name}" for name in names), key=_query_size, default=""))
    return [place for place in found if place]


def _query_size(place: str) -> int:
    with suppress(MillraceError):
        return locations.query_file_status(place).size
    return 0


def _query_place(place: str) -> PlaceStatus:
    try:
        return PlaceStatus(place=place, about=locations.query_file_status(place))
    except MillraceError as error:
        return PlaceStatus(
            place=place, about=None, why_not=error.message.removeprefix(f"{replica_rules.redact_place(place)}: ")
        )


def _compare_with_original(found: PlaceStatus, original: FileStatus | None) -> PlaceStatus:
    if not found.about or not original:
        return found
    why_not = ""
    if found.about.size != original.size:
        why_not = f"has {found.about.size:,} bytes, not {original.size:,}"
    elif _has_other_bytes(found.about.checksum, original.checksum):
        why_not = "has another checksum"
    return PlaceStatus(place=found.place, about=found.about, why_not=why_not)


def _has_other_bytes(one: str, other: str) -> bool:
    """Tell whether two checksums of the same kind differ; False for different kinds."""
    return one != other and one.partition(":")[0] == other.partition(":")[0]
