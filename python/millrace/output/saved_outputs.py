"""Checks that output files hold the committed bytes, at the end of a run and at the next start.

A resume writes the outputs from the beginning, over existing content, so it would destroy changes by others; the
outputs of a kept complete run must be unchanged too. So their states are saved at the end of a start. They are known
if a start completed or stopped in order, and unknown if it was killed. At the end of a run, outputs that were changed
by others are written again.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from millrace import _core
from millrace.core.errors import CorruptError, RefusedError
from millrace.core.journal_blocks import map_blocks
from millrace.core.tasks import CommittedRecords
from millrace.core.text_format import format_records
from millrace.core.tool_use import FrozenValue, OutputUse
from millrace.host.file_lock import SHARED, find_filesystem_kind
from millrace.output import inconsistent_results
from millrace.output.output_parts import drop_unframed_tasks, select_effective_tasks
from millrace.output.output_streams import OutputStreams, resolve_destination, resolve_final_path
from millrace.planning.run_plan import RunPlan
from millrace.rundir.checksummed_json import encode_checksummed, read_checksummed
from millrace.rundir.paths import RunDir, RunManifest, write_atomically


class SavedOutputs(FrozenValue, frozen=True):
    """States of the output files, by the paths that the user typed."""

    run_id: str
    #: Size in bytes, and modification time in ns; 0: unreliable.
    files: dict[str, tuple[int, int]]


def save_output_states(plan: RunPlan, rundir: RunDir, manifest: RunManifest) -> None:
    """Save the states of the output files. This run must not write them any more."""
    with suppress(OSError):
        write_atomically(
            rundir.outputs, encode_checksummed(SavedOutputs(run_id=manifest.run_id, files=_read_output_states(plan)))
        )


def check_saved_outputs(plan: RunPlan, rundir: RunDir, manifest: RunManifest) -> None:
    """Check that the outputs of an earlier start are unchanged.

    Raises:
        RefusedError: An output was changed.
        CorruptError: The saved states are damaged.
    """
    try:
        left = read_checksummed(rundir.outputs, SavedOutputs, "how outputs were left")
    except FileNotFoundError:
        return
    now = _read_output_states(plan)
    for path, (size, changed) in left.files.items() if left.run_id == manifest.run_id else ():
        size_now, changed_now = now.get(path, (0, 0))
        if path not in now or not (size or size_now):
            continue  # missing, or empty before and now: it is written again
        if size_now != size or (changed and changed_now and changed_now != changed):
            how = (
                f"it had {size:,} bytes, and has {size_now:,}" if size_now != size else "its time of change is another"
            )
            quoted = shlex.quote(path)
            since = "had written it" if rundir.completion.exists() else "was stopped"
            raise RefusedError(
                f"{path}: somebody has changed it since this run {since}: {how}",
                f"move it away (mv {quoted} {quoted}.changed) and type the same command again: it writes the file anew from "
                f"{rundir.path}",
            )


def forget_saved_outputs(rundir: RunDir) -> None:
    """Remove the saved states: from here on the outputs are written."""
    rundir.outputs.unlink(missing_ok=True)


def _read_output_states(plan: RunPlan) -> dict[str, tuple[int, int]]:
    """Return size and modification time of the regular files among the outputs."""
    found = {}
    for output in plan.use.outputs:
        if output.layout == "file" and (path := _find_written_path(output, plan.command.cwd)):
            with suppress(OSError):
                about = os.stat(path)
                if stat.S_ISREG(about.st_mode):
                    # On shared storage the cached modification time may differ from the server's for a while.
                    sure = find_filesystem_kind(path.parent) not in SHARED
                    name = output.part if output.part and path.name == os.path.basename(output.part) else output.path
                    found[name] = (about.st_size, about.st_mtime_ns if sure else 0)
    return found


def _find_written_path(output: OutputUse, cwd: Path) -> Path | None:
    """Return the path of an output: where it grows, or of a whole one its own; None: standard output."""
    path = resolve_destination(output, cwd)
    return path if path is None or path.exists() else resolve_final_path(output, cwd)


#: Times that a changed output is written again before the run fails.
MAX_REWRITES = 3

#: Most blocks of an output that are read back.
MAX_SAMPLED_BLOCKS = 32

#: Most bytes of an output that are read at a time.
PIECE_BYTES = 1 << 16

#: Most files of a folder on shared storage that are read back.
MAX_FILES_READ = 1024


class BlockSamples:
    """Evenly spread pieces of an output, the first one included.

    Args:
        join: How its blocks are joined.
    """

    def __init__(self, join: str) -> None:
        self._join = join
        self._kept: list[tuple[int, _core.OutputPiece]] = []
        self._size = self._n = 0
        self._every = 1

    def add_piece(self, piece: _core.OutputPiece) -> None:
        """Add the next piece."""
        if self._n % self._every == 0:
            self._kept.append((self._size, piece))
            if len(self._kept) > MAX_SAMPLED_BLOCKS:
                del self._kept[1::2]
                self._every *= 2
        self._n += 1
        self._size += piece.length

    def find_difference(self, path: Path) -> str:
        """Describe how the file differs from the written bytes; empty if it does not."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return "is gone"
        try:
            if os.fstat(file).st_size < self._size or not all(self._is_written(file, *each) for each in self._kept):
                return "has been written by somebody else"
        finally:
            os.close(file)
        return ""

    def _is_written(self, file: int, offset: int, piece: _core.OutputPiece) -> bool:
        begin = piece.excerpt(self._join, PIECE_BYTES)
        return os.pread(file, len(begin), offset) == begin


