"""Outputs of a run that go into a pack as they are written, through pipes with names: no file of them ever exists."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from millrace.plan.plan import Plan

#: Bytes that are taken from a pipe at a time.
TAKE = 1 << 20


def through_pipes(plan: Plan, folder: Path) -> Plan:
    """``plan`` with its outputs going into the pipes that `piped` makes in ``folder``; the tool does not hear of them."""
    outputs = [
        msgspec.structs.replace(use, to=str(folder / f"output{number}")) for number, use in enumerate(plan.use.outputs)
    ]
    return msgspec.structs.replace(plan, use=msgspec.structs.replace(plan.use, outputs=tuple(outputs)))


@contextmanager
def piped(folder: Path, takers: Sequence[Callable[[bytes], None]], came: Callable[[], None]) -> Iterator[None]:
    """While this lasts, what is written into the pipe of each output goes to its taker, and nothing when all has come.

    Args:
        came: Called when the first bytes are there.

    Raises:
        MillraceError: A taker has failed, or the writer.
    """
    pipes: list[Pipe] = []
    try:
        for number, take in enumerate(takers):
            pipes.append(Pipe(folder / f"output{number}", take, came))
        yield
        for pipe, take in zip(pipes, takers, strict=True):
            pipe.finish()
            take(b"")
    except BaseException as error:
        for pipe in pipes:
            pipe.close()
        if first := next((pipe.error for pipe in pipes if pipe.error), None):
            raise first from error
        raise
    finally:
        for pipe in pipes:
            pipe.close()


class Pipe:
    """One output, read by a thread of its own. Nothing waits for its writer to come, or to go.

    Args:
        path: Where the pipe is made.
        take: Gets what comes; if it raises, nobody reads any more, and so the writer ends.
        came: Called once the first bytes are there.
    """

    def __init__(self, path: Path, take: Callable[[bytes], None], came: Callable[[], None]) -> None:
        os.mkfifo(path, 0o600)
        self._take, self._came = take, came
        self.error: BaseException | None = None
        self._pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._read, name=f"pack {path.name}", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Take what is still in it: its writer has written everything.

        Raises:
            BaseException: What ``take`` has raised.
        """
        self.close()
        if self.error:
            raise self.error

    def close(self) -> None:
        """End the thread; no harm if it has ended."""
        if self._waker >= 0:
            os.close(self._waker)
            self._waker = -1
            self._thread.join()
            os.close(self._wake)

    def _read(self) -> None:
        try:
            self._until_woken()
        except BaseException as error:
            self.error = error
        finally:
            os.close(self._pipe)

    def _until_woken(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._pipe, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            data = self._some()
            if data:
                self._came()
                self._take(data)
            elif self._wake in ready:
                return
            elif self._pipe in ready:  # its writer has closed it; what is left to wait for is the end
                poll.unregister(self._pipe)

    def _some(self) -> bytes:
        try:
            return os.read(self._pipe, TAKE)
        except BlockingIOError:
            return b""
