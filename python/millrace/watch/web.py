"""A page on this machine alone, for whoever knows its token.

Any program of this machine, of any user, can reach a port of 127.0.0.1, and any page that a browser shows can have it ask
there. So a request counts only with the token, which is told to the user alone, and only if it names this address: a name
that another machine made point here (DNS rebinding) is no way in.
"""

from __future__ import annotations

import hmac
import html
import secrets
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from millrace.errors import RefusedError

ADDRESS = "127.0.0.1"

#: Seconds after which a connection that says nothing is closed.
SILENT_SECONDS = 30.0

#: As the page's own, which allows its scripts alone, with what a page cannot say of itself.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

#: Nothing may load anything, show the page in a frame, keep it, or learn its address.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Content-Type": "text/html; charset=utf-8",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Page(NamedTuple):
    """What is shown at one visit."""

    text: str
    #: Nothing will change any more.
    last: bool = False


#: Path to what is shown there.
Pages = dict[str, Callable[[], Page]]


class Site(ThreadingHTTPServer):
    """Pages behind a token.

    Args:
        port: 0: any that is free.
        pages: Called in threads of their own.
    """

    daemon_threads = True

    def __init__(self, port: int, pages: Pages) -> None:
        self.token = secrets.token_urlsafe(32)
        self._pages = pages
        #: Set once a visitor has got a page that is the last; not before all of it was sent, as this process may end then.
        self.told = threading.Event()
        super().__init__((ADDRESS, port), Visit)
        self.hosts = (f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}")

    def server_bind(self) -> None:
        """Take the port; without the base class's look for a name, which may ask another machine."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    @property
    def url(self) -> str:
        """What the user opens."""
        return f"http://{ADDRESS}:{self.server_port}/?token={self.token}"

    def admits(self, host: str, token: str) -> bool:
        """Whether a request may see anything."""
        # Both are looked at, so that the time tells nothing.
        named = host.lower() in self.hosts
        return hmac.compare_digest(token.encode(errors="replace"), self.token.encode()) and named

    def page(self, path: str) -> Page | None:
        """What is at a path; None: nothing."""
        return self._pages[path]() if path in self._pages else None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of visitors that go away."""


class Visit(BaseHTTPRequestHandler):
    """One connection."""

    server: Site
    protocol_version = "HTTP/1.1"
    timeout = SILENT_SECONDS

    def do_GET(self) -> None:
        """Show a page to who may see it; nobody else learns even which there are."""
        asked = urlsplit(self.path)
        token = parse_qs(asked.query).get("token", [""])[0]
        if not self.server.admits(self.headers.get("Host", ""), token):
            self._answer(HTTPStatus.FORBIDDEN, "")
            return
        try:
            page = self.server.page(asked.path)
        except Exception as error:
            self._answer(
                HTTPStatus.INTERNAL_SERVER_ERROR, html.escape(f"millrace: this page cannot be made: {error!r}")
            )
            return
        if page is None:
            self._answer(HTTPStatus.NOT_FOUND, "")
        else:
            self._answer(HTTPStatus.OK, page.text)
            if page.last:
                self.server.told.set()

    def _answer(self, status: HTTPStatus, text: str) -> None:
        content = text.encode(errors="backslashreplace")
        self.send_response_only(status)  # without the version of this server
        for name, value in {**HEADERS, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no request, or none of ours."""
        self.close_connection = True
        self._answer(HTTPStatus.FORBIDDEN, "")

    def log_message(self, *_: Any) -> None:
        """The address has the token in it."""


@contextmanager
def served(port: int, pages: Pages) -> Iterator[Site]:
    """A site that answers until the context is left.

    Raises:
        RefusedError: The port cannot be had.
    """
    try:
        site = Site(port, pages)
    except (OSError, OverflowError) as error:
        raise RefusedError(f"port {port}: {error}", "name another with --port, or none") from error
    thread = threading.Thread(target=site.serve_forever, args=(0.1,), name="web", daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.shutdown()
        site.server_close()
        thread.join()
