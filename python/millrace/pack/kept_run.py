"""Command and outputs of a run directory that was kept, so that it can be packed without naming them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import RefusedError
from millrace.output.gather import gather_output
from millrace.own import find_trust_problem
from millrace.rundir import RunDir, RunManifest


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
