"""HDFS by ``hdfs-native``, without Java: settings from ``HADOOP_CONF_DIR``, identity from Kerberos or the user name."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from millrace.errors import RefusedError
from millrace.storage.clients.base import (
    About,
    ExpiredError,
    Location,
    LocationError,
    UnreachableError,
    client,
    first_line,
    nobody,
)

#: HDFS's default block size, for a file whose status does not tell it.
BLOCK_BYTES = 128 << 20

#: The client's default of 15 attempts takes three minutes if no server answers.
SETTINGS = {"dfs.client.failover.max.attempts": "3"}


class Hdfs(Location):
    """A closed file, or a folder. A file that its writer has not closed yet counts as missing."""

    def __init__(self, url: str, shown: str) -> None:
        super().__init__(url, shown)
        self._native = native = client("hdfs_native", "hdfs", shown)
        parts = urlsplit(url, allow_fragments=False)
        self._path = unquote(parts.path) or "/"
        with self._told():
            self._client = native.Client(f"hdfs://{parts.netloc}", SETTINGS)

    def about(self) -> About:
        with self._told():
            return self._about(self._client.get_file_info(self._path))

    def stream(self, offset: int, length: int, about: About) -> Iterator[bytes]:
        return (piece for _, piece in self.pieces([(offset, offset + length)] if length else [], about))

    def pieces(self, ranges: Iterable[tuple[int, int]], about: About) -> Iterator[tuple[int, bytes]]:
        if not (ranges := list(ranges)):
            return
        with self._told():
            self._check(about)
            with self._client.read(self._path) as reader:  # once: the NameNode is asked for the blocks
                for first, last in ranges:
                    at = first
                    for piece in reader.read_range_stream(first, last - first):
                        yield at, bytes(piece)
                        at += len(piece)
            self._check(about)

    def _check(self, about: About) -> None:
        now = self._about(self._client.get_file_info(self._path))
        if (now.size, now.version) != (about.size, about.version):
            raise self.changed()

    def names(self, folders: bool = False) -> list[str]:
        with self._told():
            entries = list(self._client.list_status(self._path))
        return sorted(entry.path.rpartition("/")[2] for entry in entries if entry.isdir == folders)

    def check_writable(self) -> None:
        with self._told():
            self._see_folder()
            with suppress(FileNotFoundError):
                self._about(self._client.get_file_info(self._path))
            new = self.unfinished(f"{self._path}.try")  # a failed write removes its own file
            self._client.create(new, self._native.WriteOptions(overwrite=True, create_parent=False)).close()
            self._client.delete(new)

    def write(self, pieces: Iterable[bytes], n_bytes: int, begun: Callable[[str], None] = nobody) -> None:
        new = self.unfinished(self._path)
        with self._told():
            self._see_folder()
            begun(new)
            try:
                with self._client.create(new, self._native.WriteOptions(overwrite=True, create_parent=False)) as file:
                    for piece in pieces:
                        file.write(piece)
                if (there := self._client.get_file_info(new).length) != n_bytes:
                    raise self.short(there, n_bytes)
                self._client.rename(new, self._path, overwrite=True)
            except BaseException:
                with suppress(Exception):  # the first error is the one to report
                    self._client.delete(new)
                raise

    def discard(self, begun: str) -> bool:
        with self._told():
            return bool(self._client.delete(begun, recursive=True))

    def begin_folder(self) -> str:
        """Make an unfinished folder, which ``end_folder`` renames to this place; return its path.

        Removes unfinished folders of dead processes of this host.

        Raises:
            MillraceError: The place is not empty, or the folder cannot be made.
        """
        above, _, name = self._path.rpartition("/")
        if not name:
            raise RefusedError(f"{self.shown}: names no folder", "as in: hdfs://namenode/db/nr")
        with self._told():
            with suppress(FileNotFoundError):
                there = self._client.get_file_info(self._path)
                if not there.isdir or any(self._client.list_status(self._path)):
                    raise RefusedError(f"{self.shown} is there already", "give another folder, or remove it")
            self._client.mkdirs(above or "/", 0o755, create_parent=True)
            begins = f".{name[-100:]}.{socket.gethostname()}."
            for pid in self._begun(above or "/", begins):
                self._client.delete(f"{above}/{begins}{pid}.part", recursive=True)
            begun = f"{above}/{begins}{os.getpid()}.part"
            self._client.mkdirs(begun, 0o755, create_parent=False)
            return begun

    def _begun(self, folder: str, begins: str) -> Iterator[int]:
        """Yield the ids of dead processes that left an unfinished folder there."""
        for entry in self._client.list_status(folder):
            name = entry.path.rpartition("/")[2]
            pid = name[len(begins) : -len(".part")]
            is_its = name == f"{begins}{pid}.part" and pid.isdigit()
            if is_its and (int(pid) == os.getpid() or not os.path.exists(f"/proc/{pid}")):
                yield int(pid)

    def end_folder(self, begun: str) -> None:
        """Rename an unfinished folder to this place, in one step.

        Raises:
            MillraceError: The place is not empty any more, or the folder cannot be renamed.
        """
        with self._told():
            # ``overwrite`` replaces only an empty folder.
            self._client.rename(begun, self._path, overwrite=True)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes in bytes of the files in a folder, by name."""
        with self._told():
            return {entry.path.rpartition("/")[2]: entry.length for entry in self._client.list_status(folder)}

    def _see_folder(self) -> None:
        try:
            is_folder = self._client.get_file_info(self._path.rpartition("/")[0] or "/").isdir
        except FileNotFoundError:
            is_folder = False
        if not is_folder:
            raise self.missing_folder()

    def _about(self, status: Any) -> About:
        if status.isdir:
            raise self.not_a_file()
        when = status.modification_time
        version = f"{when:x}.{status.length:x}"
        return About(
            size=status.length, version=version, mtime_ns=when * 10**6, block_bytes=status.blocksize or BLOCK_BYTES
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Translate errors of the client into our own, without the server's stack traces."""
        try:
            yield
        except FileNotFoundError as error:
            raise self.missing() from error
        except PermissionError as error:
            raise self.denied("see its owner and mode: hdfs dfs -ls") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise self.refusal(first_line(error)) from error

    def refusal(self, text: str) -> LocationError:
        """Make our own error from the message of a server."""
        if "AccessControlException" in text:
            return self.denied("see its owner and mode: hdfs dfs -ls")
        if "GSSAPI" in text or "Kerberos" in text or "token" in text.lower():
            return ExpiredError(f"{self.shown}: {text}", "see whether your ticket is valid: klist; renew it: kinit")
        if "All DataNodes failed" in text:  # followed by a dump of each of them
            text = "no DataNode that holds a part of it answers"
        return UnreachableError(f"{self.shown}: {text}", "see whether its NameNode and DataNodes are up")
