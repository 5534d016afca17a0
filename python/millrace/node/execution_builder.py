"""Executions of the user's own command for its batches, ready for a slot."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace._core import OutputPlace, PackedForm, Placement
from millrace.adapters.adapter_base import expand_record_path
from millrace.core.tool_use import InputUse, ToolUse
from millrace.node import mirror_layout
from millrace.node.batch_files import SpooledBatch
from millrace.planning.file_checks import is_existing_output
from millrace.planning.program_lookup import is_unknown_tool

#: (stream, where the tool writes it, name of the block, optional).
ExecutionOutput = tuple[int, OutputPlace, bytes, bool]


class ToolExecution(msgspec.Struct, frozen=True):
    """Arguments and files of one execution; see ``millrace._core.Pool.submit``."""

    argv: Sequence[bytes]
    placements: Sequence[Placement]
    outputs: Sequence[ExecutionOutput]
    #: Another program than the user's; None: the user's.
    exe: str | None = None
    #: (private text, the user's text).
    substitutions: Sequence[tuple[bytes, bytes]] = ()
    #: (stream, kind of patch, its argument).
    patches: Sequence[tuple[int, str, str]] = ()
    #: (working directory, ``PWD``) of a task that works in the user's own folder; None: it works where its slot does.
    own_folder: tuple[str, bytes | None] | None = None
    #: (column of the subject, of the bits, of the E-value if it ranks, lowest rank, highest) of the rows of a slice.
    within: tuple[int, int, int | None, float, float] | None = None


class ExecutionBuilder:
    """Builder of executions.

    Args:
        use: The tool with its inputs and outputs.
        laid_out: The layout of the slots.
        database: Path of ``ToolUse.prepared`` on this node.
    """

    def __init__(self, use: ToolUse, laid_out: mirror_layout.SlotLayout, database: bytes = b"") -> None:
        self._use, self._mirror, self._database = use, laid_out, database
        self._has_scratch = mirror_layout.has_scratch_folder(use)
        #: What stands for the user's own target in the tool's messages.
        self._typed = [(database, os.fsencode(use.prepared.typed))] if use.prepared else []

    def build_execution(self, batch: SpooledBatch, *, again: bool = False, over: bool = False) -> ToolExecution:
        """Build the arguments and files for ``batch``.

        Args:
            again: Whether this is a second execution: compressed inputs are then compressed to other bytes.
            over: Whether the outputs have their content from before the run.
        """
        placements = self.place_inputs(batch, again=again)
        for output, place in zip(self._use.outputs, self._mirror.outputs, strict=True):
            if output.layout == "directory":
                placements.append(Placement.Folder(place.path))
            # Without a record this is the serial run itself.
            finds_before = (over or not batch.n_records) and is_unknown_tool(self._use)
            if finds_before and is_existing_output(output, before := self._locate_user_file(output.path)):
                placements.append(Placement.EarlierOutput(before, place.path, not over))
        if self._has_scratch:
            placements.append(Placement.Folder(mirror_layout.SCRATCH))
        names = self._name_record_outputs(batch)
        return ToolExecution(
            self._render_argv(batch, names), placements, self._place_outputs(names), substitutions=self._typed
        )

    def build_argv(self, batch: SpooledBatch) -> list[bytes]:
        """Return the tool's arguments for ``batch``; ``mirror_layout.SLOT_MARK`` in them stands for the slot."""
        return self._render_argv(batch, self._name_record_outputs(batch))

    def _render_argv(self, batch: SpooledBatch, names: Mapping[int, str]) -> list[bytes]:
        rendered = {
            k: os.path.join(os.path.dirname(self._mirror.outputs[k].text), os.fsencode(os.path.basename(name)))
            for k, name in names.items()
        }
        return mirror_layout.render_argv(
            self._use.argv, self._use, self._mirror, list(batch.files), rendered, self._database
        )

    def place_inputs(self, batch: SpooledBatch, *, again: bool = False) -> list[Placement]:
        """Return the placements of the bytes of ``batch``; ``again`` as in ``ExecutionBuilder.build_execution``."""
        found: list[Placement] = []
        for item, place, spooled, (n_bytes, _) in zip(
            self._use.inputs, self._mirror.inputs, batch.spooled, batch.digests, strict=True
        ):
            if item.format == "files":
                continue
            if item.piped and not (n_bytes or item.packed or self._use.served):
                found.append(Placement.EndedStdin())
                if not item.stdin:
                    found.append(Placement.Link("/dev/stdin", place.path))
                continue
            if item.packed and not batch.n_records and not item.stdin:
                # For an empty input, use the file itself, with any bytes in it.
                file = os.path.abspath(self._locate_user_file(item.path))
                if os.path.realpath(file) != place.real:
                    found.append(Placement.Link(file, place.path))
            elif item.packed:
                other = PackedForm.Members if batch.has_members else PackedForm.Again
                form = other if again else PackedForm.First
                found.append(Placement.Packed(spooled, place.path or None, item.packed, form))
            elif item.stdin:
                found.append(Placement.Stdin(spooled))
            else:
                self._copy_file_attributes(spooled, item)
                found.append(Placement.Batch(spooled, place.path))
        return found

    def _locate_user_file(self, path: str) -> str:
        """Return the path of the user's own file."""
        return os.path.join(self._mirror.top, self._mirror.directory, path)

    def _copy_file_attributes(self, spooled: Path, item: InputUse) -> None:
        """Give a spooled part the permissions and times of its input file, as far as they are visible here."""
        with suppress(OSError):
            about = os.stat(self._locate_user_file(item.path))
            if stat.S_ISREG(about.st_mode):
                os.chmod(spooled, stat.S_IMODE(about.st_mode) | stat.S_IRUSR)
                os.utime(spooled, ns=(about.st_atime_ns, about.st_mtime_ns))

    def _place_outputs(self, names: Mapping[int, str]) -> list[ExecutionOutput]:
        found: list[ExecutionOutput] = []
        for k, (output, place) in enumerate(zip(self._use.outputs, self._mirror.outputs, strict=True)):
            name = os.fsencode(names.get(k, ""))
            if output.stdout:
                found.append((k, OutputPlace.Stdout(), name, output.optional))
            elif output.layout == "directory":
                found.append((k, OutputPlace.Folder(place.path), b"", output.optional))
            elif output.layout == "record":
                path = os.path.join(os.path.dirname(place.path), os.path.basename(names[k]))
                found.append((k, OutputPlace.File(path), name, output.optional))
            else:
                found.append((k, OutputPlace.File(place.path), b"", output.optional))
        return found

    def _name_record_outputs(self, batch: SpooledBatch) -> dict[int, str]:
        """Return the output paths of a batch that is one file, as the user would type them, by index of the output."""
        if not batch.files:
            return {}
        return {
            k: expand_record_path(output.path, batch.files[0])
            for k, output in enumerate(self._use.outputs) if output.layout == "record"
        }  # fmt: skip
