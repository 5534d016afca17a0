"""FTP by Python's own ``ftplib``, for reading: names and passwords from ``~/.netrc``, else anonymous.

Paths are those of RFC 1738: relative to the folder of the login. Size and time of change (RFC 3659) are compared before
and after each part, so that bytes of two versions are never mixed.
"""

from __future__ import annotations

import ftplib
import netrc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit

from millrace.storage.clients.base import (
    DeniedError,
    FileLocation,
    FileStatus,
    LocationError,
    UnreachableError,
    extract_first_line,
)

#: Timeouts for the connection, and for each answer and each part of a file.
CONNECT_SECONDS, ANSWER_SECONDS = 10, 60

#: Most bytes that are read at a time.
STREAM_BYTES = 1 << 18


class FtpLocation(FileLocation):
    """A file or folder on an FTP server."""

    def __init__(self, url: str, shown: str) -> None:
        super().__init__(url, shown)
        parts = urlsplit(url, allow_fragments=False)
        self._host, self._port = parts.hostname or "", parts.port or ftplib.FTP_PORT
        self._path = unquote(parts.path[1:] + (f"?{parts.query}" if parts.query else ""))
        self._talk: ftplib.FTP | None = None

    def query_status(self) -> FileStatus:
        with self._translate_errors():
            return self._query_file(self._connect_ftp())

    def stream_bytes(self, offset: int, length: int, about: FileStatus) -> Iterator[bytes]:
        if not length:
            return
        with self._translate_errors():
            ftp = self._connect_ftp()
            if self._query_file(ftp) != about:
                raise self.make_changed_error()
            connection = ftp.transfercmd(f"RETR {self._path}", offset or None)
            try:
                while length and (piece := connection.recv(min(STREAM_BYTES, length))):
                    length -= len(piece)
                    yield piece
            except BaseException:
                self.close()  # its answer would be taken for that of the next request
                raise
            finally:
                connection.close()
            with suppress(ftplib.error_temp, ftplib.error_perm):  # a part that ends before the file
                ftp.getresp()
            if self._query_file(ftp) != about:
                raise self.make_changed_error()

    def list_names(self, folders: bool = False) -> list[str]:
        with self._translate_errors():
            ftp = self._connect_ftp()
            try:
                entries = list(ftp.mlsd(self._path, ["type"]))
                found = [(name, facts.get("type", "") in ("dir", "cdir", "pdir")) for name, facts in entries]
            except ftplib.error_perm as error:
                if not str(error).startswith(("500", "502")):
                    raise
                lines: list[str] = []
                ftp.dir(self._path, lines.append)
                found = _parse_unix_listing(lines)
            finally:
                ftp.voidcmd("TYPE I")  # a listing is text
        return sorted(name for name, is_folder in found if is_folder is folders and name not in (".", ".."))

    def close(self) -> None:
        if self._talk:
            self._talk.close()
            self._talk = None

    def _connect_ftp(self) -> ftplib.FTP:
        if self._talk is None:
            ftp = ftplib.FTP(timeout=CONNECT_SECONDS)
            try:
                ftp.connect(self._host, self._port)
                ftp.timeout = ANSWER_SECONDS
                if ftp.sock:
                    ftp.sock.settimeout(ANSWER_SECONDS)
                ftp.login(*self._read_login())
                ftp.voidcmd("TYPE I")
            except BaseException:
                ftp.close()
                raise
            self._talk = ftp
        return self._talk

    def _read_login(self) -> tuple[str, str, str]:
        """Read name, password and account from the user's file; all empty: anonymous.

        Raises:
            DeniedError: The file is not a valid one, or others may read it.
        """
        try:
            found = netrc.netrc(os.environ.get("NETRC")).authenticators(self._host)
        except netrc.NetrcParseError as error:
            raise DeniedError(
                f"{self.shown}: ~/.netrc cannot be used: {error}", "correct it; chmod 600 ~/.netrc"
            ) from error
        except (OSError, RuntimeError):
            found = None
        login, account, password = found or ("", "", "")
        return login or "", password or "", account or ""

    def _query_file(self, ftp: ftplib.FTP) -> FileStatus:
        size = ftp.size(self._path)
        if size is None:
            raise LocationError(f"{self.shown}: the server does not say how large it is", "use another place")
        version, mtime_ns = "", 0
        with suppress(ftplib.error_perm, ValueError):  # a server without times
            changed = ftp.sendcmd(f"MDTM {self._path}")[4:].strip()
            mtime_ns = int(datetime.strptime(changed[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()) * 10**9
            version = f"{changed}.{size:x}"
        return FileStatus(size=size, version=version, mtime_ns=mtime_ns)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of ``ftplib`` into our own; after one that ends the connection, the next request makes another."""
        try:
            yield
        except ftplib.error_perm as error:
            raise self._make_refusal_error(error) from error
        except (ftplib.Error, EOFError, OSError) as error:
            self.close()
            raise UnreachableError(
                f"{self.shown}: no whole answer ({extract_first_line(error)})",
                "see whether host and network are up, and try again",
            ) from error
        except ValueError as error:
            raise LocationError(
                f"{self.shown}: not a name of a file: {error}", "see whether the URL is right"
            ) from error

    def _make_refusal_error(self, error: ftplib.error_perm) -> LocationError:
        text = extract_first_line(error)
        if text.startswith(("530", "532")):
            return DeniedError(
                f"{self.shown}: wants a name and a password ({text})",
                "write them into ~/.netrc: machine HOST login NAME password WORD; and: chmod 600 ~/.netrc",
            )
        if "denied" in text.lower():
            return self.make_denied_error("ask its owner, or see ~/.netrc")
        if text.startswith("550"):
            return self.make_not_a_file_error() if self._is_folder() else self.make_missing_error()
        return LocationError(f"{self.shown}: the server answered {text}", "see whether the URL is right")

    def _is_folder(self) -> bool:
        """Tell whether the path is a folder: another connection goes there, as this one would stay in it."""
        self.close()
        with suppress(ftplib.Error, EOFError, OSError):
            self._connect_ftp().cwd(self._path)
            return True
        return False


def _parse_unix_listing(lines: list[str]) -> list[tuple[str, bool]]:
    """Parse the lines of ``ls -l``, which servers without MLSD send: names, and whether each is a folder.

    >>> _parse_unix_listing(["-rw-r--r-- 1 ftp ftp 5 Nov 28 14:05 nr 1.faa", "drwxr-xr-x 2 ftp ftp 6 Nov 28 14:05 old"])
    [('nr 1.faa', False), ('old', True)]
    """
    words = [line.split(maxsplit=8) for line in lines]
    return [(each[8].partition(" -> ")[0], each[0].startswith("d")) for each in words if len(each) == 9]
