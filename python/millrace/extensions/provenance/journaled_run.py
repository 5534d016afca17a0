"""A finished run with its journals: in its run directory, or in a crate that was made of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import CorruptError, RefusedError
from millrace.core.job import JobSpec
from millrace.core.tasks import CommittedRecords
from millrace.core.tool_use import OutputUse, UserCommand
from millrace.output import inconsistent_results
from millrace.output.output_parts import drop_unframed_tasks, select_effective_tasks
from millrace.output.output_streams import resolve_final_path
from millrace.planning import result_fingerprint, run_identity
from millrace.rundir import run_history
from millrace.rundir.paths import RunDir, RunManifest

#: File that makes a folder a crate, and the folders in it with the run and with its outputs.
METADATA, CRATE_RUN, CRATE_OUTPUTS = "ro-crate-metadata.json", "run", "outputs"


class JournaledRun(msgspec.Struct, frozen=True):
    """A finished run whose run directory was kept."""

    rundir: RunDir
    manifest: RunManifest
    #: All tasks in its journals, and those of them that are the output, in input order.
    committed: Sequence[_core.TaskRef]
    effective: Sequence[CommittedRecords]
    #: The folder with its outputs, if it is in a crate.
    crate_outputs: Path | None = None

    @property
    def cwd(self) -> Path:
        """The folder in which the command was run."""
        return Path(self.manifest.cwd)

    def find_output(self, number: int) -> Path | None:
        """Return where an output is that is one file; None: it went to standard output, or is many files."""
        output = self.manifest.use.outputs[number]
        if output.layout != "file":
            return None
        if self.crate_outputs:
            return self.crate_outputs / name_output_copy(number, output)
        return resolve_final_path(output, self.cwd)


def name_output_copy(number: int, output: OutputUse) -> str:
    """Return the name of the copy of an output in a crate; no two outputs have the same.

    >>> name_output_copy(0, OutputUse(name="out", path="a/hits.tsv")), name_output_copy(1, OutputUse(name="stdout", path="-"))
    ('1-hits.tsv', '2-stdout')
    """
    return f"{number + 1}-{os.path.basename(output.path) if output.path != '-' else output.name}"


def open_journaled_run(name: str, environ: Mapping[str, str]) -> JournaledRun:
    """Read the journals of a finished run.

    Args:
        name: A crate, a run directory, or an output beside it.

    Raises:
        RefusedError: There is no such run, its run directory is gone, or it is not finished.
        CorruptError: A journal is damaged.
    """
    crate = Path(name)
    is_crate = (crate / METADATA).is_file()
    folder = crate / CRATE_RUN if is_crate else run_history.resolve_run_dir(name, environ)
    if not RunDir(folder).has_run() and not is_crate:
        folder, ended = run_history.find_run_logs(name, environ)
        if ended:
            raise RefusedError(
                f"{name}: the run directory {ended.run_dir} is gone, and with it the results to compare with",
                "--keep-run-dir keeps it, and a crate has a copy of it (millrace report RUN --ro-crate DIR)",
            )
    rundir = RunDir(folder)
    manifest = rundir.read_manifest()
    if not rundir.read_complete(manifest):
        raise RefusedError(f"{folder}: the run is not finished", "type its command again, which goes on with it")
    try:
        found = [task for path in rundir.list_journals() for task in _read_journal(path)]
    except (OSError, _core.CorruptJournal) as error:
        raise CorruptError(str(error), "the results of the run cannot be compared with any more") from error
    counting = inconsistent_results.drop_inconsistent_tasks(rundir, manifest.run_id, found)
    effective = select_effective_tasks(drop_unframed_tasks(counting, manifest.frame_forms))
    return JournaledRun(rundir, manifest, found, effective, crate / CRATE_OUTPUTS if is_crate else None)


def _read_journal(path: Path) -> list[_core.TaskRef]:
    scan = _core.scan(path, True)
    for offset, problem, _ in scan.damage:
        raise CorruptError(
            f"{path}: byte {offset}: {problem}", "the results of the run cannot be compared with any more"
        )
    return scan.tasks


def make_user_command(run: JournaledRun, environ: Mapping[str, str]) -> UserCommand:
    """Return the command of a run with the environment of this process."""
    manifest = run.manifest
    return UserCommand(argv=manifest.argv, cwd=run.cwd, environ=dict(environ), exe=Path(manifest.exe))


def describe_changed_files(run: JournaledRun, command: UserCommand) -> list[str]:
    """Describe inputs, databases and the program that are not what the run has read, in words; empty: none."""
    manifest = run.manifest
    if not os.access(command.exe, os.X_OK):
        return [f"program {command.exe}: is gone"]
    now = result_fingerprint.fingerprint_run(JobSpec(command=manifest.argv), manifest.use, command)
    pairs = run_identity.pair_fingerprints(manifest, msgspec.structs.replace(manifest, fingerprints=now))
    # What comes through a pipe is compared batch by batch.
    unknown = result_fingerprint.STANDARD_INPUT
    return [f"{name}: was {was}, now {is_now}" for name, was, is_now in pairs if was != is_now and name != unknown]
