"""A real HTTP or HTTPS server of files with ranges, which can be told to misbehave."""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


@dataclass
class Web:
    """What is served, and how."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    #: Changes with a file; one of its own for each.
    tags: dict[str, str] = field(default_factory=dict)
    #: How many bytes of a body are sent before the connection is cut; None: all.
    cut: int | None = None
    ranges: bool = True
    #: Whether folders can be listed.
    lists: bool = True
    #: Whether it tells versions, and digests.
    tells_version: bool = True
    tells_digest: bool = False
    #: Whether a byte is another one than it should be.
    spoil: bool = False
    #: An answer in place of every file.
    status: int = 0
    #: ``name:password`` that is wanted.
    login: str = ""
    #: Requests for more than one byte, and the bytes that were sent for them.
    n_downloads: int = 0
    n_bytes: int = 0
    #: The same bytes, and the requests for whole files, by the name of the file.
    sent: Counter[str] = field(default_factory=Counter)
    whole: Counter[str] = field(default_factory=Counter)
    #: Where in the file each of these requests begins.
    asked: list[int] = field(default_factory=list)
    #: Called before each piece of a body.
    between: object = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, name: str, content: bytes) -> str:
        """Serve a file; its URL."""
        self.files[name] = content
        self.tags[name] = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        return f"{self.url}/{name}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: Web

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        name = unquote(self.path.partition("?")[0]).lstrip("/")
        wanted = "Basic " + base64.b64encode(self.web.login.encode()).decode()
        if self.web.status:
            self._end(self.web.status)
        elif self.web.login and self.headers.get("Authorization") != wanted:
            self._end(401)
        elif not name or name.endswith("/"):
            self._list(name) if self.web.lists else self._end(403)
        elif name not in self.web.files:
            self._end(404)
        else:
            self._send(name, self.web.files[name])

    def _end(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": "0", **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()

    def _list(self, folder: str) -> None:
        names = [name[len(folder) :] for name in self.web.files if name.startswith(folder)]
        page = "".join(f'<a href="{name}">{name}</a>\n' for name in ["../", "?C=N;O=D", *names]).encode()
        self._end(200, {"Content-Length": str(len(page)), "Content-Type": "text/html"})
        self.wfile.write(page)

    def _send(self, name: str, content: bytes) -> None:
        first, last, status = 0, len(content) - 1, 200
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found and self.web.ranges:
            first, last, status = int(found[1]), min(int(found[2]), last), 206
        headers = {"Content-Length": str(last - first + 1)}
        if status == 206:
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            if first >= len(content):
                self._end(416, {"Content-Range": f"bytes */{len(content)}", **self._version(name)})
                return
        if self.web.tells_digest:
            digest = base64.b64encode(hashlib.sha256(self.web.files[name]).digest()).decode()
            headers["Repr-Digest"] = f"sha-256=:{digest}:"
        self._end(status, headers | self._version(name))
        body = content[first : last + 1]
        if len(body) > 1:
            with self.web.lock:
                self.web.asked.append(first)
                self.web.whole[name] += len(body) == len(content)
        self._body(name, bytes([body[0] ^ 1]) + body[1:] if self.web.spoil else body)

    def _version(self, name: str) -> dict[str, str]:
        if not self.web.tells_version:
            return {}
        return {"ETag": self.web.tags[name], "Last-Modified": "Mon, 02 Mar 2026 10:00:00 GMT"}

    def _body(self, name: str, content: bytes) -> None:
        if len(content) > 1:
            with self.web.lock:
                self.web.n_downloads += 1
        at = 0
        while at < len(content):
            if callable(self.web.between) and len(content) > 1:
                self.web.between()
            piece = content[at : at + (1 << 16)]
            if self.web.cut is not None and len(content) > 1 and at + len(piece) > self.web.cut:
                self.wfile.write(piece[: max(0, self.web.cut - at)])
                self.close_connection = True
                return
            if len(content) > 1:  # counted first: who has got it may look at once
                with self.web.lock:
                    self.web.n_bytes += len(piece)
                    self.web.sent[name] += len(piece)
            try:
                self.wfile.write(piece)
            except OSError:
                self.close_connection = True
                return
            at += len(piece)


@contextmanager
def serve(certificate: Path | None = None, host: str = "") -> Iterator[Web]:
    """A server at a free port of this machine, or of one of its addresses; with a certificate (and its key in the same file) it speaks HTTPS."""
    web = Web()
    handler = type("Bound", (Handler,), {"web": web})
    server = ThreadingHTTPServer((host or "127.0.0.1", 0), handler)
    server.daemon_threads = True
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    web.url = f"{'https' if certificate else 'http'}://{host or 'localhost'}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
