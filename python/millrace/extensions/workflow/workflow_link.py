"""Messages between the process of a phase and that of the workflow, over a pair of sockets."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable

import msgspec

from millrace.core.tool_use import FrozenValue

#: Most bytes of a message.
MAX_MESSAGE_BYTES = 1 << 16


class PhaseUpdate(FrozenValue, frozen=True, omit_defaults=True):
    """A message to a phase: changes that concern it."""

    #: Slots that it may use from now on; None: as before.
    allow: int | None = None
    #: Outputs that hold nothing of an earlier workflow any more.
    begun: tuple[str, ...] = ()
    #: Outputs that are complete.
    final: tuple[str, ...] = ()


class PhaseReport(FrozenValue, frozen=True, omit_defaults=True):
    """A message of a phase about itself."""

    #: Tasks that are waiting or running, and running tools; None: as before.
    wanted: int | None = None
    running: int | None = None
    #: Whether its outputs hold nothing of an earlier workflow any more.
    begun: bool = False
    #: Exit code, in the last message; a process that ends without it has crashed.
    ends: int | None = None


def open_link_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two sockets of a link: that of the workflow, and that of the phase."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_link_message(end: socket.socket, message: PhaseUpdate | PhaseReport) -> None:
    """Send one message; ignore a closed receiver, whose end is reported in another way."""
    try:
        end.send(msgspec.json.encode(message))
    except (BrokenPipeError, ConnectionResetError):
        return


class WorkflowLink:
    """The phase's end of the link. When the process of the workflow dies, this process kills itself.

    Args:
        begun, final: Outputs of other phases that have begun, and that are complete.
    """

    def __init__(self, end: socket.socket, begun: Iterable[str], final: Iterable[str]) -> None:
        self._end = end
        self._begun, self._final = {*begun, *final}, {*final}
        self._changed = threading.Condition()
        self._allow: Callable[[int], None] | None = None
        self._said = (0, 0)
        self._listening = False

    def start_listening(self) -> None:
        """Start a thread that receives the messages of the workflow. May be called twice."""
        if not self._listening:
            self._listening = True
            threading.Thread(target=self._receive_updates, name="link", daemon=True).start()

    def lend(self, allow: Callable[[int], None]) -> None:
        """Register ``allow``, which is called with the number of slots for this phase whenever it changes."""
        self._allow = allow
        self.start_listening()

    def report_demand(self, wanted: int, running: int) -> None:
        """Report the number of waiting or running tasks, and of running tools, if one has changed."""
        if (wanted, running) != self._said:
            self._said = (wanted, running)
            send_link_message(self._end, PhaseReport(wanted=wanted, running=running))

    def report_outputs_begun(self) -> None:
        """Report that the outputs hold nothing of an earlier workflow."""
        send_link_message(self._end, PhaseReport(begun=True))

    def wait_until_begun(self, output: str) -> None:
        """Wait until ``output`` holds nothing of an earlier workflow."""
        with self._changed:
            self._changed.wait_for(lambda: output in self._begun)

    def is_final(self, output: str) -> bool:
        """Tell whether ``output`` is complete."""
        with self._changed:
            return output in self._final

    def wait_until_final(self, output: str, seconds: float | None = None) -> None:
        """Wait until ``output`` is complete, at most ``seconds`` if given."""
        with self._changed:
            self._changed.wait_for(lambda: output in self._final, seconds)

    def _receive_updates(self) -> None:
        """Receive messages until the workflow's process ends, then kill this process."""
        try:
            while content := self._end.recv(MAX_MESSAGE_BYTES):
                self._apply_update(msgspec.json.decode(content, type=PhaseUpdate))
        except ConnectionResetError:
            pass
        os.kill(os.getpid(), signal.SIGKILL)  # as if this run was killed: the journal has all committed blocks

    def _apply_update(self, message: PhaseUpdate) -> None:
        """Apply a message of the workflow."""
        with self._changed:
            self._begun.update(message.begun, message.final)
            self._final.update(message.final)
            self._changed.notify_all()
        if message.allow is not None and self._allow:
            self._allow(message.allow)
