"""HTTP and HTTPS by ``requests``: passwords from ``~/.netrc``, proxies and certificates from the environment.

The version in each answer is compared, so that bytes of two versions are never mixed. A server that sends the whole
file instead of the requested part is accepted.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from millrace.storage.clients.base import (
    DeniedError,
    FileLocation,
    FileStatus,
    LocationError,
    UnreachableError,
    extract_first_line,
    import_client,
)

#: Timeouts for the connection and between two parts of an answer.
TIMEOUT_SECONDS = (10, 60)

#: Bytes that are read before they are passed on; a kill loses so many, and those in the socket.
STREAM_BYTES = 1 << 18


class HttpLocation(FileLocation):
    """A file behind a URL, or the page that lists a folder."""

    def __init__(self, url: str, shown: str) -> None:
        super().__init__(url, shown)
        self._requests = import_client("requests", "http", shown)
        self._session = self._requests.Session()
        # Any other encoding would change the bytes.
        self._session.headers["Accept-Encoding"] = "identity"

    def query_status(self) -> FileStatus:
        with self._open_answer({"Range": "bytes=0-0"}) as answer:
            if answer.status_code != 200:
                answer.raw.drain_conn()  # one byte: keeps the connection alive
            return self._make_status(answer)

    def stream_bytes(self, offset: int, length: int, about: FileStatus) -> Iterator[bytes]:
        if not length:
            return
        with self._open_answer({"Range": f"bytes={offset}-{offset + length - 1}"}) as answer:
            if _read_version(answer) != about.version or _read_size(answer) != about.size:
                raise self.make_changed_error()
            skip = offset - _read_first_offset(answer)
            if skip < 0:
                raise LocationError(
                    f"{self.shown}: the server gave another part than was asked for", "use another place"
                )
            for piece in answer.raw.stream(STREAM_BYTES, decode_content=False):
                part = piece[skip : skip + length]
                skip = max(0, skip - len(piece))
                length -= len(part)
                if part:
                    yield part
                if not length and answer.status_code == 200:
                    return  # skip the rest of a whole file; a part has none, and its connection is reused

    def list_names(self, folders: bool = False) -> list[str]:
        with self._open_answer({}) as answer:
            page = _LinkParser()
            page.feed(answer.text)
            base = answer.url
        below = (urljoin(base, link) for link in page.links)
        folder = urlsplit(base).path.rpartition("/")[0] + "/"
        paths = [urlsplit(link).path for link in below if urlsplit(link).netloc == urlsplit(base).netloc]
        names = {unquote(path[len(folder) :]) for path in paths if path.startswith(folder)}
        if folders:
            names = {name[:-1] for name in names if name.endswith("/")}
        return sorted(name for name in names if name and "/" not in name)

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def _open_answer(self, headers: dict[str, str]) -> Iterator[Any]:
        import urllib3  # comes with requests

        try:
            with self._session.get(self.url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as answer:
                if answer.status_code not in (200, 206, 416):
                    raise self._make_refusal_error(answer.status_code, answer.reason)
                yield answer
        except self._requests.exceptions.SSLError as error:
            raise DeniedError(
                f"{self.shown}: its certificate is not trusted ({extract_first_line(error)})",
                "name the authority of your site in REQUESTS_CA_BUNDLE",
            ) from error
        except (self._requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError(
                f"{self.shown}: no whole answer ({_find_innermost_cause(error)})",
                "see whether host and network are up, and try again",
            ) from error

    def _make_status(self, answer: Any) -> FileStatus:
        size = _read_size(answer)
        if size is None:
            raise LocationError(f"{self.shown}: the server does not say how large it is", "use another place")
        mtime_ns = 0
        with suppress(TypeError, ValueError):
            mtime_ns = int(parsedate_to_datetime(answer.headers.get("Last-Modified")).timestamp()) * 10**9
        return FileStatus(
            size=size, version=_read_version(answer), mtime_ns=mtime_ns, checksum=_read_checksum(answer.headers),
            has_ranges=answer.status_code != 200,
        )  # fmt: skip

    def _make_refusal_error(self, status: int, reason: str) -> LocationError:
        if status in (401, 407):
            return DeniedError(
                f"{self.shown}: wants a name and a password ({status})",
                "write them into ~/.netrc: machine HOST login NAME password WORD; and: chmod 600 ~/.netrc",
            )
        if status == 403:
            return DeniedError(f"{self.shown}: permission denied (403)", "ask its owner, or see ~/.netrc")
        if status in (404, 410):
            return self.make_missing_error()
        if status == 429 or status >= 500:
            return UnreachableError(
                f"{self.shown}: the server cannot answer now ({status} {reason})", "try again later"
            )
        return LocationError(f"{self.shown}: the server answered {status} {reason}", "see whether the URL is right")


class _LinkParser(HTMLParser):
    """A parser that collects the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]


def _read_version(answer: Any) -> str:
    parts = (answer.headers.get("ETag"), answer.headers.get("Last-Modified"))
    return " ".join(part for part in parts if part)


def _read_size(answer: Any) -> int | None:
    """Return the bytes of the whole file; None if the server does not say."""
    if answer.status_code == 200:
        text = answer.headers.get("Content-Length", "")
    else:
        text = answer.headers.get("Content-Range", "").rpartition("/")[2]
    return int(text) if text.isdigit() else None


def _read_first_offset(answer: Any) -> int:
    """Return the offset in the file at which the answer begins."""
    found = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(found[1]) if answer.status_code == 206 and found else 0


def _read_checksum(headers: Any) -> str:
    """Return the digest of the whole file from the headers of RFC 9530 or RFC 3230; empty: none."""
    for name in ("Repr-Digest", "Digest"):
        if found := re.search(r"sha-256=:?([A-Za-z0-9+/]{43}=)", headers.get(name, ""), re.IGNORECASE):
            return f"sha256:{base64.b64decode(found[1]).hex()}"
    return ""


def _find_innermost_cause(error: BaseException) -> str:
    """Return the text of the innermost error: the outer ones repeat the URL."""
    seen: BaseException = error
    while True:
        inner = next((each for each in seen.args if isinstance(each, BaseException)), None) or getattr(
            seen, "reason", None
        )
        if not isinstance(inner, BaseException):
            break
        seen = inner
    text = seen.strerror if isinstance(seen, OSError) and seen.strerror else extract_first_line(seen)
    return re.sub(r"^\w+\(.*?\): |^<.*?>: ", "", text)
