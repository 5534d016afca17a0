"""The live report page of a running job."""

from __future__ import annotations

import threading
from pathlib import Path

from millrace.report import html
from millrace.report.events import RunEvent
from millrace.report.html import Live
from millrace.report.runs import Run
from millrace.watch import phases
from millrace.watch.view import View
from millrace.watch.watched import Watched
from millrace.watch.web import Page, Pages


class LivePage:
    """The live page of a run or of a job in phases. Thread-safe.

    Args:
        run_dir: The run directory as typed.
    """

    def __init__(self, watched: Watched, run_dir: str) -> None:
        self._watched, self._run_dir = watched, Path(run_dir)
        self._lock = threading.Lock()
        self._view = watched.look()

    @property
    def pages(self) -> Pages:
        """The page at ``/``, and its changing content at ``/content``."""
        return {"/": lambda: self._page(whole=True), "/content": lambda: self._page(whole=False)}

    def look(self) -> View:
        """Return the present state of the job."""
        with self._lock:
            return self._look()

    def _look(self) -> View:
        """Read the state again, unless the job has ended. The lock must be held."""
        if not self._view.is_over:
            self._view = self._watched.look()
        return self._view

    def _page(self, *, whole: bool) -> Page:
        """Render the page, or with ``whole=False`` only its changing content."""
        with self._lock:
            view = self._look()
            live = Live(whole, view.is_over)
            text = (
                phases.page(view, self._run_dir, live)
                if view.phases
                else html.page(view.runs or [Run(RunEvent())], self._run_dir, live)
            )
            return Page(text, last=view.is_over)
