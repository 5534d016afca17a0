"""The output of a filter or function: one file, or a folder that gets one file after another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from millrace import _core
from millrace.errors import CorruptError, ToolError
from millrace.workflow.follow import format_listing_line, write_all


class FileOutput:
    """An output file, truncated at the start."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb", buffering=0)

    def write(self, item: object, who: str) -> None:
        """Write one result, bytes or text, without buffering.

        Raises:
            ToolError: It is neither.
        """
        write_all(self._file.fileno(), _encode_item(item, who))

    def finish(self) -> None:
        """Fsync and close the file."""
        os.fsync(self._file.fileno())
        self._file.close()


class FolderOutput:
    """An output folder; each file is listed once it is complete.

    A file that already has the same bytes is not rewritten, as its readers may compare modification times.

    Args:
        listed: File that lists the complete files, one a line, for the phases that follow.
    """

    def __init__(self, folder: Path, listed: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._listed = folder, listed.open("wb", buffering=0)
        self._names: set[str] = set()

    def write(self, item: object, who: str) -> None:
        """Write one file from a pair of name and content.

        Raises:
            ToolError: It is no such pair, or the name is invalid or was used before.
        """
        match item:
            case (str(name), bytes() | str() as content):
                pass
            case _:
                raise ToolError(
                    f"{who}: gave {_shorten_repr(item)} for a folder", "yield (name, content), one for each file"
                )
        if not name or "/" in name or name.startswith(".") or "\n" in name or "\0" in name:
            raise ToolError(f"{who}: {name!r} is no name for a file", "use a name without / and without a dot in front")
        if name in self._names:
            raise ToolError(f"{who}: gave the file {name} twice", "give each its own name")
        self._names.add(name)
        self._write_file(name, _encode_item(content, who))
        self._listed.write(format_listing_line(self._folder / name))

    def _write_file(self, name: str, content: bytes) -> None:
        """Write a file atomically, unless it already has these bytes."""
        path = self._folder / name
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return
        fresh = self._folder / f".{name}.new"
        fresh.unlink(missing_ok=True)  # left by a killed start, or a link of another user
        with fresh.open("xb") as file:
            file.write(content)
        fresh.replace(path)

    def finish(self) -> None:
        """Remove unfinished files, sync the filesystem and close the list.

        Raises:
            CorruptError: The folder has files that the function did not write.
        """
        for name in os.listdir(self._folder):
            if name.startswith(".") and name.endswith(".new"):
                (self._folder / name).unlink()
            elif not name.startswith(".") and name not in self._names:
                raise CorruptError(
                    f"{self._folder / name}: was not written by this phase", "move it away, and start over with --fresh"
                )
        _core.sync_filesystem(self._folder)
        self._listed.close()


def _encode_item(item: object, who: str) -> bytes:
    """Return a result as bytes, text in UTF-8; refuse all other types."""
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return item
    raise ToolError(f"{who}: gave {_shorten_repr(item)} where bytes are expected", "yield bytes or text")


def _shorten_repr(item: object) -> str:
    """Return the ``repr`` of a value, cut to 60 letters."""
    text = repr(item)
    return text if len(text) <= 60 else text[:57] + "..."
