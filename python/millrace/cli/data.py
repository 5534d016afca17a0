"""The command ``millrace data``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millrace.core.errors import CorruptError, ExitCode, MillraceError, RefusedError

if TYPE_CHECKING:
    from millrace.storage.reading_costs import MeasuredCost


@click.group("data", short_help="Where files lie, and what each place costs.")
def command() -> None:
    """Files wherever they lie: on disks, behind URLs, or in several places at once.

    [[replica]] in /etc/millrace.toml, ~/.config/millrace.toml or a job file names further places of a file.
    """


@command.command("locate", short_help="Show all places of a file, and what each costs.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--readers", type=click.IntRange(1), default=1, metavar="N", help="How many will read at the same time (default 1)."
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def locate(names: tuple[str, ...], readers: int, as_json: bool) -> None:
    """Show all places of a file, which of them have it now, and the cost of reading there. NAME is a path or a URL.

    The exit code is 2 if no place has it.

    \b
    millrace data locate /db/nr.faa
    """
    from millrace.cli.run import print_json
    from millrace.core.replica_rules import redact_place
    from millrace.host import site_defaults
    from millrace.storage import cost_table, path_choice
    from millrace.storage.reading_costs import choose_cheapest_offer

    settings = site_defaults.read_settings(os.environ)
    told = []
    for name in names:
        found = path_choice.query_all_places(name, settings, os.environ)
        offers = {offer.place: offer for offer in cost_table.list_offers(found, readers, settings.costs, os.environ)}
        best = choose_cheapest_offer(list(offers.values()))
        told.append({"name": redact_place(name), "best": redact_place(best.place) if best else "", "places": [
            {"place": redact_place(each.place), "why_not": each.why_not, "size": each.about.size if each.about else None,
             **({"seconds": offers[each.place].seconds, "measured": offers[each.place].measured} if each.place in offers else {})}
            for each in found
        ]})  # fmt: skip
    if as_json:
        print_json(told)
    else:
        for each in told:
            _print_places(each, readers)
    if nowhere := [str(each["name"]) for each in told if not each["best"]]:
        raise RefusedError(f"{', '.join(nowhere)}: no place has it", "each place says why; check the path")


def _print_places(told: dict[str, Any], readers: int) -> None:
    """Print the places of one file."""
    from millrace.core.text_format import format_count, format_size

    click.echo(told["name"])
    for each in told["places"]:
        words = each["why_not"]
        if "seconds" in each:
            source = f"measured {each['measured']}" if each["measured"] else "a guess: see millrace data probe"
            words = f"{format_size(each['size'])} in {_format_seconds(each['seconds'])}, {source}"
            if each["place"] == told["best"]:
                words += f"; the cheapest for {format_count(readers, 'reader')}"
        click.echo(f"  {each['place']}  {words}")


def _format_seconds(value: float) -> str:
    """Format a time with two digits.

    >>> _format_seconds(0.00123), _format_seconds(12.34)
    ('1.2 ms', '12 s')
    """
    from millrace.core.text_format import format_scaled

    return f"{format_scaled(value * 1e6, (' us', ' ms', ' s'))}" if value < 100 else f"{value:,.0f} s"


@command.command("best-path", short_help="Print the cheapest place of a file.")
@click.argument("name", required=False)
@click.option(
    "--readers", type=click.IntRange(1), default=1, metavar="N", help="How many will read at the same time (default 1)."
)
@click.option(
    "--reads",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="How often this node will read all of it (default 1).",
)
@click.option(
    "--replicate",
    is_flag=True,
    help="Copy it to this node first where that pays, or where no path has it; print a path.",
)
@click.option("--serve", is_flag=True, hidden=True, help="Answer a program that includes millrace.h.")
def best_path(name: str | None, readers: int, reads: int, replicate: bool, serve: bool) -> None:
    """Print the path or URL from which a file is read at the least cost. Copies on this node count as places.

    \b
    aligner -db "$(millrace data best-path /db/nr.faa --readers 40 --reads 10 --replicate)"
    """
    from millrace import storage

    if serve:
        _serve_best_paths()
    elif name is None:
        raise click.UsageError("Missing argument 'NAME'.")
    else:
        click.echo(storage.best_path(name, readers, reads, replicate))


def _serve_best_paths() -> None:
    """Answer requests of ``millrace.h`` on standard input until it ends: ``READERS READS REPLICATE NAME``, null-terminated.

    The answer is a path and a null; without a path the null alone, and the reason on standard error.
    """
    import signal

    from millrace import storage
    from millrace.cli import print_message

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # is meant for the program, whose end is the end of the input
    waiting = b""
    while piece := os.read(sys.stdin.fileno(), 1 << 16):
        *requests, waiting = (waiting + piece).split(b"\0")
        for request in requests:
            readers, reads, replicate, name = request.split(b" ", 3)
            try:
                found = storage.best_path(os.fsdecode(name), int(readers), int(reads), replicate == b"1")
            except MillraceError as error:
                print_message(str(error))
                found = ""
            sys.stdout.buffer.write(os.fsencode(found) + b"\0")
            sys.stdout.buffer.flush()


@command.command("probe", short_help="Measure what places cost.")
@click.argument("places", metavar="[FILE|URL]...", nargs=-1)
@click.option(
    "--hosts", metavar="A,B,...", help="Let these nodes, reached by ssh, read at once: 1, 2, 4, ... up to all."
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("--serve", is_flag=True, hidden=True, help="Read for a probe of several nodes.")
def probe(places: tuple[str, ...], hosts: str | None, as_json: bool, serve: bool) -> None:
    """Measure the cost of reading at places, each by a file there, within 5 seconds; default: the places of the rules.

    The times are kept for this node, and those of --hosts, with their date, in ~/.cache/millrace (or in
    $XDG_CACHE_HOME).
    """
    from millrace.cli import print_message
    from millrace.cli.run import print_json
    from millrace.host import site_defaults
    from millrace.storage import cost_table, place_probe

    if serve:
        place_probe.serve_node_probe(sys.stdin.buffer, sys.stdout.buffer, _keep_measurement)
        return
    found, failed = [], False
    places = places or tuple(cost_table.list_example_files(site_defaults.read_settings(os.environ).replica))
    if not places:
        raise RefusedError("no [[replica]] names a place", "name a file or a URL")
    for place in map(cost_table.make_absolute, places):
        try:
            measured = _measure_by_nodes(place, hosts) if hosts else place_probe.measure_place(place)
        except MillraceError as error:
            print_message(str(error))
            failed = True
            continue
        _keep_measurement(measured)
        found.append(measured)
        if not as_json:
            _print_measured_costs(measured)
    if as_json:
        print_json(found)
    if failed:
        raise MillraceError("")


def _keep_measurement(measured: MeasuredCost) -> None:
    from millrace.storage import cost_table

    cost_table.add_measurement(measured, os.environ)


def _measure_by_nodes(place: str, hosts: str) -> MeasuredCost:
    """Measure a place by nodes that read at once; they keep the result, too."""
    from contextlib import closing

    from millrace.host.python_launch import make_python_command
    from millrace.launch import launch_commands
    from millrace.launch.node_allocation import NodeAllocation, parse_hosts
    from millrace.storage import place_probe

    allocation = NodeAllocation("hosts", tuple(dict.fromkeys(parse_hosts(hosts))))
    words = make_python_command("-m", "millrace", "data", "probe", "--serve")
    commands = [launch_commands.build_node_command(allocation, node, words, os.environ) for node in allocation.nodes]
    with closing(place_probe.NodeReaders(allocation.nodes, commands)) as readers:
        readers.open_place(place)
        measured = place_probe.measure_by_readers(place, readers, place_probe.list_node_counts(len(allocation.nodes)))
        readers.keep_measurement(measured)
    return measured


def _print_measured_costs(measured: MeasuredCost) -> None:
    """Print the measured cost of a place, and how well it predicts."""
    from millrace.core.replica_rules import redact_place
    from millrace.core.text_format import format_size
    from millrace.storage.cost_table import find_server

    click.echo(f"{find_server(measured.place)}, by {redact_place(measured.place)} ({format_size(measured.size)})")
    checks = {check.readers: check for check in measured.checks}
    for line in measured.cost.lines:
        words = f"start {_format_seconds(line.start_seconds)}, {format_size(1 / line.seconds_per_byte)}/s each"
        if check := checks.get(line.readers):
            words += f"; {format_size(check.size)} predicted {_format_seconds(check.predicted)}, measured {_format_seconds(check.measured)}"
        click.echo(f"  {line.readers} at a time: {words}")


#: Seconds between checks whether a view is mounted.
POLL_INTERVAL_SECONDS = 0.02


@command.command("mount", short_help="See a folder behind a URL as a folder of this machine.")
@click.argument("url")
@click.argument("point", metavar="MOUNTPOINT", type=click.Path(path_type=Path, readable=False))
@click.option("--foreground", is_flag=True, help="Stay, and say what goes wrong; Ctrl-C unmounts.")
@click.option("--to", "way", metavar="disk|ram|DIR", default="disk", help="Where copies are kept (default: disk, in $TMPDIR).")  # fmt: skip
def mount(url: str, point: Path, foreground: bool, way: str) -> None:
    """See the files behind a URL in a folder, for reading, with any program.

    \b
    millrace data mount s3://bucket/blast/ /mnt/blast
    blastp -db /mnt/blast/nr -query q.faa
    umount /mnt/blast
    """
    from millrace.core.replica_rules import FETCHED, check_place, redact_place
    from millrace.storage import fuse_mount
    from millrace.storage.cache import cache_location
    from millrace.storage.view_tree import ViewTree

    check_place(url)
    if not url.startswith(FETCHED) or "?" in url:
        raise RefusedError(f"{redact_place(url)}: is no URL of a folder", f"known are {', '.join(FETCHED)}, without anything behind ?")  # fmt: skip
    fuse_mount.check_mountable(url, point)
    if not foreground:
        _mount_in_background([url, str(point), "--to", way], point)
        return
    tree = ViewTree(url, cache_location.resolve_cache_folder(way))
    if note := fuse_mount.find_listing_notice(url, tree):
        click.echo(f"millrace: {note}", err=True)
    fuse_mount.serve_view(url, tree, point, lambda text: click.echo(f"millrace: {text}", err=True))
    sys.stdout.flush()
    os._exit(0)  # the next process that needs an unfinished download resumes it


def _mount_in_background(words: list[str], point: Path) -> None:
    """Start a background process that serves the view, wait until it is mounted, and print its messages.

    Raises:
        SystemExit: The process ended before; the exit code is its own.
    """
    import subprocess
    import tempfile
    import time

    from millrace.host.python_launch import make_python_command

    with tempfile.TemporaryFile() as said:
        argv = make_python_command("-m", "millrace", "data", "mount", "--foreground", *words)
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True)  # fmt: skip
        while process.poll() is None and not os.path.ismount(point):
            time.sleep(POLL_INTERVAL_SECONDS)
        said.seek(0)
        click.echo(said.read(), nl=False, err=True)
        if process.returncode is not None:
            sys.exit(process.returncode if process.returncode > 0 else ExitCode.STOPPED)
        process.returncode = 0  # it goes on in the background: do not wait for it


PLACES = click.option("--to", "ways", multiple=True, metavar="disk|ram|DIR", help="Where the copies are (default: disk, in $TMPDIR; list, evict and verify: disk, ram and the folders that were named before).")  # fmt: skip


@command.command("stage", short_help="Keep copies of files on this node.")
@click.argument("names", metavar="NAME|URL...", nargs=-1, required=True)
@click.option(
    "--readers", type=click.IntRange(1), default=1, metavar="N", help="How many will read at the same time (default 1)."
)
@click.option(
    "--reads",
    type=click.IntRange(1),
    metavar="N",
    help="How often this node will read each (default: four times for each core).",
)
@click.option("--all", "everything", is_flag=True, help="Copy those, too, for which that does not pay.")
@PLACES
def stage(names: tuple[str, ...], readers: int, reads: int | None, everything: bool, ways: tuple[str, ...]) -> None:
    """Copy files to this node where that pays, each from its cheapest place, and print the paths from which to read.

    What is left in place, and why, goes to standard error. An existing copy is not fetched again; concurrent requests
    share one download; an interrupted download is resumed.
    """
    from millrace.cli import print_message
    from millrace.core.replica_rules import redact_place
    from millrace.host import core_allocation, site_defaults
    from millrace.storage import path_choice

    settings = site_defaults.read_settings(os.environ)
    reads = reads or 4 * core_allocation.count_usable_cores(os.environ)[0]
    for name in names:
        found = path_choice.make_best_path(
            name, readers, reads, settings, os.environ, ways[-1] if ways else "disk", everything
        )
        if words := found.explain_no_copy(reads):
            print_message(f"{redact_place(name)}: {words}")
        click.echo(found.path)


@command.command("list", short_help="List the copies on this node.")
@PLACES
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def list_copies(ways: tuple[str, ...], as_json: bool) -> None:
    """List the copies on this node: path, size, where from, when fetched, and whether a process uses it."""
    from millrace.cli.run import print_json
    from millrace.core.text_format import format_size
    from millrace.storage.cache import cache_location

    found = [copy for cache in cache_location.open_caches(ways) for copy in cache_location.list_copies(cache)]
    if as_json:
        print_json(found)
        return
    for copy in found:
        state = "in use" if copy.in_use else "whole" if copy.is_whole else "cut off"
        click.echo(f"{copy.path}  {format_size(copy.size)}  {state}  {copy.place or 'a file on shared storage'}{f', {copy.day}' if copy.day else ''}")  # fmt: skip


@command.command("evict", short_help="Remove copies from this node.")
@click.argument("names", metavar="[URL|COPY]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All copies that nobody uses.")
@PLACES
def evict(names: tuple[str, ...], everything: bool, ways: tuple[str, ...]) -> None:
    """Remove copies, named by URL or path, and list them. A copy in use stays. Exit code 1: one stays or is missing."""
    from millrace.cli import print_message
    from millrace.core.replica_rules import redact_place
    from millrace.core.text_format import format_size
    from millrace.storage.cache import cache_location

    if bool(names) == everything:
        raise RefusedError("name the copies, or say --all", "see: millrace data list")
    refused, lacking = False, {*names}
    for cache in cache_location.open_caches(ways):
        for copy in cache_location.list_copies(cache):
            lacking -= {copy.place, copy.path}
            if not (everything or copy.place in names or copy.path in names):
                continue
            if cache.evict_copy(copy.path):
                click.echo(f"{copy.path}  {format_size(copy.size)}  removed")
            else:
                refused |= not everything
                print_message(f"{copy.path}: is in use, and stays")
    for name in sorted(lacking):
        print_message(f"{redact_place(name)}: no copy of it is here")
    if refused or lacking:
        raise MillraceError("")


@command.command("verify", short_help="Check the copies on this node.")
@PLACES
def verify(ways: tuple[str, ...]) -> None:
    """Read all fetched copies, compare their checksums, and ask their places whether there is a newer version.

    A damaged copy is removed, unless a process uses it; the exit code is 5 then.
    """
    from millrace.storage.cache import cache_location

    damaged = []
    for cache in cache_location.open_caches(ways):
        for copy in cache_location.list_copies(cache):
            if copy.is_whole and copy.place:
                words = cache_location.verify_copy(copy)
                click.echo(f"{copy.path}  {words}")
                if words == cache_location.DAMAGED:
                    cache.evict_copy(copy.path)
                    damaged.append(copy.path)
    if damaged:
        raise CorruptError(
            f"{damaged[0]}: is damaged", "it was removed, unless it is in use; fetch it again: millrace data stage"
        )
