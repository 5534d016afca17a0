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
from typing import NamedTuple

import msgspec

from millrace import __version__, _core
from millrace.adapters import registry
from millrace.adapters.adapter_base import FragmentingAdapter
from millrace.core.errors import ExitCode, RefusedError
from millrace.core.job import JobSpec
from millrace.core.tasks import SearchTask, WholeTask, encode_task_kind
from millrace.core.text_format import escape_unprintable
from millrace.core.tool_use import ArgumentToken, DatabaseArg, InputArg, OutputArg, ToolUse, UserCommand
from millrace.execution import plan_execution
from millrace.extensions.pack.layout import MAX_OUTPUTS, PackedDatabase
from millrace.extensions.pack.result_codec import NotPackableError, QueryBatch, ResultCodec
from millrace.launch.supervisor_link import SupervisorLink
from millrace.planning import dependency_files
from millrace.planning import run_plan as planner
from millrace.planning.fragment_planning import resolve_fragment_programs
from millrace.planning.run_dir_access import compute_run_dir_mode
from millrace.planning.run_plan import RunPlan
from millrace.report.summary import RunSummary
from millrace.rundir.paths import VERSION, RunDir, RunManifest

#: Names in the folder of a regeneration.
QUERIES, RUN = "queries", "run"

#: The only path that an argument may name.
NOWHERE = "/dev/null"

#: An option before a path in the same argument.
_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9_-]*=?")


@dataclass(frozen=True)
class RegenerationSettings:
    """The user's options for a regeneration."""

    environ: Mapping[str, str]
    slots: int | None = None
    work_dir: str = ""


def keep_outputs_in_journal(plan: RunPlan) -> RunPlan:
    """Return ``plan`` with outputs that stay in the journal."""
    outputs = tuple(msgspec.structs.replace(use, to=os.devnull) for use in plan.use.outputs)
    use, job = msgspec.structs.replace(plan.use, outputs=outputs), msgspec.structs.replace(plan.job, keep_run_dir=True)
    return msgspec.structs.replace(plan, use=use, job=job)


def get_output_name(index: int, key: str = "") -> str:
    """Return the name of an output in the folder of a regeneration.

    Args:
        key: Makes the names of this regeneration unique, so that they can be found in its outputs; empty: they are not.
    """
    return f"out{index}{key}"


def build_command_line(tool: str, arguments: Sequence[ArgumentToken], database: str, key: str = "") -> tuple[str, ...]:
    """Build the command of a regeneration, with fixed file names.

    Args:
        key: See ``get_output_name``.

    Raises:
        RefusedError: An argument is not allowed in a pack.
    """
    words = [tool]
    for token in arguments:
        match token:
            case InputArg(index=0, prefix=prefix) if is_option_prefix(prefix):
                words.append(prefix + QUERIES + key)
            case OutputArg(index=index, prefix=prefix, cut="") if 0 <= index < MAX_OUTPUTS and is_option_prefix(prefix):
                words.append(prefix + get_output_name(index, key))
            case DatabaseArg(prefix=prefix) if is_option_prefix(prefix):
                words.append(prefix + database)
            case str() as text if is_plain_argument(text):
                words.append(text)
            case _:
                what = repr(token) if isinstance(token, str) else "the place of a file that it does not have"
                raise RefusedError(
                    f"the pack has an argument that belongs to no such command: {escape_unprintable(what)}",
                    "do not unpack it",
                )
    return tuple(words)


def is_option_prefix(prefix: str) -> bool:
    """Tell whether the text before a path in an argument is empty or an option: other text would change the path.

    >>> [is_option_prefix(prefix) for prefix in ("", "-o", "--tblout=", "/etc/", "../", "-o../", "~", "-", "a=")]
    [True, True, True, False, False, False, False, False, False]
    """
    return not prefix or _OPTION.fullmatch(prefix) is not None


def check_paths(use: ToolUse, key: str = "") -> None:
    """Check that a regeneration reads and writes only file names chosen by Millrace, whatever its arguments are.

    Args:
        key: See ``get_output_name``.

    Raises:
        RefusedError: Another file would be read or written.
    """
    ours = {NOWHERE, "-", *(get_output_name(index, key) for index in range(MAX_OUTPUTS))}
    wrong = [each.path for each in use.inputs if each.path != QUERIES + key]
    wrong += [each.path for each in use.outputs if each.path not in ours]
    if wrong:
        raise RefusedError(
            f"the command of the pack reads or writes a file by a name that it may not have: {escape_unprintable(wrong[0])}",
            "do not unpack it",
        )


