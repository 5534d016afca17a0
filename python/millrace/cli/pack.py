"""``millrace pack``."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.cli.options import COMMAND, JobCommand
from millrace.words import size

if TYPE_CHECKING:
    from millrace.errors import MillraceError
    from millrace.pack.packing import Packed, Wishes
    from millrace.plan.plan import Plan


class PackCommand(JobCommand):
    """Takes results before the command."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "[RESULT]...", "-- TOOL [ARGS]..."]


@click.command("pack", cls=PackCommand, short_help="Pack a result as the least that regenerates it.")
@click.argument("results", metavar="[RESULT]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("-o", "--output", "dest", metavar="FILE.mrp", type=click.Path(path_type=Path), help="The pack.")
@click.option("--with-queries", is_flag=True, help="Let the queries travel along.")
@click.option(
    "--batch",
    type=click.IntRange(1, 1 << 20),
    metavar="N",
    help="Queries whose hits are kept together (default 50): more are packed smaller.",
)
@click.option(
    "--slots", type=int, metavar="N", help="Tool processes side by side (default: the cores this process may use)."
)
@click.option(
    "--work-dir",
    envvar="MILLRACE_WORK",
    default="",
    metavar="DIR",
    help="Where batches and unfinished results lie meanwhile.",
)
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
    ctx: click.Context, results: tuple[Path, ...], dest: Path | None, with_queries: bool, batch: int | None, slots: int | None, work_dir: str,
    only_plan: bool,
    bandwidth: str,
) -> None:  # fmt: skip
    """Pack a finished result: which queries hit which entries, and what cannot be regenerated from that.

    \b
    millrace pack hits.txt -o hits.mrp -- blastp -query q.faa -db nr -outfmt 0 -out hits.txt
    millrace unpack hits.mrp --queries q.faa -o hits.txt

    The command is the one that made the result. The packer regenerates it and keeps what differs, so that unpacking gives
    the same bytes. A result that this does not help is compressed with zstd.
    """
    from millrace.cli.run import here
    from millrace.errors import RefusedError, ToolError
    from millrace.pack import packing, places
    from millrace.pack.cost import parse_bandwidth
    from millrace.pack.regenerate import Settings

    if not ctx.meta.get(COMMAND):
        raise RefusedError("no command", "write the command that made the result after --")
    speed = parse_bandwidth(bandwidth) if bandwidth else None
    if only_plan != bool(speed):
        raise RefusedError(
            "--plan and --bandwidth belong together", "as in: millrace pack --plan --bandwidth 100M -- COMMAND"
        )
    if not (dest or only_plan):
        raise RefusedError("where to write the pack is not said", "say -o FILE.mrp")
    if dest:
        places.check([here() / dest])
    try:
        plan = _plan(tuple(ctx.meta[COMMAND]), here(), slots)
    except (RefusedError, ToolError) as error:
        if dest is None:
            raise
        found = _named(tuple(ctx.meta[COMMAND]), results, here(), error)
        places.refuse_read([here() / dest], found)
        places.check_replaced(here() / dest)
        with places.in_words(here() / dest):
            packed = packing.pack_files(found, here() / dest, error.message)
        click.echo(f"millrace: {_told(packed, dest)}", err=True)
        return
    outputs = _outputs(plan, results)
    read = [*outputs, *(plan.command.cwd / item.path for item in plan.use.inputs), *plan.use.databases]
    if dest:
        places.refuse_read([here() / dest], read)
        places.check_replaced(here() / dest)
    settings = Settings(dict(os.environ), slots, work_dir)
    wishes = packing.Wishes(settings, batch or packing.BATCH, with_queries)
    if dest is None or speed:
        _print_plan(plan, outputs, wishes, speed or 1.0)
        return
    with places.in_words(here() / dest):
        packed = packing.pack(plan, outputs, here() / dest, wishes, _say)
    click.echo(f"millrace: {_told(packed, dest)}", err=True)


