"""Writing of quarantined records, each with its error and a command that reproduces it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.core.record_formats import strip_compressed_suffix
from millrace.core.tool_use import ScratchArg, ToolUse
from millrace.execution.batch_table import ensure_spooled
from millrace.node.batch_files import SpooledBatch, read_header
from millrace.node.mirror_layout import DATABASE, PRIVATE, SCRATCH, SLOT_MARK
from millrace.rundir.paths import delete_entry

#: Most records in one folder, which may be on a shared filesystem.
MAX_RECORDS_PER_FOLDER = 1000


def name_record_folder(number: int) -> str:
    """Return the folder of a record, by its number, from 1; the first thousand lie at the top.

    >>> name_record_folder(1000), name_record_folder(1001)
    ('record-1000', 'records-1001-2000/record-1001')
    """
    name, before = f"record-{number}", (number - 1) // MAX_RECORDS_PER_FOLDER * MAX_RECORDS_PER_FOLDER
    return f"records-{before + 1}-{before + MAX_RECORDS_PER_FOLDER}/{name}" if before else name


def _choose_free_name(name: str, taken: set[str]) -> str:
    """Return ``name``, or a similar one that is not in ``taken``; add it to ``taken``."""
    free, number = name, 2
    while free in taken:
        free, number = f"{number}-{name}", number + 1
    taken.add(free)
    return free


class QuarantineWriter:
    """Writer of ``RUNDIR/quarantine/record-N/`` (``name_record_folder``): the record, ``stderr.txt``, ``command.sh``.

    Raises:
        CorruptError: ``quarantine`` is not a folder.
    """

    def __init__(self, folder: Path, use: ToolUse, cwd: Path) -> None:
        self._folder, self._use, self._cwd = folder, use, cwd
        self._check_folder()

    def _check_folder(self) -> None:
        if self._folder.is_symlink() or (self._folder.exists() and not self._folder.is_dir()):
            raise CorruptError(
                f"{self._folder}: is not the folder of failed records",
                "remove it, and type the same command again; or start over with --fresh",
            )

    def write_record(self, batch: SpooledBatch, argv: list[bytes], reason: str) -> str:
        """Write the one record of ``batch`` with its error and command; return its name.

        Raises:
            CorruptError: ``quarantine`` is not a folder.
        """
        self._check_folder()
        place = self._folder / name_record_folder(batch.first + 1)
        delete_entry(place)
        place.mkdir(parents=True)
        kept_at = dict[str, str]()
        taken = {"stderr.txt", "command.sh"}
        redirection = ""
        for item, spooled in zip(self._use.inputs, batch.spooled, strict=True):
            if item.format == "files":
                for name in batch.files:
                    shutil.copyfile(self._cwd / name, place / _choose_free_name(Path(name).name, taken))
                continue
            name = Path(item.path).name if item.path != "-" else "stdin"
            # In the form that the tool gets.
            kept = place / _choose_free_name(strip_compressed_suffix(name) if item.packed is None else name, taken)
            if item.packed:
                _core.compress_file(spooled, kept, item.packed)
            else:
                shutil.copyfile(spooled, kept)
            if item.stdin:
                redirection += f" < {shlex.quote(str(kept))}"
            else:
                kept_at[item.path] = str(kept)
        command = self.format_command(argv, kept_at) + redirection
        (place / "stderr.txt").write_bytes(os.fsencode(reason + "\n"))
        script = place / "command.sh"
        script.write_bytes(os.fsencode(f"#!/bin/sh\ncd {shlex.quote(str(self._cwd))} || exit\n{command}\n"))
        script.chmod(0o755)
        return self.read_record_name(batch)

    def format_command(self, argv: list[bytes], kept_at: Mapping[str, str] | None = None) -> str:
        """Return the command in the form that the user would type.

        Args:
            kept_at: Other paths for those of inputs, replaced where they are not within longer ones.
        """
        words = []
        for argument in argv:
            text = os.fsdecode(argument)
            mark = os.fsdecode(SLOT_MARK) + "/"
            if mark in text:
                # Private paths are _millrace/KEY/NAME: show the path that the user typed.
                before, _, after = text.partition(mark)
                text = before + self._restore_typed_path(after)
            elif self._use.prepared and text.endswith(f"/{DATABASE}"):
                text = self._use.prepared.typed
            for path, kept in (kept_at or {}).items():
                place = kept.replace("\\", r"\\")
                text = re.sub(rf"(?:(?<![\w./-])|(?<=^-\w)){re.escape(path)}(?![\w./-])", place, text)
            words.append(shlex.quote(text))
        return " ".join(words)

    def _restore_typed_path(self, path: str) -> str:
        if not path.startswith(PRIVATE):
            return path
        if path == SCRATCH:
            return next(token.typed for token in self._use.argv if isinstance(token, ScratchArg))
        key = path.split("/")[1]
        number = int(key.removeprefix("in").removeprefix("out"))
        return (self._use.inputs if key.startswith("in") else self._use.outputs)[number].path

    def read_record_name(self, batch: SpooledBatch) -> str:
        """Return the name of the first record, from its first line."""
        return next(iter(self.read_record_names(batch)), "") or f"record {batch.first + 1}"

    def read_record_names(self, batch: SpooledBatch) -> list[str]:
        """Return the words that may name the first record in messages."""
        if batch.files:
            return [Path(batch.files[0]).name, Path(batch.files[0]).stem]
        ensure_spooled(batch)
        found = []
        for item, path in zip(self._use.inputs, batch.spooled, strict=True):
            try:
                with path.open("rb") as file:
                    file.seek(len(read_header(path, item)))
                    head = file.read(4096).decode(errors="replace")
            except OSError:
                continue
            line = next((line for line in head.splitlines() if line.strip()), "").lstrip(">@").strip()
            if line.startswith("<TRIPOS>"):
                line = head.partition("@<TRIPOS>MOLECULE")[2].strip().partition("\n")[0].strip()
            found += [line.split()[0][:200] if line.split() else "", line[:200]]
        return [name for name in dict.fromkeys(found) if name]
