"""The check of a finished run: its files are compared with what it has read and written, and random batches run again.

For these a run is resumed that has all other results: that of the run directory, with links to its journals. So every
batch of the input is compared with its checksum, and the tool runs as it would in a resume. Nothing of the checked run
is changed.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import CorruptError, ExitCode, RefusedError
from millrace.core.job import JobSpec
from millrace.core.replica_rules import has_url_arguments
from millrace.core.tasks import CommittedRecords
from millrace.core.text_format import format_count, format_records
from millrace.core.tool_use import OutputUse, ToolUse, UserCommand
from millrace.execution import plan_execution
from millrace.execution.output_verifier import compare_output
from millrace.extensions.provenance.journaled_run import JournaledRun, describe_changed_files, make_user_command
from millrace.host import core_allocation
from millrace.host.permissions import find_trust_problem
from millrace.launch.supervisor_link import SupervisorLink
from millrace.output import inconsistent_results
from millrace.output.inconsistent_results import InconsistentResults
from millrace.output.journal_gather import gather_output
from millrace.output.output_parts import select_effective_tasks
from millrace.planning import dependency_files, folder_view, result_fingerprint, work_dir_location
from millrace.planning.run_plan import RunPlan
from millrace.report.event_log import EventLog
from millrace.report.events import CheckEvent
from millrace.rundir.checksummed_json import encode_checksummed
from millrace.rundir.paths import RunDir, RunManifest
from millrace.scheduler.output_differences import MismatchedOutput, format_line

#: Records ``[first, last)``.
Extent = tuple[int, int]

#: Bytes that are compared at a time.
BLOCK_BYTES = 1 << 20


class CheckedSample(msgspec.Struct, frozen=True):
    """What a check has found equal."""

    #: Extents of the batches that were computed again, and their number in the run.
    extents: Sequence[Extent]
    n_batches: int
    #: A line about each output.
    outputs: Sequence[str]


def check_run(
    run: JournaledRun, n_samples: int, slots: int | None, environ: Mapping[str, str], say: Callable[[str], None]
) -> CheckedSample:
    """Check a finished run; what is found equal is noted in its event log, if that can be written.

    Args:
        n_samples: Number of batches to compute again, of those that are there.
        slots: Tool processes side by side; None: the usable cores.

    Raises:
        RefusedError: The run cannot be checked here.
        CorruptError: A file has changed, or the tool has given other bytes.
    """
    refuse_uncheckable_run(run)
    command = make_user_command(run, environ)
    if changed := describe_changed_files(run, command):
        raise CorruptError(
            "not what the run has read:\n" + "\n".join(f"  {each}" for each in changed),
            "with the files as they were, the same check compares the results",
        )
    if words := result_fingerprint.describe_changed_variables(run.manifest.environ, command.environ):
        say(words)
    outputs = [line for number, _ in enumerate(run.manifest.use.outputs) for line in compare_output_file(run, number)]
    chosen = choose_batches(run.effective, n_samples)
    if chosen:
        say(
            f"computing {format_count(len(chosen), 'batch')} again: {', '.join(format_records(*each) for each in chosen)}"
        )
        compute_again(run, chosen, command, slots)
    found = CheckedSample(chosen, len(list_comparable(run.effective)), outputs)
    _note_check(run, found)
    return found


def refuse_uncheckable_run(run: JournaledRun) -> None:
    """Check that the command of a run may be, and can be, run here.

    Raises:
        RefusedError: It may or can not.
    """
    manifest, folder = run.manifest, run.rundir.path
    if why := find_trust_problem(folder):
        raise RefusedError(f"{folder}: {why}, and the check runs the command that is in it", "copy it, if you trust it")
    if not run.cwd.is_dir():
        raise RefusedError(f"{run.cwd}: is not there, where the command was run", "the check needs its files there")
    if has_url_arguments(manifest.argv[1:]):
        raise RefusedError(
            "the command names files by URLs, which are not fetched again", "check a run on copies of them"
        )
    if any(name.startswith("program on ") for name in manifest.fingerprints):
        raise RefusedError("the run was on several architectures", "compare the outputs of two runs instead")
    if any(item.path == "-" for item in manifest.use.inputs) and not _has_standard_input():
        raise RefusedError("the input of the run came on standard input", "give it again: millrace verify RUN < INPUT")


def _has_standard_input() -> bool:
    return not os.isatty(0) and os.fstat(0).st_rdev != os.stat(os.devnull).st_rdev


def choose_batches(tasks: Sequence[CommittedRecords], n_samples: int) -> list[Extent]:
    """Choose random batches among those that have a result, in input order."""
    there = list_comparable(tasks)
    return sorted(random.sample(there, min(n_samples, len(there))))


def list_comparable(tasks: Sequence[CommittedRecords]) -> list[Extent]:
    """Return the extents of the batches that have a result."""
    return [(task.first, task.last) for task in tasks if task.blocks and not task.quarantined]


def compare_output_file(run: JournaledRun, number: int) -> list[str]:
    """Compare an output with the journals; return a line that says so, or why it was not; none for outputs of many files.

    Raises:
        CorruptError: It is not what the run has written.
    """
    output, path = run.manifest.use.outputs[number], run.find_output(number)
    if output.layout != "file":
        return []
    if path is None or not path.is_file():
        where = "went to standard output" if path is None else "is not there any more"
        return [f"{path or output.name}: {where}, and was not compared"]
    receiving, sending = os.pipe()
    comparer = FileComparer(path, receiving)
    comparer.start()
    try:
        gather_output(run.rundir.path, output.name, f"/proc/self/fd/{sending}", ignore_errors=False)
    finally:
        os.close(sending)
        comparer.join()
    if comparer.error:
        raise comparer.error
    if comparer.difference:
        raise CorruptError(
            f"{path}: is not what the run has written: {comparer.difference}",
            f"millrace gather {run.rundir.path} --stream {output.name} -o FILE writes it again",
        )
    return [f"{path}: {comparer.size:,} bytes, as the run has written them"]


class FileComparer(threading.Thread):
    """A thread that compares a file with the bytes of a pipe, up to the end of both.

    Args:
        receiving: The end of the pipe from which to read; is closed at the end.
    """

    def __init__(self, path: Path, receiving: int) -> None:
        super().__init__(name="compare", daemon=True)
        self._path, self._receiving = path, receiving
        #: Number of equal bytes.
        self.size = 0
        #: The first difference, in words; empty: none.
        self.difference = ""
        self.error: OSError | None = None

    def run(self) -> None:
        """Compare; read the pipe to its end in any case, so that its writer is not stopped."""
        with open(self._receiving, "rb") as wanted:
            try:
                with self._path.open("rb") as found:
                    self._compare_files(wanted.read, found.read)
            except OSError as error:
                self.error = error
            while wanted.read(BLOCK_BYTES):
                pass

    def _compare_files(self, read_wanted: Callable[[int], bytes], read_found: Callable[[int], bytes]) -> None:
        n_lines = 0
        while True:
            was, is_now = read_wanted(BLOCK_BYTES), read_found(BLOCK_BYTES)
            if was != is_now:
                at = next(
                    (n for n, (a, b) in enumerate(zip(was, is_now, strict=False)) if a != b), min(len(was), len(is_now))
                )
                line = n_lines + was[:at].count(b"\n") + 1
                end = " (it ends there)" if at == len(is_now) else " (the run wrote no more)" if at == len(was) else ""
                self.difference = f"first at byte {self.size + at + 1}, in line {line}{end}"
                return
            if not was:
                return
            self.size += len(was)
            n_lines += was.count(b"\n")


def compute_again(run: JournaledRun, chosen: Sequence[Extent], command: UserCommand, slots: int | None) -> None:
    """Run the tool on some batches again, and compare what it writes.

    Raises:
        CorruptError: It writes other bytes.
        MillraceError: It could not be run, or an input differs from the bytes that the run has read.
    """
    beside = run.rundir.path.resolve().parent  # where journals can be linked, and need not be copied
    with tempfile.TemporaryDirectory(
        prefix=".millrace-verify-", dir=beside if os.access(beside, os.W_OK) else None
    ) as name:
        plan, rundir = prepare_resume(run, chosen, command, slots, Path(name))
        before = rundir.list_journals()
        finished = plan_execution.run_plan(plan, SupervisorLink({}))
        if finished.code not in (ExitCode.DONE, ExitCode.QUARANTINED):
            raise CorruptError(f"the batches could not be computed again: {finished.text}")
        journals = [path for path in rundir.list_journals() if path not in before]
        new = [task for path in journals for task in _core.scan(path, True).tasks]
        for extent in join_adjacent(chosen):
            _compare_batch(run, extent, select_effective_tasks(new), plan)


def prepare_resume(
    run: JournaledRun, chosen: Sequence[Extent], command: UserCommand, slots: int | None, scratch: Path
) -> tuple[RunPlan, RunDir]:
    """Make a run directory in which all but the chosen batches are done, and the plan that resumes it.

    Its outputs lie in ``scratch``, or nowhere.
    """
    manifest, rundir = run.manifest, RunDir(scratch / "run")
    use = msgspec.structs.replace(
        manifest.use, outputs=tuple(_redirect_output(each, scratch / "outputs") for each in manifest.use.outputs)
    )
    n_slots = slots or max(1, core_allocation.count_usable_cores(command.environ)[0] // max(1, use.threads))
    job = JobSpec(
        command=manifest.argv, slots=n_slots, record_start=manifest.record_start, record_end=manifest.record_end,
        keep_run_dir=True, verify=0.0, verbosity=-1, progress="none", max_quarantined="100%", run_dir=str(rundir.path),
    )  # fmt: skip
    place = work_dir_location.choose_work_place("", n_slots, run.cwd)
    place, unseen = work_dir_location.choose_place_with_view(place, run.cwd, fixed=False)
    plan = RunPlan(
        job=job, command=command, use=use, slots=n_slots, run_dir=rundir.path, work_place=place.path,
        fingerprints=manifest.fingerprints, notes=(), world=dependency_files.stat_run_files(use, command),
        view=folder_view.describe_folder_view(use, unseen, 0.0), listed=False,
    )  # fmt: skip
    rundir.path.mkdir()
    names = link_journals(run.rundir, rundir)
    world = dependency_files.digest_file_states(use, command)
    forms = {names[name]: form for name, form in manifest.forms.items() if name in names}
    kept = msgspec.structs.replace(manifest, use=_strip_destinations(use), world=world, forms=forms)
    _write_dropped_tasks(run, chosen, names, rundir, kept)
    rundir.write_manifest(kept)
    return plan, rundir


def _redirect_output(output: OutputUse, folder: Path) -> OutputUse:
    """Return an output that does not touch the user's files."""
    if output.layout == "file":
        return msgspec.structs.replace(output, to=os.devnull)
    if output.layout == "record":
        return msgspec.structs.replace(output, path=f"{folder}/{output.path.lstrip('/')}")
    return msgspec.structs.replace(output, to=str(folder / output.name))


