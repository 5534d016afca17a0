"""The commands ``millrace send`` and ``millrace receive``, the two ends of a transfer."""

from __future__ import annotations

import glob
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from millrace.cli.options import COMMAND, JobCommand, add_regenerating_options

#: Host and path in the syntax of rsync and scp.
_PLACE = re.compile(r"((?:[^@\s/-][^@\s/]*@)?(?:\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9_][^:\s/]*)):(.+)")

#: Longest wait, in seconds, for an earlier receiver whose sender is gone.
MAX_WAIT_SECONDS = 60.0

#: Exit status of ssh for a failure of its own.
_SSH_FAILED = 255


class SendCommand(JobCommand):
    """A click command that takes a pack and a place, or with ``--plan`` a serial command after ``--``."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "{FILE.mrp|RUNDIR [USER@]HOST:PATH [PATH]... | --plan -- TOOL [ARGS]...}"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before = args[: args.index("--")] if "--" in args else args
        return super().parse_args(ctx, args) if "--plan" in before else click.Command.parse_args(self, ctx, args)


@click.command(
    "send", cls=SendCommand, short_help="Send a result by its meaning, over ssh, and have it regenerated there."
)
@click.argument("source", metavar="FILE.mrp|RUNDIR", required=False, type=click.Path(path_type=Path))
@click.argument("place", metavar="[USER@]HOST:PATH", default="")
@click.argument("more", metavar="[PATH]...", nargs=-1)
@click.option(
    "--db", default="", metavar="DB", help="The database there (default: the name that the result has of it)."
)
@click.option("--queries", default="", metavar="FILE", help="The queries there (default: those that travel along).")
@click.option("--any-version", is_flag=True, help="Try another version of the tool there, too.")
@click.option("--slots", type=int, metavar="N", help="Tool processes side by side, there.")
@click.option("--hosts", default="", metavar="A,B,...", help="Nodes there that regenerate.")
@click.option("--ssh", default="ssh", metavar="COMMAND", help="What connects, with options: 'ssh -p 2222'.")
@click.option("--millrace", "program", default="millrace", metavar="PATH", help="Millrace there, if not on the PATH.")
@click.option(
    "--plan",
    "only_plan",
    is_flag=True,
    help="Only say, before a search, what each way to get its result there would take.",
)
@click.option("--bandwidth", metavar="BITS", default="", help="For --plan: of the network, in bits a second: 100M, 1G.")
@click.option("--cores", type=click.IntRange(1), metavar="N", help="For --plan: cores that search (default: these).")
@click.option(
    "--cores-there", type=click.IntRange(1), metavar="N", help="For --plan: cores that regenerate (default: as many)."
)
@click.option(
    "--speed-there",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    default=1.0,
    help="For --plan: speed of a core there, where one here has 1.",
)
@click.pass_context
def command(
    ctx: click.Context, source: Path | None, place: str, more: tuple[str, ...], db: str, queries: str, any_version: bool, slots: int | None, hosts: str, ssh: str, program: str,
    only_plan: bool, bandwidth: str, cores: int | None, cores_there: int | None, speed_there: float,
) -> None:  # fmt: skip
    """Send a packed result to another machine, where it is regenerated as it arrives.

    \b
    millrace send hits.mrp me@storage:results/hits.txt --db /data/nr
    millrace send hits.txt.millrace me@storage:results/hits.txt

    A pack that a run still writes is sent while it grows. The same command again resumes after a failure of either end
    or of the connection.

    \b
    millrace send --plan --bandwidth 10M --cores 512 --cores-there 64 -- blastp -query q.faa -db nr -out hits.txt
    """
    from millrace.cli.run import get_working_folder
    from millrace.core.errors import RefusedError
    from millrace.core.text_format import format_size
    from millrace.extensions.pack import age_encryption, result_files

    if only_plan:
        _print_forecast(tuple(ctx.meta.get(COMMAND, ())), bandwidth, (cores, cores_there, speed_there))
        return
    if source is None:
        raise RefusedError("what to send is not said", "name a pack or a run directory, and [USER@]HOST:PATH")
    found = _PLACE.fullmatch(place)
    if not found:
        raise RefusedError(f"{place}: no place on another machine", "write [USER@]HOST:PATH")
    if again := next((path for path in more if path.startswith(f"{found[1]}:")), ""):
        raise RefusedError(f"{again}: names the machine again", "write only the paths of further outputs")
    words = [program, "receive", *(word for path in (found[2], *more) for word in ("-o", path))]
    for option, value in (("--db", db), ("--queries", queries), ("--slots", str(slots or "")), ("--hosts", hosts)):
        words += [option, value] if value else []
    words += ["--any-version"] if any_version else []
    pack, is_ours = get_working_folder() / source, False
    age_encryption.refuse_encrypted(
        pack, "ssh encrypts what is sent: send the pack as it was before, or copy this one with scp"
    )
    if result_files.is_run_directory(pack):
        pack, is_ours = _pack_kept_run(pack, bool(queries)), True
    sent = _send_pack(pack, [*shlex.split(ssh), "-T", "--", found[1], shlex.join(words)])
    if is_ours:
        pack.unlink()
    click.echo(f"millrace: {place}: regenerated there, {format_size(sent)} sent", err=True)


def _print_forecast(argv: tuple[str, ...], bandwidth: str, ends: tuple[int | None, int | None, float]) -> None:
    """Print what each way to get the result of ``argv`` to the other end would take.

    Args:
        ends: Cores here and there, and speed of a core there; None: see the options.
    """
    import tempfile

    from millrace.cli.pack import format_bandwidth
    from millrace.cli.run import get_working_folder
    from millrace.core.errors import RefusedError
    from millrace.core.text_format import format_size
    from millrace.extensions.pack import result_files, transfer_forecast
    from millrace.extensions.pack.regeneration_run import RegenerationSettings
    from millrace.extensions.pack.regeneration_trial import parse_bandwidth
    from millrace.extensions.pack.result_codec import NotPackableError
    from millrace.extensions.pack.result_packer import PackOptions

    if not argv or not bandwidth:
        raise RefusedError(
            "--plan needs a command and --bandwidth", "as in: millrace send --plan --bandwidth 100M -- COMMAND"
        )
    speed, cwd = parse_bandwidth(bandwidth), get_working_folder()
    plan = result_files.plan_result_command(argv, cwd, None)
    cores = ends[0] or plan.slots
    there = transfer_forecast.TransferEnds(cores, ends[1] or cores, ends[2])
    with tempfile.TemporaryDirectory(prefix=".millrace-pack-", dir=cwd) as folder:
        try:
            wishes = PackOptions(RegenerationSettings(plan.command.environ))
            ways = transfer_forecast.forecast_transfer(plan, wishes, Path(folder), there)
        except NotPackableError as error:
            raise RefusedError(
                f"the result is not packed by its meaning: {error.message}", "send it by zstd | ssh"
            ) from error
    click.echo(f"{'':10} {'bytes':>10} {'compute':>12} {'send':>12} {'after':>12} {'in all':>12}")
    for way in ways:
        seconds = (way.compute, way.bytes / speed, way.after, way.estimate_seconds(speed))
        click.echo(f"{way.name:10} {format_size(way.bytes):>10} {' '.join(f'{each:>10,.1f} s' for each in seconds)}")
    best = min(ways, key=lambda way: way.estimate_seconds(speed))
    click.echo(f"best: {best.name}" if best is ways[-1] else f"best: {best.name}; packing does not pay at {bandwidth}")
    for other in ways[:-1]:
        crossover = transfer_forecast.compute_crossover_bandwidth(other, ways[-1])
        click.echo(f"packed is sooner than {other.name} below {format_bandwidth(crossover)}")


def _pack_kept_run(run_dir: Path, known_queries: bool) -> Path:
    """Pack a kept run beside it and return the pack, which stays until it is sent; remove packs of earlier runs."""
    from millrace.cli import pack
    from millrace.rundir.paths import RunDir

    run_id = RunDir(run_dir).read_manifest().run_id
    for old in run_dir.parent.glob(f".{glob.escape(run_dir.name)}.*.sending"):
        if run_id not in old.name:
            old.unlink(missing_ok=True)
    dest = run_dir.with_name(f".{run_dir.name}.{run_id}{'' if known_queries else '.queries'}.sending")
    if not dest.exists():
        pack.pack_run(run_dir, dest, with_queries=not known_queries)
    return dest


def _send_pack(pack: Path, connect: list[str]) -> int:
    """Send a pack through the command ``connect`` and return the number of bytes sent.

    Raises:
        MillraceError: The connection or the other end has failed.
    """
    from millrace.core.errors import MillraceError, RefusedError
    from millrace.extensions.pack import pack_transfer

    source = pack_transfer.PackSource(pack)
    try:
        process = subprocess.Popen(connect, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise RefusedError(f"{connect[0]}: {error.strerror}", "name what connects with --ssh") from error
    lost: MillraceError | None = None
    sent = 0
    with process:
        assert process.stdin and process.stdout
        try:
            sent = pack_transfer.send_pack(source, process.stdout, process.stdin, lambda: process.poll() is None)
        except MillraceError as error:
            lost = error
        with suppress(BrokenPipeError):
            process.stdin.close()
        status = process.wait()
    if status == _SSH_FAILED or (lost and status <= 0):
        raise lost or MillraceError("ssh has failed", "nothing is lost: the same command goes on where it was")
    if status:
        click.echo("millrace: the other end has stopped, for the reason above", err=True)
        sys.exit(status)
    return sent


@click.command("receive", short_help="Write a result that millrace send sends.")
@add_regenerating_options(required=True)
def receive_command(
    outputs: tuple[Path, ...],
    db: str,
    queries: Path | None,
    any_version: bool,
    hosts: str,
    slots: int | None,
    work_dir: str,
) -> None:
    """Regenerate a result while its pack arrives on standard input. Started by ``millrace send``, by ssh."""
    from millrace.cli.run import get_working_folder
    from millrace.core.errors import RefusedError, ToolError
    from millrace.core.text_format import escape_unprintable
    from millrace.extensions.pack import pack_destinations, pack_receiver, pack_unpacker
    from millrace.extensions.pack.pack_receiver import ReceivingFolder
    from millrace.extensions.pack.regeneration_run import RegenerationSettings
    from millrace.launch.mpi_environment import remove_mpi_variables
    from millrace.launch.node_allocation import find_node_allocation

    cwd = get_working_folder()
    dests = [cwd / each for each in outputs]
    pack_destinations.check_destinations(dests, [cwd / queries] if queries else [])
    place = ReceivingFolder(dests[0])
    held = place.acquire_lock(MAX_WAIT_SECONDS, lambda text: click.echo(f"millrace: {text}", err=True))
    is_new = not (place.pack.exists() or place.work.exists())
    settings = RegenerationSettings(remove_mpi_variables(os.environ), slots, work_dir)
    nodes = find_node_allocation([hosts] if hosts else [], os.environ)
    there = pack_unpacker.UnpackOptions(settings, cwd, db, cwd / queries if queries else None, any_version, nodes)

    told: list[Sequence[str]] = []

    def confirm_command(_: object, argv: Sequence[str]) -> bool:
        if argv not in told:  # called when the pack begins to arrive, and again when it is complete
            click.echo(f"millrace: this pack runs: {escape_unprintable(shlex.join(argv))}", err=True)
            told.append(argv)
        return True  # the sender has logged in as this user

    made = pack_receiver.PackReceiver(place, dests, there, confirm_command)
    try:
        with pack_destinations.explain_write_errors(dests[0]):
            why = pack_receiver.receive_pack(made, place, sys.stdin.buffer, sys.stdout.buffer)
    except (RefusedError, ToolError):
        if is_new:  # else the same command can resume an earlier start
            place.remove()
        raise
    finally:
        held.close()
        pack_destinations.remove_emptied_folder(place.folder)
    click.echo(f"millrace: {', '.join(map(str, outputs))}: {why}", err=True)
