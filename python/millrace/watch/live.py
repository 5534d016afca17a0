"""The live report page of a running job."""

from __future__ import annotations

import threading
from pathlib import Path

from millrace.report import html
from millrace.report.events import RunEvent
from millrace.report.html import LivePageMode
from millrace.report.runs import LoggedRun
from millrace.watch import phases
from millrace.watch.view import WatchView
from millrace.watch.watched import WatchTarget
from millrace.watch.web import Pages, WebPage


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
        """The page at ``/``, and its changing content at ``/content``."""
        return {"/": lambda: self._render_page(whole=True), "/content": lambda: self._render_page(whole=False)}

    def read_view(self) -> WatchView:
        """Return the present state of the job."""
        with self._lock:
            return self._refresh_view()

    def _refresh_view(self) -> WatchView:
        """Read the state again, unless the job has ended. The lock must be held."""
        if not self._view.is_over:
            self._view = self._watched.read_view()
        return self._view

    def _render_page(self, *, whole: bool) -> WebPage:
        """Render the page, or with ``whole=False`` only its changing content."""
        with self._lock:
            view = self._refresh_view()
            live = LivePageMode(whole, view.is_over)
            text = (
                phases.render_phases_page(view, self._run_dir, live)
                if view.phases
                else html.render_page(view.runs or [LoggedRun(RunEvent())], self._run_dir, live)
            )
            return WebPage(text, last=view.is_over)