def _strip_destinations(use: ToolUse) -> ToolUse:
    return msgspec.structs.replace(
        use, outputs=tuple(msgspec.structs.replace(each, to="", part="") for each in use.outputs)
    )


def link_journals(source: RunDir, dest: RunDir) -> dict[str, str]:
    """Link or copy the journals of a run into another run directory, as those of earlier starts; return their names there.

    A journal of an earlier start is never written again.
    """
    names = {}
    for number, path in enumerate(source.list_journals(), 1):
        link = dest.get_rank_journal(number, 0)
        try:
            os.link(path, link)
        except OSError:
            shutil.copyfile(path, link)
        names[path.name] = link.name
    return names


def _write_dropped_tasks(
    run: JournaledRun, chosen: Sequence[Extent], names: Mapping[str, str], rundir: RunDir, manifest: RunManifest
) -> None:
    """Note all results of the chosen batches as ones that do not count, besides those of the run itself."""
    earlier = inconsistent_results.read_inconsistent_places(run.rundir, manifest.run_id)
    dropped = {
        inconsistent_results.locate_task(task)
        for task in run.committed
        if task.blocks and any(task.first < last and first < task.last for first, last in chosen)
    }
    places = tuple((names[journal], offset, checksum) for journal, offset, checksum in sorted(earlier | dropped))
    rundir.unfit_results.write_bytes(encode_checksummed(InconsistentResults(run_id=manifest.run_id, places=places)))


