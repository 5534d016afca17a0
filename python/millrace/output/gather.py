"""Rebuilding an output from the journal alone."""

from __future__ import annotations

from pathlib import Path

from millrace import _core
from millrace.errors import CorruptError, RefusedError
from millrace.output.order import that_count
from millrace.output.streams import Streams
from millrace.rundir import Manifest, RunDir
from millrace.slices import Committed


def gather(run_dir: Path, stream: str, to: str, *, ignore_errors: bool) -> list[str]:
    """Join the blocks of one stream into the file ``to`` (``-``: standard output).

    Returns:
        What was missing or damaged, in words; only with ``ignore_errors``.

    Raises:
        RefusedError: There is no run, or no such stream.
        CorruptError: A record is missing or damaged, and ``ignore_errors`` is not given.
    """
    rundir = RunDir(run_dir)
    manifest = rundir.read_manifest()
    name = _stream(manifest, stream)
    journals = rundir.journals() or [rundir.journal]
    try:
        scans = [(path, _core.scan(str(path), True)) for path in journals]
    except (_core.CorruptJournal, OSError) as error:
        raise CorruptError(str(error), "the results are lost: run the command again with --fresh") from error
    problems = [f"{path}: byte {offset}: {problem}" for path, scan in scans for offset, problem, _ in scan.damage]
    tasks = that_count(task for _, scan in scans for task in scan.tasks)
    problems += _gaps(tasks, whole=rundir.complete.exists())
    if problems and not ignore_errors:
        raise CorruptError(
            "\n".join(problems), "resume the run to compute what is missing, or salvage the rest with --ignore-errors"
        )
    try:
        streams = Streams(manifest.use.outputs, Path(manifest.cwd), only=name, to=to)
    except OSError as error:
        raise RefusedError(f"{to}: {error.strerror or error}", "name another file with -o") from error
    for task in tasks:
        try:
            streams.append(task.last - task.first, task)
        except CorruptError as error:
            if not ignore_errors:
                raise
            problems.append(str(error))
    streams.finish()
    return problems


def _stream(manifest: Manifest, wanted: str) -> str:
    names = [output.name for output in manifest.use.outputs]
    if wanted and wanted not in names:
        raise RefusedError(f"--stream {wanted}: no such output", f"this run has: {', '.join(names)}")
    if not wanted and len(names) > 1:
        raise RefusedError("this run has several outputs", f"choose one with --stream: {', '.join(names)}")
    return wanted or names[0]


def _gaps(tasks: list[Committed], *, whole: bool) -> list[str]:
    found, reached = [], 0
    for task in tasks:
        if task.first > reached:
            found.append(f"records {reached + 1} to {task.first} are missing")
        reached = max(reached, task.last)
    if not whole:
        found.append(f"the run has not come to its end: nothing after record {reached}")
    return found
