"""The live report page of a running job, by a web server on 127.0.0.1 that asks for a token.

Any program of any user of this machine can reach a port of 127.0.0.1, and any page in a browser can send requests
there. So a request is answered only if it has the token, which only the user gets, and a Host header with this
address, which prevents DNS rebinding.
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
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from millrace.core.errors import RefusedError
from millrace.extensions.watch import watch_view
from millrace.extensions.watch.watch_targets import WatchTarget
from millrace.extensions.watch.watch_view import WatchView
from millrace.report import html_report, openmetrics
from millrace.report.event_log import LoggedRun
from millrace.report.events import RunEvent
from millrace.report.html_report import LivePageMode

ADDRESS = "127.0.0.1"

#: Seconds after which a silent connection is closed.
MAX_SILENCE_SECONDS = 30.0

#: The policy of the page itself, which allows its own scripts only, plus directives that a page cannot set itself.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

#: The page loads nothing from elsewhere, is not framed or cached, and its address is not passed on.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class WebPage(NamedTuple):
    """The content for one request."""

    text: str
    #: Whether the content is final.
    last: bool = False
    content_type: str = "text/html; charset=utf-8"


#: Functions that render pages, by URL path.
Pages = dict[str, Callable[[], WebPage]]


class TokenSite(ThreadingHTTPServer):
    """An HTTP server whose pages need a token.

    Args:
        port: Port to listen on; 0: any free one.
        pages: Functions that render the pages, called in threads.
    """

    daemon_threads = True

    def __init__(self, port: int, pages: Pages) -> None:
        self.token = secrets.token_urlsafe(32)
        self._pages = pages
        #: Set once a final page was sent completely; the process may end then.
        self.told = threading.Event()
        super().__init__((ADDRESS, port), PageVisit)
        self.hosts = (f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}")

    def server_bind(self) -> None:
        """Bind the port without the name lookup of the base class, which may query another machine."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    @property
    def url(self) -> str:
        """The address for the user, with the token."""
        return f"http://{ADDRESS}:{self.server_port}/?token={self.token}"

    def is_admitted(self, host: str, token: str) -> bool:
        """Tell whether a request has the token and an allowed Host header."""
        # Check both always, so that the time reveals nothing.
        named = host.lower() in self.hosts
        return hmac.compare_digest(token.encode(errors="replace"), self.token.encode()) and named

    def build_page(self, path: str) -> WebPage | None:
        """Render the page at a path; None: there is none."""
        return self._pages[path]() if path in self._pages else None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that break."""


class PageVisit(BaseHTTPRequestHandler):
    """The handler of one connection."""

    server: TokenSite
    protocol_version = "HTTP/1.1"
    timeout = MAX_SILENCE_SECONDS

    def do_GET(self) -> None:
        """Send a page if the request is admitted; otherwise answer 403 for every path."""
        asked = urlsplit(self.path)
        token = parse_qs(asked.query).get("token", [""])[0]
        if not self.server.is_admitted(self.headers.get("Host", ""), token):
            self._send_answer(HTTPStatus.FORBIDDEN, "")
            return
        try:
            page = self.server.build_page(asked.path)
        except Exception as error:
            self._send_answer(
                HTTPStatus.INTERNAL_SERVER_ERROR, html.escape(f"millrace: this page cannot be made: {error!r}")
            )
            return
        if page is None:
            self._send_answer(HTTPStatus.NOT_FOUND, "")
        else:
            self._send_answer(HTTPStatus.OK, page.text, page.content_type)
            if page.last:
                self.server.told.set()

    def _send_answer(self, status: HTTPStatus, text: str, content_type: str = "text/html; charset=utf-8") -> None:
        """Send a complete response."""
        content = text.encode(errors="backslashreplace")
        self.send_response_only(status)  # without the version of this server
        for name, value in {**HEADERS, "Content-Type": content_type, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer 403 to a malformed or unsupported request."""
        self.close_connection = True
        self._send_answer(HTTPStatus.FORBIDDEN, "")

    def log_message(self, *_: Any) -> None:
        """Log nothing: the address contains the token."""


@contextmanager
def serve_site(port: int, pages: Pages) -> Iterator[TokenSite]:
    """Serve pages in a thread until the context is left.

    Raises:
        RefusedError: The port cannot be bound.
    """
    try:
        site = TokenSite(port, pages)
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


class LivePage:
    """The live page of a run or of a job in phases. Thread-safe.

    Args:
        run_dir: The run directory as typed.
    """

    def __init__(self, watched: WatchTarget, run_dir: str) -> None:
        self._watched, self._run_dir = watched, Path(run_dir)
        self._lock = threading.Lock()
        self._view = watched.read_view()

    @property
    def pages(self) -> Pages:
        """The page at ``/``, its changing content at ``/content``, and the figures for Prometheus at ``/metrics``."""
        return {
            "/": lambda: self._render_page(whole=True),
            "/content": lambda: self._render_page(whole=False),
            "/metrics": self._render_metrics,
        }

    def read_view(self) -> WatchView:
        """Return the present state of the job."""
        with self._lock:
            return self._refresh_view()

    def _refresh_view(self) -> WatchView:
        """Read the state again, unless the job has ended. The lock must be held."""
        if not self._view.is_over:
            self._view = self._watched.read_view()
        return self._view

    def _render_metrics(self) -> WebPage:
        with self._lock:
            found = [watch_view.make_metrics(each) for each in (self._refresh_view(), *self._view.phases)]
        return WebPage(openmetrics.format_metrics(found), content_type="text/plain; version=0.0.4; charset=utf-8")

    def _render_page(self, *, whole: bool) -> WebPage:
        """Render the page, or with ``whole=False`` only its changing content."""
        with self._lock:
            view = self._refresh_view()
            live = LivePageMode(whole, view.is_over)
            text = (
                watch_view.render_phases_page(view, self._run_dir, live)
                if view.phases
                else html_report.render_page(view.runs or [LoggedRun(RunEvent())], self._run_dir, live)
            )
            return WebPage(text, last=view.is_over)