def join_adjacent(extents: Sequence[Extent]) -> list[Extent]:
    """Join extents that follow each other: a resume may cut them elsewhere.

    >>> join_adjacent([(0, 2), (2, 5), (7, 8)])
    [(0, 5), (7, 8)]
    """
    found = list[Extent]()
    for first, last in extents:
        if found and found[-1][1] == first:
            first = found.pop()[0]
        found.append((first, last))
    return found


def _compare_batch(run: JournaledRun, extent: Extent, new: Sequence[CommittedRecords], plan: RunPlan) -> None:
    """Compare batches that follow each other with what was computed again of their records.

    Raises:
        CorruptError: The bytes differ, or a record could not be computed.
    """
    first, last = extent
    then = [((task.first, task.last), task) for task in run.effective if first <= task.first < last]
    now = [((task.first, task.last), task) for task in new if first <= task.first < last]
    if any(task.quarantined for _, task in now) or sum(end - begin for (begin, end), _ in now) != last - first:
        raise CorruptError(f"{format_records(*extent)}: could not be computed again: the tool fails on them")
    for number, output in enumerate(run.manifest.use.outputs):
        if output.layout == "file":
            if found := compare_output(number, output, then, now):
                raise _build_difference_error(extent, found)
        elif _list_named_files(number, then) != _list_named_files(number, now, plan.use.outputs[number], output):
            raise CorruptError(f"{output.path}: {format_records(*extent)}: the tool has written other files", DIFFERENT)


