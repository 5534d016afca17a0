"""A bar below the cell of a notebook, for as long as a run lasts."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from html import escape

import msgspec

from millrace.model import Snapshot
from millrace.report.progress import fraction, line

#: Seconds between two looks at what a run says.
LOOK_SECONDS = 0.5

#: Bytes read at once.
PIECE = 1 << 16


class Said(msgspec.Struct):
    """A line of ``--progress json``."""

    event: str
    text: str = ""


class Told(Snapshot, frozen=True):
    """The same of a line of progress."""

    event: str = ""


def is_here() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


class Bar:
    """Follows the lines of ``--progress json``, in a thread.

    Args:
        said: File to which they are written.
    """

    def __init__(self, said: int) -> None:
        from IPython.display import display  # which a notebook has

        self._said, self._at, self._rest = os.dup(said), 0, b""
        self._handle = display(_shown(None), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        self._over = threading.Event()
        # What a thread shows goes to the cell of its context.
        cell = contextvars.copy_context()
        self._thread = threading.Thread(target=cell.run, args=(self._follow,), name="bar", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._look()
        self._look()
        os.close(self._said)

    def _look(self) -> None:
        last = None
        while block := os.pread(self._said, PIECE, self._at):
            self._at += len(block)
            *lines, self._rest = (self._rest + block).split(b"\n")
            last = next((each for each in reversed(lines) if _event(each) == "progress"), last)
        if last:
            self._handle.update(_shown(msgspec.json.decode(last, type=Told)), raw=True)

    def close(self) -> None:
        """Show the last state, and end."""
        self._over.set()
        self._thread.join()


def words_of(said: str) -> str:
    """What a run with ``--progress json`` has said, without its progress.

    >>> words_of('{"event":"progress","elapsed":1}\\n{"event":"message","text":"hello"}\\nstatus done\\n')
    'hello\\nstatus done\\n'
    """
    lines = said.splitlines(keepends=True)
    return "".join(_text(each) for each in lines if _event(each.encode()) != "progress")


def _text(words: str) -> str:
    return f"{msgspec.json.decode(words, type=Said).text}\n" if _event(words.encode()) == "message" else words


def _event(words: bytes) -> str:
    """Of which kind a line is; empty: no JSON."""
    if not words.startswith(b'{"event":'):
        return ""
    try:
        return msgspec.json.decode(words, type=Said).event
    except msgspec.DecodeError:
        return ""


def _shown(state: Snapshot | None) -> dict[str, str]:
    """The bar, for those that show HTML and for all others."""
    if state is None:
        return {"text/html": "<progress></progress>", "text/plain": "the run begins"}
    text, share = line(state, "", state.eta), fraction(state)
    value = "" if share is None else f' value="{share:.4f}"'
    return {"text/html": f"<progress{value}></progress> {escape(text)}", "text/plain": text}
