"""What the process of a phase and that of the workflow say to each other: short messages over a pair of sockets."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable

import msgspec

from millrace.model import Frozen

#: Most bytes of a message.
MOST_BYTES = 1 << 16


class ToPhase(Frozen, frozen=True, omit_defaults=True):
    """What has changed for a phase."""

    #: Slots that it may use from now on; None: as before.
    allow: int | None = None
    #: Outputs that have nothing of an earlier workflow in them any more.
    begun: tuple[str, ...] = ()
    #: Outputs that are whole.
    final: tuple[str, ...] = ()


class FromPhase(Frozen, frozen=True, omit_defaults=True):
    """What a phase tells of itself."""

    #: Tasks that wait or run, and tools that run; None: as before.
    wanted: int | None = None
    running: int | None = None
    #: Whether its outputs have nothing of an earlier workflow in them any more.
    begun: bool = False
    #: With which exit code its process ends, by its last word; one that ends without it was not done.
    ends: int | None = None


def pair() -> tuple[socket.socket, socket.socket]:
    """The ends of a link: that of the workflow, and that of the phase."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: ToPhase | FromPhase) -> None:
    """Send one message; nothing if nobody hears it any more, which is told otherwise."""
    try:
        end.send(msgspec.json.encode(message))
    except (BrokenPipeError, ConnectionResetError):
        return


class Link:
    """The phase's end. Without the workflow there is no phase: when that dies, so does this process.

    Args:
        begun, final: Outputs of other phases that are so already.
    """

    def __init__(self, end: socket.socket, begun: Iterable[str], final: Iterable[str]) -> None:
        self._end = end
        self._begun, self._final = {*begun, *final}, {*final}
        self._changed = threading.Condition()
        self._allow: Callable[[int], None] | None = None
        self._said = (0, 0)
        self._listening = False

    def listen(self) -> None:
        """Hear what the workflow says, from now on; twice is fine."""
        if not self._listening:
            self._listening = True
            threading.Thread(target=self._listen, name="link", daemon=True).start()

    def lend(self, allow: Callable[[int], None]) -> None:
        """Have ``allow`` called with the number of slots that this phase may use, whenever it changes."""
        self._allow = allow
        self.listen()

    def work(self, wanted: int, running: int) -> None:
        """Tell how many tasks wait or run, and how many tools run."""
        if (wanted, running) != self._said:
            self._said = (wanted, running)
            send(self._end, FromPhase(wanted=wanted, running=running))

    def begun(self) -> None:
        """Tell that what is in the outputs is of this workflow."""
        send(self._end, FromPhase(begun=True))

    def wait_for_begin(self, output: str) -> None:
        """Wait until ``output`` has nothing of an earlier workflow in it."""
        with self._changed:
            self._changed.wait_for(lambda: output in self._begun)

    def is_final(self, output: str) -> bool:
        """Whether ``output`` is whole."""
        with self._changed:
            return output in self._final

    def wait(self, output: str, seconds: float | None = None) -> None:
        """Wait until ``output`` is whole, but at most so long if that is said."""
        with self._changed:
            self._changed.wait_for(lambda: output in self._final, seconds)

    def _listen(self) -> None:
        try:
            while content := self._end.recv(MOST_BYTES):
                self._hear(msgspec.json.decode(content, type=ToPhase))
        except ConnectionResetError:
            pass
        os.kill(os.getpid(), signal.SIGKILL)  # as when the run itself is killed: the journal has what is done

    def _hear(self, message: ToPhase) -> None:
        with self._changed:
            self._begun.update(message.begun, message.final)
            self._final.update(message.final)
            self._changed.notify_all()
        if message.allow is not None and self._allow:
            self._allow(message.allow)
