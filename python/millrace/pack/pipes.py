"""Outputs of a run that go into a pack as they are written, through pipes: no file of them ever exists.

The pipes have no names in a folder, which not every filesystem could hold: this process opens them by their descriptors.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from millrace.plan.plan import Plan

#: Bytes that are taken from a pipe at a time.
TAKE = 1 << 20


class PipeEnds:
    """Both ends of a pipe for one output, open until `close`."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)

    @property
    def path(self) -> str:
        """By which this process opens the writing end."""
        return f"/proc/self/fd/{self.writer}"

    def close(self) -> None:
        """Give both ends back; twice is fine."""
        for end in {self.reader, self.writer} - {-1}:
            os.close(end)
        self.reader = self.writer = -1


def through_pipes(plan: Plan, pipes: Sequence[PipeEnds]) -> Plan:
    """``plan`` with its outputs going into ``pipes``; the tool does not hear of them."""
    outputs = [msgspec.structs.replace(use, to=ends.path) for use, ends in zip(plan.use.outputs, pipes, strict=True)]
    return msgspec.structs.replace(plan, use=msgspec.structs.replace(plan.use, outputs=tuple(outputs)))


@contextmanager
def piped(
    pipes: Sequence[PipeEnds], takers: Sequence[Callable[[bytes], None]], came: Callable[[], None]
) -> Iterator[None]:
    """While this lasts, what is written into the pipe of each output goes to its taker, and nothing when all has come.

    Args:
        pipes: They are closed at the end.
        came: Called when the first bytes are there.

    Raises:
        MillraceError: A taker has failed, or the writer.
    """
    readers: list[Pipe] = []
    try:
        for ends, take in zip(pipes, takers, strict=True):
            readers.append(Pipe(ends, take, came))
        yield
        for pipe, take in zip(readers, takers, strict=True):
            pipe.finish()
            take(b"")
    except BaseException as error:
        for pipe in readers:
            pipe.close()
        if first := next((pipe.error for pipe in readers if pipe.error), None):
            raise first from error
        raise
    finally:
        for pipe in readers:
            pipe.close()
        for ends in pipes:
            ends.close()


class Pipe:
    """One output, read by a thread of its own. Nothing waits for its writer to come, or to go.

    Args:
        ends: The pipe.
        take: Gets what comes; if it raises, nobody reads any more, and so the writer ends.
        came: Called once the first bytes are there.
    """

    def __init__(self, ends: PipeEnds, take: Callable[[bytes], None], came: Callable[[], None]) -> None:
        self._take, self._came = take, came
        self.error: BaseException | None = None
        self._pipe, ends.reader = ends.reader, -1  # closed by the thread, so that a writer whom nobody reads ends
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._read, name="pack output", daemon=True)
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

    def _some(self) -> bytes:
        try:
            return os.read(self._pipe, TAKE)
        except BlockingIOError:
            return b""
