"""The run that regenerates a result from hits: only its finishes are left to do.

The hits are written into the journal of a run as the result of the search of the whole database. Such a run then
executes the user's own command on the candidates, by the code of all runs, on all slots, and is resumed like any other.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from millrace import __version__, _core
from millrace.errors import ExitCode, RefusedError
from millrace.job import Job
from millrace.launch.supervisor_link import Supervision
from millrace.model import Command, DatabaseArg, InputArg, OutputArg, Token, ToolUse
from millrace.pack.codec import Codec, NotPackable
from millrace.pack.queries import QueryBatch
from millrace.pack.recipe import MOST_OUTPUTS, Database
from millrace.plan import plan as planner
from millrace.plan import world
from millrace.plan.in_fragments import with_programs
from millrace.plan.plan import Plan
from millrace.plan.privacy import folder_mode
from millrace.report.summary import Summary
from millrace.rundir import VERSION, Manifest, RunDir
from millrace.session import carry_out
from millrace.task_numbers import number_of
from millrace.tasks import Search
from millrace.tools import registry
from millrace.tools.base import Fragmenting
from millrace.words import shown

#: Names in the folder of a regeneration.
QUERIES, RUN = "queries", "run"

#: The only path that an argument may name.
NOWHERE = "/dev/null"

#: An option before a path in the same argument.
_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9_-]*=?")


@dataclass(frozen=True)
class Settings:
    """The user's options for a regeneration."""

    environ: Mapping[str, str]
    slots: int | None = None
    work_dir: str = ""


def without_outputs(plan: Plan) -> Plan:
    """Return ``plan`` with outputs that stay in the journal."""
    outputs = tuple(msgspec.structs.replace(use, to=os.devnull) for use in plan.use.outputs)
    use, job = msgspec.structs.replace(plan.use, outputs=outputs), msgspec.structs.replace(plan.job, keep_run_dir=True)
    return msgspec.structs.replace(plan, use=use, job=job)


def output(index: int) -> str:
    """Return the name of an output in the folder of a regeneration."""
    return f"out{index}"


def command_line(tool: str, arguments: Sequence[Token], database: str) -> tuple[str, ...]:
    """Build the command of a regeneration, with fixed file names.

    Raises:
        RefusedError: An argument is not allowed in a pack.
    """
    words = [tool]
    for token in arguments:
        match token:
            case InputArg(index=0, prefix=prefix) if is_option(prefix):
                words.append(prefix + QUERIES)
            case OutputArg(index=index, prefix=prefix, cut="") if 0 <= index < MOST_OUTPUTS and is_option(prefix):
                words.append(prefix + output(index))
            case DatabaseArg(prefix=prefix) if is_option(prefix):
                words.append(prefix + database)
            case str() as text if is_plain(text):
                words.append(text)
            case _:
                what = repr(token) if isinstance(token, str) else "the place of a file that it does not have"
                raise RefusedError(
                    f"the pack has an argument that belongs to no such command: {shown(what)}", "do not unpack it"
                )
    return tuple(words)


def is_option(prefix: str) -> bool:
    """Tell whether the text before a path in an argument is empty or an option: other text would change the path.

    >>> [is_option(prefix) for prefix in ("", "-o", "--tblout=", "/etc/", "../", "-o../", "~", "-", "a=")]
    [True, True, True, False, False, False, False, False, False]
    """
    return not prefix or _OPTION.fullmatch(prefix) is not None


def check_paths(use: ToolUse) -> None:
    """Check that a regeneration reads and writes only file names chosen by Millrace, whatever its arguments are.

    Raises:
        RefusedError: Another file would be read or written.
    """
    ours = {NOWHERE, "-", *map(output, range(MOST_OUTPUTS))}
    wrong = [each.path for each in use.inputs if each.path != QUERIES]
    wrong += [each.path for each in use.outputs if each.path not in ours]
    if wrong:
        raise RefusedError(
            f"the command of the pack reads or writes a file by a name that it may not have: {shown(wrong[0])}",
            "do not unpack it",
        )


def is_plain(text: str) -> bool:
    """Tell whether an argument cannot name a file outside the folder of a regeneration, and is printed unchanged.

    >>> [is_plain(text) for text in ("-evalue", "1e-5", "/etc/passwd", "../x", "/dev/null", "~x", "a\\0b", "a\\rb")]
    [True, True, False, False, True, False, False, False]
    """
    return text == NOWHERE or not ("/" in text or ".." in text or text.startswith("~") or shown(text) != text)


def plan(
    folder: Path, queries: Path, argv: Sequence[str], codec: Codec, settings: Settings, like: Database | None = None,
) -> Plan:  # fmt: skip
    """Plan a regeneration in the existing ``folder``.

    Args:
        like: Database whose names and numbers the result must have.

    Raises:
        NotPackable: The database cannot be searched in fragments.
        MillraceError: The command is refused, or a file is missing.
    """
    _link_queries(folder / QUERIES, queries)
    job = Job(
        command=tuple(argv), run_dir=str(folder / RUN), work_dir=settings.work_dir, slots=settings.slots, verify=0.0,
        verbosity=-1, progress="none", max_quarantined="0",
    )  # fmt: skip
    made = planner.make(job, folder, settings.environ)
    check_paths(made.use)
    # Standard output would be that of this process.
    outputs = tuple(
        msgspec.structs.replace(each, path=output(index) if each.path == "-" else each.path)
        for index, each in enumerate(made.use.outputs)
    )
    use = in_one_fragment(msgspec.structs.replace(made.use, outputs=outputs), made.command)
    if like and use.fragmented:
        use = msgspec.structs.replace(use, fragmented=codec.like(use.fragmented, like))
    return msgspec.structs.replace(made, use=use, listed=False)


