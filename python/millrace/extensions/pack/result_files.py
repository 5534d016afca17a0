"""Inputs of packing: the plan of the command that made a result, and its files.

A run directory that was kept can be packed without naming them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.adapters import registry
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.job import JobSpec
from millrace.core.replica_rules import has_url_arguments
from millrace.extensions.pack import result_codec
from millrace.host.permissions import find_trust_problem
from millrace.launch.mpi_environment import remove_mpi_variables
from millrace.output.journal_gather import gather_output
from millrace.planning import run_plan as planner
from millrace.planning.run_plan import RunPlan
from millrace.rundir.paths import RunDir, RunManifest


@dataclass(frozen=True)
class KeptRun:
    """The command of a run, and its outputs."""

    argv: tuple[str, ...]
    cwd: Path
    #: In the order of the command's options.
    outputs: tuple[Path, ...]


def is_run_directory(path: Path) -> bool:
    """Tell whether ``path`` is a run directory."""
    return path.is_dir() and RunDir(path).has_run()


@contextmanager
def gather_kept_outputs(run_dir: Path, scratch: Path) -> Iterator[KeptRun]:
    """Gather the outputs of a run from its journals into ``scratch``, check every checksum, and remove them on exit.

    The files that the run wrote are not read: they may have changed.

    Args:
        scratch: An empty folder.

    Raises:
        RefusedError: The run is incomplete, not trusted, or writes folders.
        CorruptError: A journal is damaged.
    """
    manifest = RunDir(run_dir).read_manifest()
    _refuse_unpackable_run(run_dir, manifest)
    written = [scratch / f"written{number}" for number, _ in enumerate(manifest.use.outputs)]
    try:
        for use, path in zip(manifest.use.outputs, written, strict=True):
            if missing := gather_output(run_dir, use.name, str(path), ignore_errors=False).missing:
                raise RefusedError(f"{run_dir}: {missing[0]}", "resume it: type the command of the run again")
        yield KeptRun(manifest.argv, Path(manifest.cwd), tuple(written))
    finally:
        for path in written:
            path.unlink(missing_ok=True)


def _refuse_unpackable_run(run_dir: Path, manifest: RunManifest) -> None:
    if why := find_trust_problem(run_dir):
        raise RefusedError(
            f"{run_dir}: {why}, and packing runs the command that is in it",
            "name the command after --, if you trust it: millrace pack RESULT -o PACK -- COMMAND",
        )
    if any(use.layout != "file" for use in manifest.use.outputs):
        raise RefusedError(
            f"{run_dir}: the run writes a file for each record, and a pack holds single files", "pack them with tar"
        )
    if not RunDir(run_dir).list_journals():
        raise RefusedError(f"{run_dir}: the results of this run are not kept", "name its command after --")


def plan_result_command(argv: tuple[str, ...], cwd: Path, slots: int | None) -> RunPlan:
    """Plan the command that made a result, without its options for speed alone.

    Raises:
        MillraceError: The command is refused, or missing.
    """
    if not cwd.is_dir():
        raise RefusedError(f"{cwd}: is not there any more, where the command was run")
    if has_url_arguments(argv[1:]):
        raise RefusedError("the command names files by URLs, which do not travel", "name copies of them")
    family = result_codec.find_result_codec(registry.MODULES.get(Path(argv[0]).name, ""))
    if family:
        argv = tuple(family.drop_speed_options(argv))
    return planner.make_plan(
        JobSpec(command=argv, slots=slots, fragments="1", verify=0.0), cwd, remove_mpi_variables(os.environ)
    )


def find_named_results(argv: tuple[str, ...], results: tuple[Path, ...], cwd: Path, error: MillraceError) -> list[Path]:
    """Return the result files of a command that cannot be planned; ``error`` is the reason.

    Raises:
        MillraceError: No file is named, or one is missing.
    """
    known = result_codec.find_result_codec(registry.MODULES.get(Path(argv[0]).name, ""))
    found = [cwd / each for each in results]
    with suppress(RefusedError):
        found = found or [cwd / each for each in (known.list_output_paths(argv) if known else [])]
    if not found:
        raise RefusedError(error.message, "its result is packed as it is if it is named: millrace pack RESULT ...")
    if missing := [path for path in found if not path.is_file()]:
        raise RefusedError(f"{missing[0]}: no such file", "name the result: millrace pack RESULT ...") from error
    return found


def find_output_files(plan: RunPlan, results: tuple[Path, ...]) -> list[Path]:
    """Return the files with the outputs of the command, in its order.

    Raises:
        RefusedError: A file or its name is missing.
    """
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
