"""Pipes through which the outputs of a run go into a pack while they are written: no file of them ever exists.

The pipes are anonymous, as not every filesystem holds named ones: this process opens them by their descriptors.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from millrace.planning.run_plan import RunPlan

#: Bytes that are read from a pipe at a time.
READ_BYTES = 1 << 20


class PipeEnds:
    """Both ends of a pipe for one output, open until ``PipeEnds.close``."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)

    @property
    def path(self) -> str:
        """Return the path by which this process opens the writing end."""
        return f"/proc/self/fd/{self.writer}"

    def close(self) -> None:
        """Close both ends; does nothing the second time."""
        for end in {self.reader, self.writer} - {-1}:
            os.close(end)
        self.reader = self.writer = -1


def redirect_to_pipes(plan: RunPlan, pipes: Sequence[PipeEnds]) -> RunPlan:
    """Return ``plan`` with ``pipes`` in the place of its outputs; the command of the tool stays the same."""
    outputs = [msgspec.structs.replace(use, to=ends.path) for use, ends in zip(plan.use.outputs, pipes, strict=True)]
    return msgspec.structs.replace(plan, use=msgspec.structs.replace(plan.use, outputs=tuple(outputs)))


@contextmanager
def forward_pipes(
    pipes: Sequence[PipeEnds], takers: Sequence[Callable[[bytes], None]], came: Callable[[], None]
) -> Iterator[None]:
    """Pass the bytes of each pipe to its taker within the context, and empty bytes at the end.

    Args:
        pipes: Closed at the end.
        takers: Called in one thread for each pipe.
        came: Called when bytes arrive.

    Raises:
        MillraceError: A taker or the writer has failed.
    """
    readers: list[PipeReader] = []
    try:
        for ends, take in zip(pipes, takers, strict=True):
            readers.append(PipeReader(ends, take, came))
        yield
        for pipe, take in zip(readers, takers, strict=True):
            pipe.finish_reading()
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


class PipeReader:
    """A thread that reads one output. It waits neither for a writer to open the pipe, nor for one to close it.

    Args:
        ends: The pipe.
        take: Called with each piece; if it raises, the pipe is closed, and so the writer fails.
        came: Called before each piece.
    """

    def __init__(self, ends: PipeEnds, take: Callable[[bytes], None], came: Callable[[], None]) -> None:
        self._take, self._came = take, came
        self.error: BaseException | None = None
        self._pipe, ends.reader = ends.reader, -1  # closed by the thread, so that a writer without a reader fails
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run_reader, name="pack output", daemon=True)
        self._thread.start()

    def finish_reading(self) -> None:
        """Read the remaining bytes and end the thread; call this when everything is written.

        Raises:
            BaseException: The error of ``take``.
        """
        self.close()
        if self.error:
            raise self.error

    def close(self) -> None:
        """End the thread; does nothing if it has ended."""
        if self._waker >= 0:
            os.close(self._waker)
            self._waker = -1
            self._thread.join()
            os.close(self._wake)

    def _run_reader(self) -> None:
        try:
            self._forward_until_woken()
        except BaseException as error:
            self.error = error
        finally:
            os.close(self._pipe)

    def _forward_until_woken(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._pipe, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            data = self._read_available()
            if data:
                self._came()
                self._take(data)
            elif self._wake in ready:
                return

    def _read_available(self) -> bytes:
        try:
            return os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return b""