def find_lacking_files(plan: RunPlan, tasks: Sequence[CommittedRecords]) -> list[tuple[_core.BlockRef, Path]]:
    """Return files of outputs with several files that are missing or changed.

    Raises:
        CorruptError: Two tasks have written different bytes to the same file.
    """
    files = list(_list_folder_blocks(plan, tasks))
    # On a shared filesystem, each read of a file costs some round trips.
    shared = any(find_filesystem_kind(folder) in SHARED for folder in {path.parent for _, path in files})
    every = -(-len(files) // MAX_FILES_READ) if shared else 1
    return [
        (block, path) for n, (block, path) in enumerate(files) if not _has_whole_block(path, block, read=n % every == 0)
    ]


def _list_folder_blocks(plan: RunPlan, tasks: Sequence[CommittedRecords]) -> Iterator[tuple[_core.BlockRef, Path]]:
    """Yield the blocks that are files by themselves, and their paths."""
    folders = {
        number: plan.command.cwd
        if output.layout == "record"
        else resolve_destination(output, plan.command.cwd) or plan.command.cwd
        for number, output in enumerate(plan.use.outputs)
        if output.layout != "file"
    }
    found: dict[Path, tuple[_core.BlockRef, CommittedRecords]] = {}
    for task in tasks if folders else ():
        for block in task.blocks:
            if block.stream in folders:
                path = folders[block.stream] / os.fsdecode(block.name)
                other, of = found.setdefault(path, (block, task))
                if (other.length, other.crc32c) != (block.length, block.crc32c):
                    raise CorruptError(
                        f"{path}: {format_records(of.first, of.last)} and {format_records(task.first, task.last)} both write it, and not the same",
                        "give each record a file of its own, or join one file: --output FILE; with --batch in which they are "
                        "together, and --fresh, the program itself decides",
                    )
    for path, (block, _) in found.items():
        yield block, path


def _has_whole_block(path: Path, block: _core.BlockRef, *, read: bool) -> bool:
    """Tell whether the file has the size of the block, and, if ``read``, its bytes."""
    if not path.is_file() or path.stat().st_size != block.length:
        return False
    if not read or not block.length:
        return True
    with path.open("rb") as file, map_blocks([block]) as (view,):
        return all(file.read(PIECE_BYTES) == view[at : at + PIECE_BYTES] for at in range(0, block.length, PIECE_BYTES))


def read_committed_tasks(rundir: RunDir, manifest: RunManifest) -> list[CommittedRecords]:
    """Return the committed tasks of the outputs, in input order."""
    found = (task for path in rundir.list_journals() for task in _core.scan(str(path), False).tasks)
    counting = inconsistent_results.drop_inconsistent_tasks(rundir, manifest.run_id, found)
    return select_effective_tasks(drop_unframed_tasks(counting, manifest.frame_forms))


def restore_outputs(
    plan: RunPlan, rundir: RunDir, manifest: RunManifest, changed: Mapping[str, str], message: Callable[[str], None]
) -> None:
    """Write outputs again, from the journals, that were changed by others.

    Args:
        changed: Changes of outputs, in words, by name.

    Raises:
        CorruptError: An output was changed again after each rewrite.
    """
    paths = {output.name: output.path for output in plan.use.outputs}
    in_folders = any(output.layout != "file" for output in plan.use.outputs)
    tasks = read_committed_tasks(rundir, manifest) if changed or in_folders else []
    for _ in range(MAX_REWRITES):
        missing = find_lacking_files(plan, tasks)
        if not changed and not missing:
            return
        for name, words in changed.items():
            message(f"{paths[name]}: {words}; it is written again from the journal")
        if missing:
            message(
                f"{missing[0][1]}: is not what was written ({len(missing)} such files); written again from the journal"
            )
        for block, path in missing:
            path.parent.mkdir(parents=True, exist_ok=True)
            _core.extract(block, str(path))
        for folder in {path.parent for _, path in missing}:
            _core.sync_filesystem(folder)
        changed = {name: words for name in changed if (words := _rewrite_output(plan, tasks, name, manifest))}
    culprit = next(iter(paths[name] for name in changed), str(missing[0][1]) if missing else "")
    if changed or find_lacking_files(plan, tasks):
        raise CorruptError(
            f"{culprit}: somebody else writes it, again and again",
            "nothing is lost: see to it that only this run writes there, and type the same command again",
        )


def _rewrite_output(plan: RunPlan, tasks: Sequence[CommittedRecords], name: str, manifest: RunManifest) -> str:
    """Write one output again; return its change by others meanwhile, in words."""
    streams = OutputStreams(plan.use.outputs, plan.command.cwd, only=name, forms=manifest.frame_forms)
    for task in tasks:
        streams.append_task(task.last - task.first, task)
    streams.finish_outputs()
    return streams.find_changed_outputs().get(name, "")
