"""The command ``millrace pack``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.cli import print_message
from millrace.cli.options import COMMAND, JobCommand, add_packing_options, find_tool_words
from millrace.core.text_format import format_size

if TYPE_CHECKING:
    from millrace.extensions.pack.result_packer import PackOptions
    from millrace.planning.run_plan import RunPlan


_HINT = "name a run directory that was kept, or a trace, or after -- the command that made the result"


class PackCommand(JobCommand):
    """A click command that takes results before the tool's command."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "RUNDIR | TRACE... | [RESULT]... -- TOOL [ARGS]..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        import shutil

        from millrace.core.errors import RefusedError

        words = [] if "--" in args else find_tool_words(self, args)
        if words and Path(words[0]).exists():
            return click.Command.parse_args(self, ctx, args)
        if words and not shutil.which(words[0]):
            raise RefusedError(f"{words[0]}: no such file, run directory or program", _HINT)
        return super().parse_args(ctx, args)


@click.command("pack", cls=PackCommand, short_help="Pack a result as the least that regenerates it.")
@click.argument("results", metavar="[RESULT]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("-o", "--output", "dest", metavar="FILE.mrp", type=click.Path(path_type=Path), help="The pack.")
@click.option(
    "--encrypt-to",
    "recipients",
    metavar="RECIPIENT",
    multiple=True,
    help="Only who has the private key of RECIPIENT (age1..., or a public key of ssh) can unpack; may be repeated.",
)
@click.option("--with-queries", is_flag=True, help="Let the queries travel along.")
@click.option(
    "--batch",
    type=click.IntRange(1, 1 << 20),
    metavar="N",
    help="Queries whose hits are kept together (default 50): more are packed smaller.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Regenerate two batches and trust the rest, where the result begins and ends as they do; unpack still compares all.",
)
@click.option(
    "--effort",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Compress with zstd what takes longer than this to regenerate, measured on a sample; 0: compress all.",
)
@add_packing_options
@click.option(
    "--plan",
    "only_plan",
    is_flag=True,
    help="Only say what each way to send the result would take, measured on a sample.",
)
@click.option(
    "--bandwidth",
    metavar="BITS",
    default="",
    help="Of the network to the other end, in bits a second: 100M, 1G; for --plan.",
)
@click.pass_context
def command(
    ctx: click.Context, results: tuple[Path, ...], dest: Path | None, recipients: tuple[str, ...], with_queries: bool, batch: int | None, trust: bool, effort: float | None,
    slots: int | None, work_dir: str, only_plan: bool, bandwidth: str,
) -> None:  # fmt: skip
    """Pack a finished result: which queries hit which entries, and all that cannot be regenerated from that.

    \b
    millrace pack hits.txt -o hits.mrp -- blastp -query q.faa -db nr -outfmt 0 -out hits.txt
    millrace pack hits.txt.millrace -o hits.mrp
    millrace pack trace.csv -o trace.mrp
    millrace unpack hits.mrp --queries q.faa -o hits.txt

    The command is the one that made the result; a run directory that was kept (run --keep-run-dir) knows it. The packer
    regenerates the result and keeps the differences, so that unpacking gives the same bytes. A result that does not get
    smaller this way is compressed with zstd. A file without a command is packed as a periodic event trace, if it is
    one.
    """
    from millrace.cli.run import get_working_folder
    from millrace.core.errors import RefusedError
    from millrace.extensions.pack import age_encryption, pack_destinations, result_packer
    from millrace.extensions.pack.regeneration_run import RegenerationSettings
    from millrace.extensions.pack.regeneration_trial import parse_bandwidth
    from millrace.extensions.pack.result_packer import PackOptions

    argv, run_dir = tuple(ctx.meta.get(COMMAND, ())), _find_run_dir(results)
    if argv and run_dir:
        raise RefusedError("a run directory knows its command", "name either a run directory or the command")
    if not (argv or run_dir or results) or (only_plan and not (argv or run_dir)):
        raise RefusedError("no command", _HINT)
    speed = parse_bandwidth(bandwidth) if bandwidth else None
    if only_plan != bool(speed):
        raise RefusedError(
            "--plan and --bandwidth belong together", "as in: millrace pack --plan --bandwidth 100M -- COMMAND"
        )
    if not (dest or only_plan):
        raise RefusedError("where to write the pack is not said", "say -o FILE.mrp")
    if dest:
        pack_destinations.check_destinations([get_working_folder() / dest])
    settings = RegenerationSettings(dict(os.environ), slots, work_dir)
    keys = age_encryption.parse_recipients(recipients)
    wishes = PackOptions(
        settings, batch or result_packer.QUERIES_PER_BATCH, with_queries, encrypt_to=keys, trust=trust, effort=effort
    )
    if run_dir:
        _pack_run_dir(get_working_folder() / run_dir, dest, wishes, speed)
    elif argv:
        _pack_outputs(argv, get_working_folder(), results, dest, wishes, speed)
    elif dest:
        _pack_files([get_working_folder() / each for each in results], dest, wishes)


def _pack_files(paths: list[Path], dest: Path, wishes: PackOptions) -> None:
    """Pack files without knowing the command that made them."""
    from millrace.cli.run import get_working_folder
    from millrace.core.errors import RefusedError
    from millrace.extensions.pack import age_encryption, layout, pack_destinations, result_files

    if missing := next((path for path in paths if not path.is_file()), None):
        what = "is a folder, and no run directory" if missing.is_dir() else "no such file"
        raise RefusedError(f"{missing}: {what}", _HINT)
    if len(paths) > layout.MAX_OUTPUTS:
        raise RefusedError(
            f"{len(paths)} files, and a pack holds {layout.MAX_OUTPUTS} at most", "pack them with tar before"
        )
    place = get_working_folder() / dest
    pack_destinations.refuse_overwritten_inputs([place], paths)
    pack_destinations.check_replaced_file(place)
    with (
        pack_destinations.explain_write_errors(place),
        age_encryption.encrypt_when_written(place, wishes.encrypt_to) as fresh,
    ):
        packed = result_files.pack_traces_or_plain(paths, fresh)
    click.echo(f"millrace: {packed.describe_packing(dest)}", err=True)
    if packed.why_plain:
        hint = "a result of BLAST+ or HMMER gets far smaller with the command that wrote it: millrace pack FILE -o PACK -- COMMAND"
        click.echo(f"\nhint: {hint}", err=True)


def pack_run(run_dir: Path, dest: Path, *, with_queries: bool) -> None:
    """Pack a kept run into ``dest``.

    Raises:
        MillraceError: The run cannot be packed.
    """
    from millrace.extensions.pack import pack_destinations, result_packer
    from millrace.extensions.pack.regeneration_run import RegenerationSettings

    pack_destinations.check_destinations([dest])
    wishes = result_packer.PackOptions(RegenerationSettings(dict(os.environ)), with_queries=with_queries)
    _pack_run_dir(run_dir, dest, wishes, None)


def _pack_run_dir(run_dir: Path, dest: Path | None, wishes: PackOptions, speed: float | None) -> None:
    import tempfile

    from millrace.cli.run import get_working_folder
    from millrace.extensions.pack import pack_destinations, result_files

    folder = (get_working_folder() / dest).parent if dest else get_working_folder()
    with (
        pack_destinations.explain_write_errors(get_working_folder() / (dest or "plan")),
        tempfile.TemporaryDirectory(prefix=".millrace-pack-", dir=folder) as scratch,
        result_files.gather_kept_outputs(run_dir, Path(scratch)) as kept,
    ):
        _pack_outputs(kept.argv, kept.cwd, kept.outputs, dest, wishes, speed)


def _find_run_dir(results: tuple[Path, ...]) -> Path | None:
    """Return the run directory that is named instead of results; None: there is none."""
    from millrace.extensions.pack import result_files

    return results[0] if len(results) == 1 and result_files.is_run_directory(results[0]) else None


def _pack_outputs(
    argv: tuple[str, ...],
    cwd: Path,
    named: tuple[Path, ...],
    dest: Path | None,
    wishes: PackOptions,
    speed: float | None,
) -> None:
    """Pack the outputs of the command ``argv`` in ``cwd``; with ``speed``, only estimate the ways to send them.

    Args:
        named: The outputs as typed; empty: as the command says.
        speed: Bandwidth in bytes a second.
    """
    from millrace.cli.run import get_working_folder
    from millrace.core.errors import RefusedError, ToolError
    from millrace.extensions.pack import age_encryption, pack_destinations, result_files, result_packer

    place = get_working_folder() / (dest or "")
    try:
        plan = result_files.plan_result_command(argv, cwd, wishes.settings.slots)
    except (RefusedError, ToolError) as error:
        if dest is None:
            raise
        found = result_files.find_named_results(argv, named, cwd, error)
        pack_destinations.refuse_overwritten_inputs([place], found)
        pack_destinations.check_replaced_file(place)
        with (
            pack_destinations.explain_write_errors(place),
            age_encryption.encrypt_when_written(place, wishes.encrypt_to) as fresh,
        ):
            packed = result_files.pack_plain(found, result_files.describe_originals(found), fresh, error.message)
        click.echo(f"millrace: {packed.describe_packing(dest)}", err=True)
        return
    outputs = result_files.find_output_files(plan, named)
    read = [*outputs, *(plan.command.cwd / item.path for item in plan.use.inputs), *plan.use.databases]
    if dest:
        pack_destinations.refuse_overwritten_inputs([place], read)
        pack_destinations.check_replaced_file(place)
    if dest is None or speed:
        _print_plan(plan, outputs, wishes, speed or 1.0)
        return
    with (
        pack_destinations.explain_write_errors(place),
        age_encryption.encrypt_when_written(place, wishes.encrypt_to) as fresh,
    ):
        packed = result_packer.pack_result(plan, outputs, fresh, wishes, print_message)
    click.echo(f"millrace: {packed.describe_packing(dest)}", err=True)


def _print_plan(plan: RunPlan, outputs: list[Path], wishes: PackOptions, bandwidth: float) -> None:
    import tempfile

    from millrace.extensions.pack import pack_transfer, regeneration_trial

    with tempfile.TemporaryDirectory(prefix=".millrace-pack-", dir=plan.command.cwd) as folder:
        ways, why_not = pack_transfer.measure_transfer_methods(plan, outputs, wishes, Path(folder), print_message)
    click.echo(f"{'':10} {'bytes':>10} {'before':>10} {'send':>10} {'after':>10} {'in all':>10}")
    for way in ways:
        seconds = (way.before, way.bytes / bandwidth, way.after, way.estimate_seconds(bandwidth))
        click.echo(f"{way.name:10} {format_size(way.bytes):>10} {' '.join(f'{each:>8,.1f} s' for each in seconds)}")
    click.echo(f"best: {regeneration_trial.choose_fastest_transfer(ways, bandwidth).name}")
    if why_not:
        click.echo(f"not packed by its meaning: {why_not}")
        return
    for other in ways[:-1]:
        click.echo(
            f"packed is sooner than {other.name} below {format_bandwidth(regeneration_trial.compute_break_even_bandwidth(other, ways[-1]))}"
        )


def format_bandwidth(bandwidth: float) -> str:
    """Format a bandwidth in bytes a second as Mbit/s."""
    return "any bandwidth" if bandwidth == float("inf") else f"{bandwidth * 8 / 1e6:,.1f} Mbit/s"
