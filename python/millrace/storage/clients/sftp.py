"""SFTP by the user's own ``ssh``: keys, agent, known hosts, names and jumps of ``~/.ssh/config`` apply.

``paramiko`` only speaks the protocol, over a socket to ``ssh -s HOST sftp``.
"""

from __future__ import annotations

import re
import select
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from millrace.core.errors import RefusedError
from millrace.storage.clients.base import (
    DeniedError,
    FileLocation,
    FileStatus,
    LocationError,
    UnreachableError,
    ignore_token,
    import_client,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: Bytes that every server sends in one answer, and bytes that are requested at a time.
ANSWER_BYTES, WINDOW_BYTES = 1 << 15, 1 << 23


class _SshChannelSocket(socket.socket):
    """A socket with the other channel methods that ``paramiko`` calls."""

    def get_name(self) -> str:
        return "ssh"

    def recv_ready(self) -> bool:
        """Tell whether an answer is there."""
        return bool(select.select([self], [], [], 0)[0])

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Send as a socket does, but drop data once it is closed.

        A thread of ``paramiko`` may still request data that was read another way, and would end with a traceback.
        """
        try:
            return super().send(data, flags)
        except OSError:
            if self.fileno() >= 0:
                raise
            return memoryview(data).nbytes


class SftpLocation(FileLocation):
    """A file or folder on a host that ``ssh`` reaches without a password."""

    def __init__(self, url: str, shown: str) -> None:
        super().__init__(url, shown)
        self._paramiko = import_client("paramiko", "sftp", shown)
        parts = urlsplit(url, allow_fragments=False)
        self._path = unquote(parts.path) or "/"
        ssh = shutil.which("ssh")
        if not ssh:
            raise RefusedError(f"{shown}: reading it needs ssh, which is not installed", "install an OpenSSH client")
        user = ["-l", parts.username] if parts.username else []
        port = ["-p", str(parts.port)] if parts.port else []
        options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
        self._argv = [ssh, "-T", *options, *user, *port, "-s", "--", parts.hostname or "", "sftp"]
        self._process: subprocess.Popen[bytes] | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._socket: _SshChannelSocket | None = None
        self._talk: Any = None

    def query_status(self) -> FileStatus:
        with self._translate_errors():
            return self._make_status(self._connect_sftp().stat(self._path))

    def stream_bytes(self, offset: int, length: int, about: FileStatus) -> Iterator[bytes]:
        with self._translate_errors(), self._connect_sftp().open(self._path, "rb") as file:
            if self._make_status(file.stat()) != about:
                raise self.make_changed_error()
            end = offset + length
            for start in range(offset, end, WINDOW_BYTES):
                stop = min(start + WINDOW_BYTES, end)
                yield from file.readv([(at, min(ANSWER_BYTES, stop - at)) for at in range(start, stop, ANSWER_BYTES)])
            if self._make_status(file.stat()) != about:
                raise self.make_changed_error()

    def list_names(self, folders: bool = False) -> list[str]:
        with self._translate_errors():
            entries = self._connect_sftp().listdir_attr(self._path)
        is_meant = stat.S_ISDIR if folders else stat.S_ISREG
        return sorted(entry.filename for entry in entries if is_meant(entry.st_mode))

    def check_writable(self) -> None:
        with self._translate_errors():
            self._check_folder()
            with suppress(FileNotFoundError):
                self._make_status(self._connect_sftp().stat(self._path))
            new = self.make_unfinished_path(f"{self._path}.try")  # a failed write removes its own file
            self._connect_sftp().open(new, "wb").close()
            self._connect_sftp().remove(new)

    def write_file(self, pieces: Iterable[bytes], n_bytes: int, begun: Callable[[str], None] = ignore_token) -> None:
        new = self.make_unfinished_path(self._path)
        with self._translate_errors():
            self._check_folder()
            begun(new)
            try:
                with self._connect_sftp().open(new, "wb") as file:
                    file.set_pipelined(True)
                    for piece in pieces:
                        file.write(piece)
                if (there := self._connect_sftp().stat(new).st_size) != n_bytes:
                    raise self.make_short_error(there, n_bytes)
                self._connect_sftp().posix_rename(new, self._path)
            except BaseException:
                with suppress(Exception):  # the first error is the one to report
                    self._connect_sftp().remove(new)
                raise

    def discard_write(self, begun: str) -> bool:
        with self._translate_errors():
            try:
                self._connect_sftp().remove(begun)
            except FileNotFoundError:
                return False
        return True

    def _check_folder(self) -> None:
        try:
            self._connect_sftp().stat(self._path.rpartition("/")[0] or "/")
        except FileNotFoundError:
            raise self.make_missing_folder_error() from None

    def close(self) -> None:
        if self._socket:
            self._socket.close()
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = self._talk = self._socket = None
        self._said.close()

    def _connect_sftp(self) -> Any:
        if self._talk is None:
            ours, theirs = socket.socketpair()
            self._socket = _SshChannelSocket(fileno=ours.detach())
            with theirs:
                end = theirs.fileno()
                self._process = subprocess.Popen(self._argv, stdin=end, stdout=end, stderr=self._said)
            self._talk = self._paramiko.SFTPClient(self._socket)
        return self._talk

    def _make_status(self, about: Any) -> FileStatus:
        if about.st_mode is not None and not stat.S_ISREG(about.st_mode):
            raise self.make_not_a_file_error()
        return FileStatus(
            size=about.st_size, version=f"{about.st_mtime:x}.{about.st_size:x}", mtime_ns=about.st_mtime * 10**9
        )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of ``paramiko`` and ``ssh`` into our own."""
        try:
            yield
        except FileNotFoundError as error:
            raise self.make_missing_error() from error
        except PermissionError as error:
            raise self.make_denied_error("see its owner and mode on that host") from error
        except (self._paramiko.SSHException, EOFError, OSError) as error:
            raise self._make_ssh_error(error) from error

    def _make_ssh_error(self, error: BaseException) -> LocationError:
        """Make an error from the last output of ``ssh``."""
        if self._process:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                return LocationError(f"{self.shown}: the server answered: {error}", "see whether it serves sftp")
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        last = lines[-1].strip().rstrip(".") if lines else str(error)
        if re.search("Permission denied|Host key verification failed|REMOTE HOST IDENTIFICATION", "\n".join(lines)):
            return DeniedError(
                f"{self.shown}: {last}", f"this has to work without a question: {self._format_sftp_command()}"
            )
        return UnreachableError(f"{self.shown}: {last}", f"see whether this works: {self._format_sftp_command()}")

    def _format_sftp_command(self) -> str:
        parts = urlsplit(self.url)
        port = f"-P {parts.port} " if parts.port else ""
        return f"sftp {port}{parts.username + '@' if parts.username else ''}{parts.hostname}"