#: Hint for results that differ.
DIFFERENT = (
    "what it depends on has changed since: its environment, a library, the machine, or a file that no argument names; "
    "or it is not the same twice (a date, random numbers)"
)


def _build_difference_error(extent: Extent, found: MismatchedOutput) -> CorruptError:
    return CorruptError(
        f"{format_records(*extent)}: computed again, the tool writes other bytes\n"
        f"  {found.output}: first in line {found.difference.line + 1} of what these records give\n"
        f"    the run:   {format_line(found.difference.then)}\n"
        f"    run again: {format_line(found.difference.now)}",
        DIFFERENT,
    )


def _list_named_files(
    number: int,
    tasks: Sequence[tuple[Extent, CommittedRecords]],
    there: OutputUse | None = None,
    named: OutputUse | None = None,
) -> dict[str, tuple[int, int]]:
    """Return length and checksum of each file, by its name; ``there`` is where ``named`` was redirected to."""
    moved = len(there.path) - len(named.path.lstrip("/")) if there and named and named.layout == "record" else 0
    return {
        os.fsdecode(block.name)[moved:].lstrip("/"): (block.length, block.crc32c)
        for _, task in tasks
        for block in task.blocks
        if block.stream == number
    }


def _note_check(run: JournaledRun, found: CheckedSample) -> None:
    """Add an event to the log of the run, if it may be written; a crate stays as it is."""
    if run.crate_outputs or not found.extents or not os.access(run.rundir.events, os.W_OK):
        return
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    n_records = sum(last - first for first, last in found.extents)
    with EventLog(run.rundir.events) as log:
        log.write(CheckEvent(time=now, batches=len(found.extents), records=n_records), 0.0)