def is_plain_argument(text: str) -> bool:
    """Tell whether an argument cannot name a file outside the folder of a regeneration, and is printed unchanged.

    >>> [is_plain_argument(text) for text in ("-evalue", "1e-5", "/etc/passwd", "../x", "/dev/null", "~x", "a\\0b", "a\\rb")]
    [True, True, False, False, True, False, False, False]
    """
    return text == NOWHERE or not (
        "/" in text or ".." in text or text.startswith("~") or escape_unprintable(text) != text
    )


def plan_regeneration_run(
    folder: Path, queries: Path, argv: Sequence[str], codec: ResultCodec, settings: RegenerationSettings, like: PackedDatabase | None = None,
    key: str = "",
) -> RunPlan:  # fmt: skip
    """Plan a regeneration in the existing ``folder``.

    Args:
        like: Database whose names and numbers the result must have.
        key: See ``get_output_name``.

    Raises:
        NotPackableError: The database cannot be searched in fragments.
        MillraceError: The command is refused, or a file is missing.
    """
    made = _plan_in_folder(folder, queries, argv, settings, key)
    use = treat_as_one_fragment(made.use, made.command)
    if like and use.fragmented:
        use = msgspec.structs.replace(use, fragmented=codec.adopt_packed_database(use.fragmented, like))
    return msgspec.structs.replace(made, use=use)


def _plan_in_folder(
    folder: Path, queries: Path, argv: Sequence[str], settings: RegenerationSettings, key: str = "", fragments: str = "auto",
) -> RunPlan:  # fmt: skip
    """Plan a command in the existing ``folder``, where it finds the queries and writes its outputs."""
    _link_queries(folder / (QUERIES + key), queries)
    job = JobSpec(
        command=tuple(argv), run_dir=str(folder / RUN), work_dir=settings.work_dir, slots=settings.slots, verify=0.0,
        verbosity=-1, progress="none", max_quarantined="0", fragments=fragments,
    )  # fmt: skip
    made = planner.make_plan(job, folder, settings.environ)
    check_paths(made.use, key)
    # Standard output would be that of this process.
    outputs = tuple(
        msgspec.structs.replace(each, path=get_output_name(index, key) if each.path == "-" else each.path)
        for index, each in enumerate(made.use.outputs)
    )
    return msgspec.structs.replace(made, use=msgspec.structs.replace(made.use, outputs=outputs), listed=False)


def plan_whole_search(folder: Path, queries: Path, argv: Sequence[str], settings: RegenerationSettings) -> RunPlan:
    """Plan the command of a regeneration in the existing ``folder``, with the whole database.

    Raises:
        MillraceError: The command is refused, or a file is missing.
    """
    return _plan_in_folder(folder, queries, argv, settings, fragments="1")


def _link_queries(link: Path, queries: Path) -> None:
    """Link ``link`` to the queries, or copy them with their times on a filesystem without links."""
    link.unlink(missing_ok=True)
    try:
        link.symlink_to(queries.resolve())
    except OSError:
        shutil.copy2(queries, link)


def run_search(argv: Sequence[str], cwd: Path, folder: Path, settings: RegenerationSettings) -> RunPlan:
    """Run a command on all slots, with its run directory in ``folder``; return its plan.

    Raises:
        MillraceError: The run was not completed.
    """
    job = JobSpec(
        command=tuple(argv), run_dir=str(folder / "search"), work_dir=settings.work_dir, slots=settings.slots, verbosity=-1,
        progress="none", max_quarantined="0",
    )  # fmt: skip
    made = msgspec.structs.replace(planner.make_plan(job, cwd, settings.environ), listed=False)
    run_regeneration(made)
    return made


def treat_as_one_fragment(use: ToolUse, command: UserCommand) -> ToolUse:
    """Return ``use`` with the whole database as its only fragment.

    Raises:
        NotPackableError: The command cannot search candidates.
    """
    adapter = registry.find_adapter(command.argv[0])
    if not isinstance(adapter, FragmentingAdapter):
        raise NotPackableError(f"{command.argv[0]} does not search candidates")
    plain = msgspec.structs.replace(use, fragmented=None)
    if why_not := adapter.examine_database(plain, command).why_not:
        raise NotPackableError(why_not)
    return resolve_fragment_programs(adapter.plan_fragments(plain, command, (1,)), command)


