"""Outputs that a command names by URLs: written to a local file, and sent when they are complete.

Outputs are written by any process, on any number of nodes, to files that all nodes see. Nothing appears at a URL before
all of it is sent: an S3 multipart upload is completed, an HDFS or SFTP file gets its name. The local file is named by
the last part of the URL.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import msgspec

from millrace.adapters import description_lookup, registry, tool_description
from millrace.adapters.registry import has_adapter
from millrace.adapters.tool_description import ToolDescription
from millrace.core import replica_rules
from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec
from millrace.core.text_format import format_size
from millrace.core.tool_use import OutputUse
from millrace.host.permissions import replace_file
from millrace.host.signals import StopSignals
from millrace.storage import locations
from millrace.storage.cache import cache_download
from millrace.storage.clients.base import MAX_TRIES, PAUSE_SECONDS, UnreachableError

#: Bytes that are read at a time, at most.
PIECE_BYTES = 1 << 20

#: Schemes of URLs that can be written.
WRITTEN = ("hdfs://", "s3://", "sftp://")

#: Suffix of the note that holds the URL of an output, and the partial upload that a killed sender leaves there.
NOTE = ".outbox"


class OutputUploads:
    """The outputs of one command that are sent to URLs; empty for most commands.

    Args:
        job: The command, with URLs checked by ``millrace.core.replica_rules.check_url_arguments``.

    Raises:
        RefusedError: A URL cannot be written.
    """

    def __init__(self, job: JobSpec, cwd: Path) -> None:
        self._cwd = cwd
        #: URLs by local file name.
        self._urls: dict[str, str] = {}
        argv, outputs = list(job.command), list(job.output)
        for at, (before, url) in registry.find_output_urls(argv, outputs, _find_description(argv[0], cwd)).items():
            argv[at] = before + self._choose_local_name(url)
        for at, url in enumerate(outputs):
            outputs[at] = self._choose_local_name(url) if url.startswith(replica_rules.FETCHED) else url
        #: The command with local names in place of URLs.
        self.job = msgspec.structs.replace(job, command=tuple(argv), output=tuple(outputs)) if self._urls else job

    def _choose_local_name(self, url: str) -> str:
        shown, name = replica_rules.redact_place(url), cache_download.extract_base_name(url)
        if not url.startswith(WRITTEN):
            raise RefusedError(f"{shown}: cannot be written", f"name a file, or {', '.join(WRITTEN)}")
        if url.endswith("/") or name.startswith(("-", ".")) or "{" in name or "\0" in name:
            raise RefusedError(f"{shown}: names no file", "as in: s3://bucket/folder/hits.tsv")
        if self._urls.setdefault(name, url) != url:
            raise RefusedError(f"{shown}: two outputs are called {name}", "give them different names")
        return name

    def __bool__(self) -> bool:
        return bool(self._urls)

    def describe_uploads(self) -> list[str]:
        """Describe the uploads for ``millrace plan``."""
        return [
            f"{name} goes to {replica_rules.redact_place(url)} when it is whole" for name, url in self._urls.items()
        ]

    def check_uploads(self, outputs: tuple[OutputUse, ...], program: str, run_dir: Path) -> None:
        """Check that each name is an output of the command and is not taken, and that its URL can be written.

        Args:
            run_dir: Run directory; without it, an existing file of that name belongs to no run.

        Raises:
            MillraceError: A check failed.
        """
        files = {output.path for output in outputs if output.layout == "file"}
        for name, url in self._urls.items():
            shown = replica_rules.redact_place(url)
            if name not in files:
                raise RefusedError(f"{shown}: is no output of {program} that is one file", "write it to a folder of this machine, and copy that")  # fmt: skip
            is_taken = os.path.lexists(
                self._cwd / name
            )  # before the note, as another process of this run may start now
            there = self._read_noted_url(name) if run_dir.exists() else ""
            if there not in ("", url):
                raise RefusedError(f"{name}: is on its way to {replica_rules.redact_place(there)}", "finish that run, or use another folder")  # fmt: skip
            if is_taken and not there:
                raise RefusedError(f"{name}: would be written over on its way to {shown}", "move it away, or use another folder")  # fmt: skip
            with closing(locations.open_location(url)) as location:
                location.check_writable()

    def prepare_uploads(self, say: Callable[[str], None]) -> None:
        """Note the URL of each output, and remove partial uploads of earlier runs."""
        for name, url in self._urls.items():
            self._discard_partial_upload(name, url, say)

    def _discard_partial_upload(self, name: str, url: str, say: Callable[[str], None]) -> None:
        there, _, begun = self._read_note(name).partition("\n")
        if begun and there == url:
            with closing(locations.open_location(url)) as location:
                if location.discard_write(begun):
                    say(
                        f"removed what of {name} had been sent to {replica_rules.redact_place(url)} before it was cut off"
                    )
        self._write_note(name, url)

    def send_outputs(self, run_dir: Path, interrupt: StopSignals, say: Callable[[str], None]) -> None:
        """Send all outputs.

        Raises:
            MillraceError: An output cannot be sent, or the run is to stop.
        """
        for name, url in self._urls.items():
            path = self._cwd / name
            for k in range(MAX_TRIES):
                try:
                    self._discard_partial_upload(name, url, say)  # remains of the last attempt
                    with closing(locations.open_location(url)) as location:
                        pieces, note = _read_pieces(path, run_dir, interrupt), partial(self._write_note, name, url)
                        location.write_file(pieces, path.stat().st_size, note)
                    break
                except UnreachableError:
                    if k + 1 == MAX_TRIES:
                        raise
                    time.sleep(PAUSE_SECONDS * 2**k)
            say(f"sent {name} to {replica_rules.redact_place(url)}: {format_size(path.stat().st_size)}")

    def remove_sent_files(self) -> None:
        """Remove the local files that were sent, and their notes."""
        for name, url in self._urls.items():
            if self._read_noted_url(name) == url:
                (self._cwd / name).unlink(missing_ok=True)
                self._locate_note(name).unlink(missing_ok=True)

    def remove_stale_notes(self, run_dir: Path) -> None:
        """Remove the notes if the run directory does not exist, as nothing can be resumed."""
        if not run_dir.exists():
            for name in self._urls:
                self._locate_note(name).unlink(missing_ok=True)

    def _locate_note(self, name: str) -> Path:
        return self._cwd / f".{name[-200:]}{NOTE}"

    def _read_noted_url(self, name: str) -> str:
        """Return the URL in the note; empty: there is no note."""
        return self._read_note(name).partition("\n")[0]

    def _read_note(self, name: str) -> str:
        with suppress(OSError):
            return self._locate_note(name).read_text()
        return ""

    def _write_note(self, name: str, url: str, begun: str = "") -> None:
        """Note the URL, and in a second line the partial upload there."""
        replace_file(self._locate_note(name), f"{url}\n{begun}".encode(), 0o600)


def _find_description(program: str, cwd: Path) -> ToolDescription | None:
    if has_adapter(program):
        return None
    found = description_lookup.find_description(Path(program).name, cwd, os.environ)
    return tool_description.parse_description(found.content, found.path) if found else None


def _read_pieces(path: Path, run_dir: Path, interrupt: StopSignals) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            if interrupt.signal:
                raise interrupt.make_error(run_dir)
            yield piece
