"""URLs in a command: files fetched before planning, outputs sent at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.core.job import JobSpec

if TYPE_CHECKING:
    from millrace.execution.url_inputs import UrlFiles
    from millrace.execution.url_outputs import OutputUploads
    from millrace.planning.run_plan import RunPlan


def check_urls(job: JobSpec) -> None:
    """Check that the URLs of a command are usable and hold no password, as they are written to logs.

    Raises:
        RefusedError: One is unusable, or may hold a password.
    """
    from millrace.adapters import registry
    from millrace.core import replica_rules

    replica_rules.check_url_arguments(job.command[1:], registry.has_adapter(job.known_as or job.command[0]))
    replica_rules.check_url_arguments((*job.input, *job.shared, *job.output), known_tool=True)


def find_outbox(job: JobSpec, cwd: Path) -> OutputUploads | None:
    """Return the outputs of the command that go to URLs; None: there are none.

    Raises:
        RefusedError: One cannot be written.
    """
    from millrace.core import replica_rules

    check_urls(job)
    if not replica_rules.has_url_arguments((*job.command[1:], *job.output)):
        return None
    from millrace.execution.url_outputs import OutputUploads

    return OutputUploads(job, cwd) or None


def plan_with_urls(
    job: JobSpec, cwd: Path, environ: Mapping[str, str], *, apart: bool, launched: bool = False
) -> tuple[RunPlan, UrlFiles | None]:
    """Fetch the files that a command names by URLs, then plan it.

    Args:
        apart: Leave database volumes in HDFS, one for each fragment, to the nodes that search them.
        launched: See ``millrace.planning.run_plan.make_plan``.

    Returns:
        The plan, and the fetched files, in use until closed; None: the command names no URL.

    Raises:
        MillraceError: The command cannot be planned, or a file is missing, unreadable or too large for the cache.
    """
    from millrace.planning import run_plan as planner

    behind = _open_url_files(job, cwd, apart=apart and job.fragment_size == (0, 0))
    made = planner.make_plan(job, cwd, environ, launched=launched, view=behind.view if behind else None)
    if behind and behind.view and behind.view.later and not made.use.n_fragments:
        behind.close()  # the database cannot be searched volume by volume
        behind = _open_url_files(job, cwd, apart=False)
        made = planner.make_plan(job, cwd, environ, launched=launched, view=behind.view if behind else None)
    return made, behind


def _open_url_files(job: JobSpec, cwd: Path, *, apart: bool) -> UrlFiles | None:
    """Fetch the files that a command names by URLs; None: it names none."""
    from millrace.core import replica_rules

    check_urls(job)
    if not replica_rules.has_url_arguments((*job.command[1:], *job.input, *job.shared, *job.output)):
        return None
    from millrace.execution.url_inputs import UrlFiles  # few commands have URLs, and it imports much

    def print_message(text: str) -> None:
        if job.verbosity >= 0:
            click.echo(f"millrace: {text}", err=True)

    return UrlFiles(job, cwd, print_message, apart=apart)