def _plan(argv: tuple[str, ...], cwd: Path, slots: int | None) -> Plan:
    from millrace.errors import RefusedError
    from millrace.job import Job
    from millrace.launch.mpi_environment import for_tools
    from millrace.pack import codec
    from millrace.plan import plan as planner
    from millrace.replicas import are_named
    from millrace.tools import registry

    if are_named(argv[1:]):
        raise RefusedError("the command names files by URLs, which do not travel", "name copies of them")
    family = codec.find(registry.MODULES.get(Path(argv[0]).name, ""))
    if family:
        argv = tuple(family.simpler(argv))
    return planner.make(Job(command=argv, slots=slots, fragments="1", verify=0.0), cwd, for_tools(os.environ))


def _named(argv: tuple[str, ...], results: tuple[Path, ...], cwd: Path, error: MillraceError) -> list[Path]:
    """The results of a command that cannot be planned, for the reason ``error``.

    Raises:
        MillraceError: They are not named, or not there.
    """
    from millrace.errors import RefusedError
    from millrace.pack import codec
    from millrace.tools import registry

    known = codec.find(registry.MODULES.get(Path(argv[0]).name, ""))
    found = [cwd / each for each in results]
    with suppress(RefusedError):
        found = found or [cwd / each for each in (known.written(argv) if known else [])]
    if not found:
        raise RefusedError(error.message, "its result is packed as it is if it is named: millrace pack RESULT ...")
    if missing := [path for path in found if not path.is_file()]:
        raise RefusedError(f"{missing[0]}: no such file", "name the result: millrace pack RESULT ...") from error
    return found


def _outputs(plan: Plan, results: tuple[Path, ...]) -> list[Path]:
    """The files with the outputs of the command, in their order.

    Raises:
        RefusedError: One is not there.
    """
    from millrace.errors import RefusedError

    named = [plan.command.cwd / each.path if each.path != "-" else None for each in plan.use.outputs]
    if len(results) == len(named):
        named = [plan.command.cwd / each for each in results]
    elif results:
        raise RefusedError(
            f"the command writes {len(named)} outputs, and {len(results)} results are named",
            "name all in the order of the command's options, or none, if the command names its files",
        )
    found = []
    for path, use in zip(named, plan.use.outputs, strict=True):
        if path is None:
            raise RefusedError(
                f"the command writes {'its result' if use.name == 'stdout' else use.name} to standard output",
                "name the file that it went to: millrace pack RESULT ...",
            )
        if use.layout != "file" or not path.is_file():
            raise RefusedError(f"{path}: no such file", "name the result: millrace pack RESULT ...")
        found.append(path)
    return found


def _print_plan(plan: Plan, outputs: list[Path], wishes: Wishes, bandwidth: float) -> None:
    import tempfile

    from millrace.pack import cost, estimate

    with tempfile.TemporaryDirectory(prefix=".millrace-pack-", dir=plan.command.cwd) as folder:
        ways, why_not = estimate.ways(plan, outputs, wishes, Path(folder), _say)
    click.echo(f"{'':10} {'bytes':>10} {'before':>10} {'send':>10} {'after':>10} {'in all':>10}")
    for way in ways:
        seconds = (way.before, way.bytes / bandwidth, way.after, way.seconds(bandwidth))
        click.echo(f"{way.name:10} {size(way.bytes):>10} {' '.join(f'{each:>8,.1f} s' for each in seconds)}")
    click.echo(f"best: {cost.best(ways, bandwidth).name}")
    if why_not:
        click.echo(f"not packed by its meaning: {why_not}")
        return
    for other in ways[:-1]:
        click.echo(f"packed is sooner than {other.name} below {_bits(cost.pays_below(other, ways[-1]))}")


def _bits(bandwidth: float) -> str:
    return "any bandwidth" if bandwidth == float("inf") else f"{bandwidth * 8 / 1e6:,.1f} Mbit/s"


def _told(packed: Packed, dest: Path) -> str:
    ratio = packed.original / max(packed.packed, 1)
    smaller = f" ({ratio:,.{0 if ratio >= 10 else 1}f} times smaller)" if ratio >= 1.05 else ""
    words = f"{dest}: {size(packed.original)} in {size(packed.packed)}{smaller}"
    if packed.why_plain:
        return f"{words}, compressed with zstd: {packed.why_plain}"
    return f"{words}: hits {size(packed.hits)}, differences {size(packed.differences)}; regenerated in {packed.regenerate_seconds:.1f} s"


def _say(text: str) -> None:
    click.echo(f"millrace: {text}", err=True)
