"""URLs in a command: what is fetched before it can be planned, and what is sent when it is done."""

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
    """See that the URLs of a command can be used, and may be written down.

    Raises:
        RefusedError: One is of no use, or may hold a password.
    """
    from millrace import replicas
    from millrace.tools import registry

    replicas.check_named(job.command[1:], registry.knows(job.known_as or job.command[0]))
    replicas.check_named((*job.input, *job.shared, *job.output), known_tool=True)


def outbox_of(job: Job, cwd: Path) -> Outbox | None:
    """The outputs of the command that go to URLs; None: there are none.

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
    """Plan a command, once the files are here that it names by URLs.

    Args:
        apart: Leave volumes of databases in HDFS to the nodes that search them, where fragments are these.
        launched: As `millrace.plan.plan.make` has it.

    Returns:
        The plan, and the files, in use until they are closed; None: the command names none.

    Raises:
        MillraceError: It cannot be done, or a file is not there, cannot be read, or does not fit.
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
    from millrace import replicas

    check(job)
    if not replicas.are_named((*job.command[1:], *job.input, *job.shared, *job.output)):
        return None
    from millrace.session.urls import Named  # few commands do, and it imports much

    def tell(text: str) -> None:
        if job.verbosity >= 0:
            click.echo(f"millrace: {text}", err=True)

    return Named(job, cwd, tell, apart=apart)
