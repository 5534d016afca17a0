"""Somebody else on the machine: does to the user's files what a tool asks for, whose own writes there nobody would see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: Lines of a tool: ask for what is to be done in the name ``{1}``, once, and go on when it is done. ``{0}`` is the folder.
ASK = """if mv "{0}/do.{1}" "{0}/asked.{1}" 2> /dev/null; then
  until [ -e "{0}/done.{1}" ]; do sleep 0.02; done; . "{0}/then.{1}"
fi
"""


def prepare(marks: Path, name: str, line: str, then: str = ":") -> None:
    """Have ``line`` ready for the first tool that asks in this name, which itself runs ``then`` after it."""
    (marks / f"then.{name}").write_text(f"{then}\n")
    (marks / f"do.{name}").write_text(line)


@contextmanager
def beside(marks: Path, run: Callable[[str], object]) -> Iterator[None]:
    """While inside, each line that a tool asks for is run once."""
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.wait(0.02):
            for asked in marks.glob("asked.*"):
                run(asked.read_text())
                asked.rename(marks / asked.name.replace("asked", "done", 1))

    marks.mkdir()
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
