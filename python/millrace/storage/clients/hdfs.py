"""HDFS by ``hdfs-native``, without Java: settings from ``HADOOP_CONF_DIR``, identity from Kerberos or the user name."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from millrace.core.errors import RefusedError
from millrace.storage.clients.base import (
    ExpiredError,
    FileLocation,
    FileStatus,
    LocationError,
    UnreachableError,
    extract_first_line,
    ignore_token,
    import_client,
)

#: HDFS's default block size, for a file whose status does not tell it.
BLOCK_BYTES = 128 << 20

#: The client's default of 15 attempts takes three minutes if no server answers.
SETTINGS = {"dfs.client.failover.max.attempts": "3"}


class HdfsLocation(FileLocation):
    """A closed file, or a folder. A file that its writer has not closed yet counts as missing."""

    def __init__(self, url: str, shown: str) -> None:
        super().__init__(url, shown)
        self._native = native = import_client("hdfs_native", "hdfs", shown)
        parts = urlsplit(url, allow_fragments=False)
        self._path = unquote(parts.path) or "/"
        with self._translate_errors():
            self._client = native.Client(f"hdfs://{parts.netloc}", SETTINGS)

    def query_status(self) -> FileStatus:
        with self._translate_errors():
            return self._make_status(self._client.get_file_info(self._path))

    def stream_bytes(self, offset: int, length: int, about: FileStatus) -> Iterator[bytes]:
        return (piece for _, piece in self.stream_ranges([(offset, offset + length)] if length else [], about))

    def stream_ranges(self, ranges: Iterable[tuple[int, int]], about: FileStatus) -> Iterator[tuple[int, bytes]]:
        if not (ranges := list(ranges)):
            return
        with self._translate_errors():
            self._check_unchanged(about)
            with self._client.read(self._path) as reader:  # once: the NameNode is asked for the blocks
                for first, last in ranges:
                    at = first
                    for piece in reader.read_range_stream(first, last - first):
                        yield at, bytes(piece)
                        at += len(piece)
            self._check_unchanged(about)

    def _check_unchanged(self, about: FileStatus) -> None:
        now = self._make_status(self._client.get_file_info(self._path))
        if (now.size, now.version) != (about.size, about.version):
            raise self.make_changed_error()

    def list_names(self, folders: bool = False) -> list[str]:
        with self._translate_errors():
            entries = list(self._client.list_status(self._path))
        return sorted(entry.path.rpartition("/")[2] for entry in entries if entry.isdir == folders)

    def check_writable(self) -> None:
        with self._translate_errors():
            self._check_folder()
            with suppress(FileNotFoundError):
                self._make_status(self._client.get_file_info(self._path))
            new = self.make_unfinished_path(f"{self._path}.try")  # a failed write removes its own file
            self._client.create(new, self._native.WriteOptions(overwrite=True, create_parent=False)).close()
            self._client.delete(new)

    def write_file(self, pieces: Iterable[bytes], n_bytes: int, begun: Callable[[str], None] = ignore_token) -> None:
        new = self.make_unfinished_path(self._path)
        with self._translate_errors():
            self._check_folder()
            begun(new)
            try:
                with self._client.create(new, self._native.WriteOptions(overwrite=True, create_parent=False)) as file:
                    for piece in pieces:
                        file.write(piece)
                if (there := self._client.get_file_info(new).length) != n_bytes:
                    raise self.make_short_error(there, n_bytes)
                self._client.rename(new, self._path, overwrite=True)
            except BaseException:
                with suppress(Exception):  # the first error is the one to report
                    self._client.delete(new)
                raise

    def discard_write(self, begun: str) -> bool:
        with self._translate_errors():
            return bool(self._client.delete(begun, recursive=True))

    def create_unfinished_folder(self) -> str:
        """Make an unfinished folder, which ``publish_folder`` renames to this place; return its path.

        Removes unfinished folders of dead processes of this host.

        Raises:
            MillraceError: The place is not empty, or the folder cannot be made.
        """
        above, _, name = self._path.rpartition("/")
        if not name:
            raise RefusedError(f"{self.shown}: names no folder", "as in: hdfs://namenode/db/nr")
        with self._translate_errors():
            with suppress(FileNotFoundError):
                there = self._client.get_file_info(self._path)
                if not there.isdir or any(self._client.list_status(self._path)):
                    raise RefusedError(f"{self.shown} is there already", "give another folder, or remove it")
            self._client.mkdirs(above or "/", 0o755, create_parent=True)
            begins = f".{name[-100:]}.{socket.gethostname()}."
            for pid in self._list_dead_writers(above or "/", begins):
                self._client.delete(f"{above}/{begins}{pid}.part", recursive=True)
            begun = f"{above}/{begins}{os.getpid()}.part"
            self._client.mkdirs(begun, 0o755, create_parent=False)
            return begun

    def _list_dead_writers(self, folder: str, begins: str) -> Iterator[int]:
        """Yield the ids of dead processes that left an unfinished folder there."""
        for entry in self._client.list_status(folder):
            name = entry.path.rpartition("/")[2]
            pid = name[len(begins) : -len(".part")]
            is_its = name == f"{begins}{pid}.part" and pid.isdigit()
            if is_its and (int(pid) == os.getpid() or not os.path.exists(f"/proc/{pid}")):
                yield int(pid)

    def publish_folder(self, begun: str) -> None:
        """Rename an unfinished folder to this place, in one step.

        Raises:
            MillraceError: The place is not empty any more, or the folder cannot be renamed.
        """
        with self._translate_errors():
            # ``overwrite`` replaces only an empty folder.
            self._client.rename(begun, self._path, overwrite=True)

    def list_sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes in bytes of the files in a folder, by name."""
        with self._translate_errors():
            return {entry.path.rpartition("/")[2]: entry.length for entry in self._client.list_status(folder)}

    def _check_folder(self) -> None:
        try:
            is_folder = self._client.get_file_info(self._path.rpartition("/")[0] or "/").isdir
        except FileNotFoundError:
            is_folder = False
        if not is_folder:
            raise self.make_missing_folder_error()

    def _make_status(self, status: Any) -> FileStatus:
        if status.isdir:
            raise self.make_not_a_file_error()
        when = status.modification_time
        version = f"{when:x}.{status.length:x}"
        return FileStatus(
            size=status.length, version=version, mtime_ns=when * 10**6, block_bytes=status.blocksize or BLOCK_BYTES
        )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of the client into our own, without the server's stack traces."""
        try:
            yield
        except FileNotFoundError as error:
            raise self.make_missing_error() from error
        except PermissionError as error:
            raise self.make_denied_error("see its owner and mode: hdfs dfs -ls") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise self.make_refusal_error(extract_first_line(error)) from error

    def make_refusal_error(self, text: str) -> LocationError:
        """Make our own error from the message of a server."""
        if "AccessControlException" in text:
            return self.make_denied_error("see its owner and mode: hdfs dfs -ls")
        if "GSSAPI" in text or "Kerberos" in text or "token" in text.lower():
            return ExpiredError(f"{self.shown}: {text}", "see whether your ticket is valid: klist; renew it: kinit")
        if "All DataNodes failed" in text:  # followed by a dump of each of them
            text = "no DataNode that holds a part of it answers"
        return UnreachableError(f"{self.shown}: {text}", "see whether its NameNode and DataNodes are up")
