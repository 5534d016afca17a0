"""A progress bar below the cell of a notebook, for the time of a run."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from html import escape

import msgspec

from millrace.model import Snapshot
from millrace.report.progress import fraction, line

#: Seconds between two reads of the messages of a run.
LOOK_SECONDS = 0.5

#: Bytes read at once.
PIECE = 1 << 16


class Said(msgspec.Struct):
    """A line of ``--progress json`` of any kind."""

    event: str
    text: str = ""


class Told(Snapshot, frozen=True):
    """A line of ``--progress json`` with progress."""

    event: str = ""


def is_here() -> bool:
    """Tell whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


class Bar:
    """The bar: a thread follows the lines of ``--progress json`` and updates the display.

    Args:
        said: Descriptor of the file with the lines; it is duplicated.
    """

    def __init__(self, said: int) -> None:
        from IPython.display import display  # which a notebook has

        self._said, self._at, self._rest = os.dup(said), 0, b""
        self._handle = display(_shown(None), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        self._over = threading.Event()
        # The display of a thread goes to the cell of its context.
        cell = contextvars.copy_context()
        self._thread = threading.Thread(target=cell.run, args=(self._follow,), name="bar", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        """Update the bar until it is closed, then once more."""
        while not self._over.wait(LOOK_SECONDS):
            self._look()
        self._look()
        os.close(self._said)

    def _look(self) -> None:
        """Read the new lines and show the last line of progress among them."""
        last = None
        while block := os.pread(self._said, PIECE, self._at):
            self._at += len(block)
            *lines, self._rest = (self._rest + block).split(b"\n")
            last = next((each for each in reversed(lines) if _event(each) == "progress"), last)
        if last:
            self._handle.update(_shown(msgspec.json.decode(last, type=Told)), raw=True)

    def close(self) -> None:
        """Show the last state and end the thread."""
        self._over.set()
        self._thread.join()


def words_of(said: str) -> str:
    """Return the messages of a run with ``--progress json`` as plain text, without its progress.

    >>> words_of('{"event":"progress","elapsed":1}\\n{"event":"message","text":"hello"}\\nstatus done\\n')
    'hello\\nstatus done\\n'
    """
    lines = said.splitlines(keepends=True)
    return "".join(_text(each) for each in lines if _event(each.encode()) != "progress")


def _text(words: str) -> str:
    """Return the text of a message line; other lines as they are."""
    return f"{msgspec.json.decode(words, type=Said).text}\n" if _event(words.encode()) == "message" else words


def _event(words: bytes) -> str:
    """Return the kind of a line; empty if it is no JSON event."""
    if not words.startswith(b'{"event":'):
        return ""
    try:
        return msgspec.json.decode(words, type=Said).event
    except msgspec.DecodeError:
        return ""


def _shown(state: Snapshot | None) -> dict[str, str]:
    """Return the bar as HTML and as plain text, by MIME type; None: the run has not reported yet."""
    if state is None:
        return {"text/html": "<progress></progress>", "text/plain": "the run begins"}
    text, share = line(state, "", state.eta), fraction(state)
    value = "" if share is None else f' value="{share:.4f}"'
    return {"text/html": f"<progress{value}></progress> {escape(text)}", "text/plain": text}
