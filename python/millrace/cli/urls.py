"""URLs in a command: files fetched before planning, outputs sent at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.job import Job

if TYPE_CHECKING:
    from millrace.plan.plan import Plan
    from millrace.session.outbox import Outbox
    from millrace.session.urls import Named


def check(job: Job) -> None:
    """Check that the URLs of a command are usable and hold no password, as they are written to logs.

    Raises:
        RefusedError: One is unusable, or may hold a password.
    """
    from millrace import replicas
    from millrace.tools import registry

    replicas.check_named(job.command[1:], registry.knows(job.known_as or job.command[0]))
    replicas.check_named((*job.input, *job.shared, *job.output), known_tool=True)


def outbox_of(job: Job, cwd: Path) -> Outbox | None:
    """Return the outputs of the command that go to URLs; None: there are none.

    Raises:
        RefusedError: One cannot be written.
    """
    from millrace import replicas

    check(job)
    if not replicas.are_named((*job.command[1:], *job.output)):
        return None
    from millrace.session.outbox import Outbox

    return Outbox(job, cwd) or None


def plan(
    job: Job, cwd: Path, environ: Mapping[str, str], *, apart: bool, launched: bool = False
) -> tuple[Plan, Named | None]:
    """Fetch the files that a command names by URLs, then plan it.

    Args:
        apart: Leave database volumes in HDFS, one for each fragment, to the nodes that search them.
        launched: See ``millrace.plan.plan.make``.

    Returns:
        The plan, and the fetched files, in use until closed; None: the command names no URL.

    Raises:
        MillraceError: The command cannot be planned, or a file is missing, unreadable or too large for the cache.
    """
    from millrace.plan import plan as planner

    behind = _files_behind(job, cwd, apart=apart and job.fragment_size == (0, 0))
    made = planner.make(job, cwd, environ, launched=launched, view=behind.view if behind else None)
    if behind and behind.view and behind.view.later and not made.use.n_fragments:
        behind.close()  # the database cannot be searched volume by volume
        behind = _files_behind(job, cwd, apart=False)
        made = planner.make(job, cwd, environ, launched=launched, view=behind.view if behind else None)
    return made, behind


def _files_behind(job: Job, cwd: Path, *, apart: bool) -> Named | None:
    """Fetch the files that a command names by URLs; None: it names none."""
    from millrace import replicas

    check(job)
    if not replicas.are_named((*job.command[1:], *job.input, *job.shared, *job.output)):
        return None
    from millrace.session.urls import Named  # few commands have URLs, and it imports much

    def tell(text: str) -> None:
        if job.verbosity >= 0:
            click.echo(f"millrace: {text}", err=True)

    return Named(job, cwd, tell, apart=apart)