def _link_queries(link: Path, queries: Path) -> None:
    """Link ``link`` to the queries, or copy them with their times on a filesystem without links."""
    link.unlink(missing_ok=True)
    try:
        link.symlink_to(queries.resolve())
    except OSError:
        shutil.copy2(queries, link)


def search(argv: Sequence[str], cwd: Path, folder: Path, settings: Settings) -> Plan:
    """Run a command on all slots, with its run directory in ``folder``; return its plan.

    Raises:
        MillraceError: The run was not completed.
    """
    job = Job(
        command=tuple(argv), run_dir=str(folder / "search"), work_dir=settings.work_dir, slots=settings.slots, verbosity=-1,
        progress="none", max_quarantined="0",
    )  # fmt: skip
    made = msgspec.structs.replace(planner.make(job, cwd, settings.environ), listed=False)
    run(made)
    return made


def in_one_fragment(use: ToolUse, command: Command) -> ToolUse:
    """Return ``use`` with the whole database as its only fragment.

    Raises:
        NotPackable: The command cannot search candidates.
    """
    adapter = registry.find(command.argv[0])
    if not isinstance(adapter, Fragmenting):
        raise NotPackable(f"{command.argv[0]} does not search candidates")
    plain = msgspec.structs.replace(use, fragmented=None)
    if why_not := adapter.fragmentable(plain, command).why_not:
        raise NotPackable(why_not)
    return with_programs(adapter.fragment(plain, command, (1,)), command)


def is_begun(plan: Plan) -> bool:
    """Tell whether an earlier start has written the hits, with the same inputs; else remove its run directory."""
    rundir = RunDir(plan.run_dir)
    if not rundir.holds_a_run():
        return False
    if rundir.read_manifest().fingerprints == plan.fingerprints:
        return True
    shutil.rmtree(rundir.path)
    return False


def put(plan: Plan, batches: Iterable[tuple[QueryBatch, bytes]]) -> None:
    """Make a run directory in which the searches of ``batches`` are done; see ``Codec.found``."""
    rundir = RunDir(plan.run_dir)
    rundir.path.mkdir(folder_mode(plan), exist_ok=True)
    run_id = os.urandom(16)
    rundir.journal.unlink(missing_ok=True)  # of a start that was killed here
    _found(_core.Journal.create(rundir.journal, run_id), batches)
    _manifest(plan, run_id)


def put_more(plan: Plan, batches: Iterable[tuple[QueryBatch, bytes]]) -> None:
    """Add the searches of ``batches`` to a run directory, except those that it has; its file of queries has grown."""
    rundir = RunDir(plan.run_dir)
    manifest = rundir.read_manifest() if rundir.holds_a_run() else None
    if manifest is None or _but_queries(manifest.fingerprints) != _but_queries(plan.fingerprints):
        shutil.rmtree(rundir.path, ignore_errors=True)
        put(plan, batches)
        return
    run_id = bytes.fromhex(manifest.run_id)
    journal, scan = _core.Journal.open(rundir.journal, run_id)
    there = {(task.first, task.last) for task in scan.tasks if task.fragment == number_of(Search(1))}
    _found(journal, ((batch, block) for batch, block in batches if (batch.first, batch.last) not in there))
    rundir.complete.unlink(missing_ok=True)
    _manifest(plan, run_id)


def _but_queries(fingerprints: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in fingerprints.items() if not name.startswith("input ")}


def _found(journal: _core.Journal, batches: Iterable[tuple[QueryBatch, bytes]]) -> None:
    for batch, block in batches:
        journal.found(batch.first, batch.last, number_of(Search(1)), [batch.digest], block)
    journal.sync(journal.end)


def _manifest(plan: Plan, run_id: bytes) -> None:
    """Write the manifest. This is the last step: from here on the run exists, and is resumed."""
    command = plan.command
    RunDir(plan.run_dir).write_manifest(
        Manifest(
            version=VERSION, millrace=__version__, run_id=run_id.hex(), argv=command.argv, cwd=str(command.cwd),
            exe=str(command.exe), use=plan.use, record_start="", record_end="", fingerprints=plan.fingerprints,
            world=world.identity(plan.use, command),
        )
    )  # fmt: skip


def run(plan: Plan) -> list[Path]:
    """Complete the run and return the paths of its outputs.

    Raises:
        MillraceError: The run was not completed.
    """
    measured(plan)
    return written(plan)


def written(plan: Plan) -> list[Path]:
    """Return the outputs of a run that is done; make those optional ones that it has not."""
    paths = [plan.command.cwd / each.path for each in plan.use.outputs]
    for path in paths:
        path.touch()
    return paths


def measured(plan: Plan) -> Summary | None:
    """Complete the run and return its summary.

    Raises:
        MillraceError: The run was not completed.
    """
    finished = carry_out.run(plan, Supervision({}))
    if finished.code != ExitCode.DONE:
        raise NotPackable(f"the result could not be regenerated: {finished.text}", f"{plan.run_dir} has the details")
    return finished.summary
