"""The command ``millrace verify``."""

from __future__ import annotations

import os

import click

from millrace.cli.options import add_search_store_option, add_slots_option


@click.command("verify", short_help="Check a finished run: its files, and random batches computed again.")
@click.argument("run", metavar="RUN|CRATE")
@click.option(
    "--sample", "n_samples", metavar="N", type=click.IntRange(min=0), default=5, show_default=True,
    help="Batches to compute again, drawn at random; 0: compare the files alone.",
)  # fmt: skip
@add_slots_option
@add_search_store_option
def command(run: str, n_samples: int, slots: int | None) -> None:
    """Check a finished run whose run directory was kept: inputs, databases and the program are what it has read, each
    output is what it has written, and N random batches, computed again by the recorded command, give the same bytes.
    RUN is the run directory, or an output beside it; CRATE a folder that millrace report --ro-crate has written.

    \b
    millrace verify hits.tsv --sample 10

    Exit code 0: all of it is so; 5: something has changed, and the message says what and where; 2: the run cannot be
    checked here. Nothing of the run is changed.
    """
    from millrace.core.text_format import format_count
    from millrace.extensions.provenance import journaled_run, sample_check
    from millrace.launch.mpi_environment import remove_mpi_variables

    def print_message(text: str) -> None:
        click.echo(f"millrace: {text}", err=True)

    kept = journaled_run.open_journaled_run(run, os.environ)
    found = sample_check.check_run(kept, n_samples, slots, remove_mpi_variables(os.environ), print_message)
    for line in found.outputs:
        click.echo(line)
    n_records = sum(last - first for first, last in found.extents)
    click.echo(
        f"{len(found.extents)} of {format_count(found.n_batches, 'batch')} computed again, "
        f"{format_count(n_records, 'record')}: all bytes equal"
    )