def has_current_hits(plan: RunPlan) -> bool:
    """Tell whether an earlier start has written the hits, with the same inputs; else remove its run directory."""
    rundir = RunDir(plan.run_dir)
    if not rundir.has_run():
        return False
    if rundir.read_manifest().fingerprints == plan.fingerprints:
        return True
    shutil.rmtree(rundir.path)
    return False


class BatchResult(NamedTuple):
    """The outputs of a batch of records that need not be computed."""

    first: int
    last: int
    #: Bytes and checksum of the batch.
    digest: tuple[int, int]
    #: Stream, name and bytes of each block.
    blocks: Sequence[tuple[int, bytes, bytes]]


def write_search_journal(
    plan: RunPlan, batches: Iterable[tuple[QueryBatch, bytes]], results: Iterable[BatchResult] = ()
) -> None:
    """Make a run directory in which the searches of ``batches`` are done, and ``results`` are there.

    See ``ResultCodec.format_search_blocks``.
    """
    rundir = RunDir(plan.run_dir)
    rundir.path.mkdir(compute_run_dir_mode(plan), exist_ok=True)
    run_id = os.urandom(16)
    rundir.journal.unlink(missing_ok=True)  # of a start that was killed here
    journal = _core.Journal.create(rundir.journal, run_id)
    for each in results:
        journal.append_task(each.first, each.last, encode_task_kind(WholeTask()), [each.digest], each.blocks)
    _append_search_blocks(journal, batches)
    _write_manifest(plan, run_id)


def extend_search_journal(plan: RunPlan, batches: Iterable[tuple[QueryBatch, bytes]]) -> None:
    """Add the searches of ``batches`` to a run directory, except those that it has; its file of queries has grown."""
    rundir = RunDir(plan.run_dir)
    manifest = rundir.read_manifest() if rundir.has_run() else None
    if manifest is None or _drop_query_fingerprints(manifest.fingerprints) != _drop_query_fingerprints(
        plan.fingerprints
    ):
        shutil.rmtree(rundir.path, ignore_errors=True)
        write_search_journal(plan, batches)
        return
    run_id = bytes.fromhex(manifest.run_id)
    journal, scan = _core.Journal.open(rundir.journal, run_id)
    there = {(task.first, task.last) for task in scan.tasks if task.fragment == encode_task_kind(SearchTask(1))}
    _append_search_blocks(
        journal, ((batch, block) for batch, block in batches if (batch.first, batch.last) not in there)
    )
    rundir.completion.unlink(missing_ok=True)
    _write_manifest(plan, run_id)


def _drop_query_fingerprints(fingerprints: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in fingerprints.items() if not name.startswith("input ")}


def _append_search_blocks(journal: _core.Journal, batches: Iterable[tuple[QueryBatch, bytes]]) -> None:
    for batch, block in batches:
        journal.append_task(batch.first, batch.last, encode_task_kind(SearchTask(1)), [batch.digest], [(0, b"", block)])
    journal.sync(journal.end)


def _write_manifest(plan: RunPlan, run_id: bytes) -> None:
    """Write the manifest. This is the last step: from here on the run exists, and is resumed."""
    command = plan.command
    RunDir(plan.run_dir).write_manifest(
        RunManifest(
            version=VERSION, millrace=__version__, run_id=run_id.hex(), argv=command.argv, cwd=str(command.cwd),
            exe=str(command.exe), use=plan.use, record_start=plan.job.record_start, record_end=plan.job.record_end,
            fingerprints=plan.fingerprints,
            world=dependency_files.digest_file_states(plan.use, command),
        )
    )  # fmt: skip


def run_regeneration(plan: RunPlan) -> list[Path]:
    """Complete the run and return the paths of its outputs.

    Raises:
        MillraceError: The run was not completed.
    """
    run_and_summarize(plan)
    return list_written_outputs(plan)


def list_written_outputs(plan: RunPlan) -> list[Path]:
    """Return the outputs of a run that is done; make those optional ones that it has not."""
    paths = [plan.command.cwd / each.path for each in plan.use.outputs]
    for path in paths:
        path.touch()
    return paths


def run_and_summarize(plan: RunPlan) -> RunSummary | None:
    """Complete the run and return its summary.

    Raises:
        MillraceError: The run was not completed.
    """
    finished = plan_execution.run_plan(plan, SupervisorLink({}))
    if finished.code != ExitCode.DONE:
        raise NotPackableError(
            f"the result could not be regenerated: {finished.text}", f"{plan.run_dir} has the details"
        )
    return finished.summary
