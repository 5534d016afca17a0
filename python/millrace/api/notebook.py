"""A progress bar below the cell of a notebook, for the time of a run."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from html import escape

import msgspec

from millrace.core.tool_use import ProgressSnapshot
from millrace.report.progress import compute_done_fraction, format_progress_line

#: Seconds between two reads of the messages of a run.
POLL_INTERVAL_SECONDS = 0.5

#: Bytes read at once.
PIECE_BYTES = 1 << 16


class RunMessage(msgspec.Struct):
    """A line of ``--progress json`` of any kind."""

    event: str
    text: str = ""


class ProgressMessage(ProgressSnapshot, frozen=True):
    """A line of ``--progress json`` with progress."""

    event: str = ""


def is_notebook_kernel() -> bool:
    """Tell whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


class NotebookBar:
    """The bar: a thread follows the lines of ``--progress json`` and updates the display.

    Args:
        said: Descriptor of the file with the lines; it is duplicated.
    """

    def __init__(self, said: int) -> None:
        from IPython.display import display  # which a notebook has

        self._said, self._at, self._rest = os.dup(said), 0, b""
        self._handle = display(_render_bar(None), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        self._over = threading.Event()
        # The display of a thread goes to the cell of its context.
        cell = contextvars.copy_context()
        self._thread = threading.Thread(target=cell.run, args=(self._follow_file,), name="bar", daemon=True)
        self._thread.start()

    def _follow_file(self) -> None:
        """Update the bar until it is closed, then once more."""
        while not self._over.wait(POLL_INTERVAL_SECONDS):
            self._show_progress()
        self._show_progress()
        os.close(self._said)

    def _show_progress(self) -> None:
        """Read the new lines and show the last line of progress among them."""
        last = None
        while block := os.pread(self._said, PIECE_BYTES, self._at):
            self._at += len(block)
            *lines, self._rest = (self._rest + block).split(b"\n")
            last = next((each for each in reversed(lines) if _read_event_kind(each) == "progress"), last)
        if last:
            self._handle.update(_render_bar(msgspec.json.decode(last, type=ProgressMessage)), raw=True)

    def close(self) -> None:
        """Show the last state and end the thread."""
        self._over.set()
        self._thread.join()


def strip_progress(said: str) -> str:
    """Return the messages of a run with ``--progress json`` as plain text, without its progress.

    >>> strip_progress('{"event":"progress","elapsed":1}\\n{"event":"message","text":"hello"}\\nstatus done\\n')
    'hello\\nstatus done\\n'
    """
    lines = said.splitlines(keepends=True)
    return "".join(_extract_text(each) for each in lines if _read_event_kind(each.encode()) != "progress")


def _extract_text(words: str) -> str:
    """Return the text of a message line; other lines as they are."""
    return (
        f"{msgspec.json.decode(words, type=RunMessage).text}\n"
        if _read_event_kind(words.encode()) == "message"
        else words
    )


def _read_event_kind(words: bytes) -> str:
    """Return the kind of a line; empty if it is no JSON event."""
    if not words.startswith(b'{"event":'):
        return ""
    try:
        return msgspec.json.decode(words, type=RunMessage).event
    except msgspec.DecodeError:
        return ""


def _render_bar(state: ProgressSnapshot | None) -> dict[str, str]:
    """Return the bar as HTML and as plain text, by MIME type; None: the run has not reported yet."""
    if state is None:
        return {"text/html": "<progress></progress>", "text/plain": "the run begins"}
    text, share = format_progress_line(state, "", state.eta), compute_done_fraction(state)
    value = "" if share is None else f' value="{share:.4f}"'
    return {"text/html": f"<progress{value}></progress> {escape(text)}", "text/plain": text}
