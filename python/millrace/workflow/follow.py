"""Read what another phase still writes: a file that grows, or a folder that gets one file after another."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from millrace.errors import CorruptError
from millrace.workflow.link import Link

#: Seconds between looks at what grows.
LOOK_SECONDS = 0.02

BLOCK_BYTES = 1 << 20


def blocks(path: Path, output: str, link: Link) -> Iterator[bytes]:
    """The bytes of the file ``path`` until it is whole.

    Args:
        output: The name by which the workflow knows it.

    Raises:
        OSError: It cannot be read.
    """
    link.wait_for_begin(output)
    with path.open("rb", buffering=0) as file:
        while True:
            is_last = link.is_final(output)  # asked before reading: all that was written is there then
            while block := file.read(BLOCK_BYTES):
                yield block
            if is_last:
                return
            link.wait(output, LOOK_SECONDS)


def names(folder: Path, listed: Path, output: str, link: Link) -> Iterator[str]:
    """Names of the files in ``folder``, in the order in which a shell expands ``folder/*``, each once it is whole.

    Args:
        listed: File in which the phase that writes them lists their paths (`listing`), with those of its other folders.
        output: The name by which the workflow knows the folder.

    Raises:
        CorruptError: They were not written in that order.
    """
    link.wait_for_begin(output)
    given: list[str] = []
    for name in _listed(folder, listed, output, link):
        _check_order(given, name, output)
        given.append(name)
        yield name
    # A list that a power cut has shortened must not shorten the results.
    there = in_folder(folder)
    if there[: len(given)] != given:
        raise CorruptError(f"{output}: has other files than those that its phase wrote", "start over with --fresh")
    yield from there[len(given) :]


def in_folder(folder: Path) -> list[str]:
    """Names of the files in a folder, in the order in which a shell gives them."""
    with os.scandir(folder) as entries:
        return sorted(each.name for each in entries if not each.name.startswith(".") and each.is_file())


def listing(path: str | Path) -> bytes:
    """Return the line that lists a file which is whole; a list holds the files of all folders of a phase."""
    return os.fsencode(os.path.normpath(path)) + b"\n"


def _listed(folder: Path, listed: Path, output: str, link: Link) -> Iterator[str]:
    """The names in the list ``listed`` that are of ``folder``, as it grows."""
    rest, wanted = b"", os.path.normpath(folder)
    for block in blocks(listed, output, link):
        *lines, rest = (rest + block).split(b"\n")
        for parent, name in map(os.path.split, map(os.fsdecode, lines)):
            if parent == wanted:
                yield name


def _check_order(given: list[str], name: str, output: str) -> None:
    if given and name <= given[-1]:
        raise CorruptError(
            f"{output}: {name} was written after {given[-1]}, but stands before it where a shell names the files",
            "write them in the order of their names (0001-..., 0002-...), or let the phase that reads them wait for all: after = [...]",
        )


class Pipe:
    """A named pipe with the bytes of an iterator: what reads files can read what grows.

    Args:
        place: Where it is made.
        failed: Called with what goes wrong; who reads then waits for ever, as an end would look like that of the content.
    """

    def __init__(self, place: Path, content: Iterator[bytes], failed: Callable[[BaseException], None]) -> None:
        self.path, self._content, self._failed = place, content, failed
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(place, 0o600)
        threading.Thread(target=self._pump, name="follow", daemon=True).start()

    def _pump(self) -> None:
        with suppress(BrokenPipeError), open(self.path, "wb", buffering=0) as pipe:  # who reads may end first
            try:
                for block in self._content:
                    write_all(pipe.fileno(), block)
            except BrokenPipeError:
                raise
            except BaseException as error:
                self._failed(error)
                threading.Event().wait()


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of ``content``, however little a pipe takes at a time."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
