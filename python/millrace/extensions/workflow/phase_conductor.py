"""Main process of a workflow: starts phases, lends slots, announces outputs, has one exit code.

The slots of one pool are divided among the phases that have tasks (``compute_slot_targets``, which is pure).
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from millrace.core.errors import ExitCode
from millrace.core.tool_use import FrozenValue
from millrace.extensions.workflow import phase_process
from millrace.extensions.workflow.phase_chain import (
    MAX_MESSAGE_BYTES,
    PhaseReport,
    PhaseUpdate,
    open_link_pair,
    send_link_message,
)
from millrace.extensions.workflow.planned_phases import PlannedPhase, WorkflowContext
from millrace.extensions.workflow.workflow_folder import PhaseLog
from millrace.host.process_handle import open_process_end
from millrace.host.signals import STOPPING, StopSignals, map_exit_signal


class SlotNeed(FrozenValue, frozen=True):
    """The slots that one phase has and could use."""

    #: Tasks that are waiting or running.
    wanted: int = 0
    #: Slots that it may use.
    allowed: int = 0
    #: Running tools by the phase's last message; after a cut, more than ``allowed`` until they end.
    running: int = 0

    @property
    def held(self) -> int:
        """Slots that no other phase may use now."""
        return max(self.allowed, self.running)


def compute_slot_targets(wanted: Sequence[int], slots: int) -> list[int]:
    """Return the number of slots each phase should have; ``wanted`` is in the order of the job, shape (n_phases,).

    The first phase with tasks keeps half of the slots, rounded up, as the later phases depend on it. Later phases share
    the rest, one slot each in turn. No slot stays idle while a task waits.

    >>> compute_slot_targets([5, 5, 0], 4), compute_slot_targets([5, 1, 0], 4), compute_slot_targets([0, 0, 9], 2), compute_slot_targets([9, 9, 9], 1)
    ([2, 2, 0], [3, 1, 0], [0, 0, 2], [1, 0, 0])
    """
    given = [0] * len(wanted)
    waiting = [number for number, tasks in enumerate(wanted) if tasks > 0]
    if not waiting:
        return given
    first = waiting[0]
    given[first] = min(wanted[first], slots if len(waiting) == 1 else (slots + 1) // 2)
    left = slots - given[first]
    while left:
        takers = [number for number in waiting[1:] if given[number] < wanted[number]][:left]
        if not takers:
            break
        for number in takers:
            given[number] += 1
        left -= len(takers)
    given[first] += min(left, wanted[first] - given[first])
    return given


def allot_slots(needs: Sequence[SlotNeed], slots: int) -> list[int]:
    """Return the number of slots each phase may use now, so that the slots held never exceed ``slots`` in all.

    A phase that gets fewer slots frees them as its tools end; only then other phases get them.

    >>> allot_slots([SlotNeed(wanted=4, allowed=2, running=2), SlotNeed(wanted=1)], 2)
    [1, 0]
    >>> allot_slots([SlotNeed(wanted=4, allowed=1, running=1), SlotNeed(wanted=1)], 2)
    [1, 1]
    """
    aims = compute_slot_targets([need.wanted for need in needs], slots)
    lower = [min(need.allowed, aim) for need, aim in zip(needs, aims, strict=True)]
    free = slots - sum(max(low, need.running) for low, need in zip(lower, needs, strict=True))
    found = []
    for need, low, aim in zip(needs, lower, aims, strict=True):
        unused = max(need.running - low, 0)  # tools still running in slots to be freed
        more = max(min(aim - low, free + unused), 0)
        free -= max(more - unused, 0)
        found.append(low + more)
    return found


#: Seconds between checks for signals.
POLL_INTERVAL_SECONDS = 0.2


@dataclass
class RunningPhase:
    """A running phase and its process."""

    planned: PlannedPhase
    pid: int
    #: Readable once the process has ended.
    ended: int
    end: socket.socket
    need: SlotNeed = SlotNeed()  # noqa: RUF009 - frozen
    #: The exit code it announced; see ``PhaseReport.ends``.
    ends: int | None = None

    def compute_exit_code(self, status: int) -> int:
        """Return the exit code of the ended phase; print a message if the process ended without announcing its end.

        Args:
            status: Exit status of the process; negative: the signal that killed it.
        """
        phase = self.planned.phase
        if status == self.ends or -status in STOPPING:
            return status if status >= 0 else 128 - status
        if status == -signal.SIGKILL:
            phase_process.print_message(f"phase {phase.name}: was killed by SIGKILL\n\nhint: the same command resumes")
            return 128 - status
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        phase_process.print_message(
            f"phase {phase.name}: {phase.text or phase.job.command[0]}: its process {how} before it was done\n\n"
            "hint: something in it ends it (a crash, os._exit, a library): the same command goes on where it was"
        )
        return ExitCode.TOOL


class PhaseConductor:
    """The runner of all phases of a workflow.

    Args:
        slots: Slots that the phases share.
        prints: See ``planned_phases.digest_phases``.
        log: Log of the begins and ends of phases.
    """

    def __init__(
        self, phases: list[PlannedPhase], here: WorkflowContext, slots: int, prints: dict[str, str], log: PhaseLog
    ) -> None:
        self._phases, self._here, self._slots, self._prints, self._log = phases, here, slots, prints, log
        self._alive: dict[str, RunningPhase] = {}
        self._codes: dict[str, int] = {}
        #: Outputs that hold nothing of an earlier workflow, and outputs that are complete.
        self._begun, self._final = set[str](), set[str]()
        self._selector = selectors.DefaultSelector()
        self._signals = 0

    def run(self, interrupt: StopSignals, look: Callable[[bool], None]) -> int:
        """Run all phases and return the exit code of the workflow.

        Args:
            look: Called after each wait of at most 0.2 s, with whether no phase is running.
        """
        try:
            while self._start_ready_phases(interrupt) or self._alive:
                for key, _ in self._selector.select(POLL_INTERVAL_SECONDS):
                    self._receive_report(key.data) if isinstance(key.fileobj, socket.socket) else self._end_phase(
                        key.data
                    )
                self._forward_signals(interrupt)
                look(not self._alive)
            return self._choose_exit_code(interrupt)
        finally:
            for alive in self._alive.values():
                with suppress(ProcessLookupError):
                    os.kill(alive.pid, signal.SIGKILL)

    @property
    def has_failed(self) -> bool:
        """Whether a phase has failed."""
        return any(code not in (ExitCode.DONE, ExitCode.QUARANTINED) for code in self._codes.values())

    def _start_ready_phases(self, interrupt: StopSignals) -> bool:
        """Start all phases that can start, and return whether any did."""
        if interrupt.count or self.has_failed:
            return False
        begun = False
        for planned in self._phases:
            name = planned.phase.name
            if name in self._alive or name in self._codes:
                continue
            known = {*self._codes, *self._alive}
            if all(each in self._codes for each in planned.waits) and known.issuperset(planned.streams.values()):
                self._start_phase(planned)
                begun = True
        return begun

    def _start_phase(self, planned: PlannedPhase) -> None:
        """Start the process of a phase and watch its socket and its end."""
        ours, theirs = open_link_pair()
        others = [ours, *(alive.end for alive in self._alive.values())]
        print_ = self._prints[planned.phase.name]
        self._log.write(planned.phase.name, "begun")
        pid = phase_process.start_phase_process(planned, self._here, theirs, others, (self._begun, self._final), print_)
        theirs.close()
        alive = RunningPhase(planned, pid, open_process_end(pid), ours)
        self._alive[planned.phase.name] = alive
        self._selector.register(ours, selectors.EVENT_READ, planned.phase.name)
        self._selector.register(alive.ended, selectors.EVENT_READ, planned.phase.name)

    def _receive_report(self, name: str) -> None:
        """Receive one message of a phase; at the end of the socket, stop watching it."""
        alive = self._alive.get(name)
        if alive is None:
            return
        try:
            content = alive.end.recv(MAX_MESSAGE_BYTES)
        except ConnectionResetError:
            content = b""
        if content:
            self._apply_report(alive, content)
        else:
            self._selector.unregister(alive.end)  # the pidfd reports its end

    def _apply_report(self, alive: RunningPhase, content: bytes) -> None:
        """Apply a message of a phase: its end, its begun outputs, or its demand for slots."""
        said = msgspec.json.decode(content, type=PhaseReport)
        alive.ends = alive.ends if said.ends is None else said.ends
        if said.begun:
            self._announce_outputs(begun=alive.planned.outputs)
        if said.wanted is not None and said.running is not None:
            alive.need = msgspec.structs.replace(alive.need, wanted=said.wanted, running=said.running)
            self._lend_slots()

    def _lend_slots(self) -> None:
        """Divide the slots anew and send each phase its number if it has changed."""
        order = [planned.phase.name for planned in self._phases if planned.phase.name in self._alive]
        members = [self._alive[name] for name in order]
        for alive, allowed in zip(members, allot_slots([alive.need for alive in members], self._slots), strict=True):
            if allowed != alive.need.allowed:
                alive.need = msgspec.structs.replace(alive.need, allowed=allowed)
                send_link_message(alive.end, PhaseUpdate(allow=allowed))

    def _announce_outputs(self, begun: tuple[str, ...] = (), final: tuple[str, ...] = ()) -> None:
        """Announce begun and complete outputs to all running phases."""
        self._begun.update(begun)
        self._final.update(final)
        for alive in self._alive.values():
            send_link_message(alive.end, PhaseUpdate(begun=begun, final=final))

    def _receive_rest(self, alive: RunningPhase) -> None:
        """Receive the messages that a phase sent before its end."""
        while True:
            try:
                content = alive.end.recv(MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except ConnectionResetError:
                continue  # unread messages to the phase cause this once; its own messages follow
            except BlockingIOError:
                return  # a child process of the phase keeps the other end open
            if not content:
                return
            self._apply_report(alive, content)

    def _end_phase(self, name: str) -> None:
        """Collect the process of an ended phase, log its exit code, and announce its outputs."""
        self._receive_rest(self._alive[name])
        alive = self._alive.pop(name)
        _, status = os.waitpid(alive.pid, 0)
        for place in (alive.end, alive.ended):
            with suppress(KeyError):
                self._selector.unregister(place)
        alive.end.close()
        os.close(alive.ended)
        self._codes[name] = alive.compute_exit_code(os.waitstatus_to_exitcode(status))
        self._log.write(name, "ended", self._codes[name])
        if self._codes[name] in (ExitCode.DONE, ExitCode.QUARANTINED):
            self._announce_outputs(final=alive.planned.outputs)
        self._lend_slots()

    def _forward_signals(self, interrupt: StopSignals) -> None:
        """Forward signals to the running phases; send them SIGTERM when a phase has failed."""
        wanted = interrupt.count or (1 if self.has_failed else 0)
        while self._signals < min(wanted, 2):
            self._signals += 1
            for alive in self._alive.values():
                with suppress(ProcessLookupError):
                    os.kill(alive.pid, interrupt.signal or signal.SIGTERM)

    def _choose_exit_code(self, interrupt: StopSignals) -> int:
        """Return the exit code of the workflow from the signal and the codes of the phases."""
        if (interrupt.signal and len(self._codes) < len(self._phases)) or (interrupt.signal and self.has_failed):
            return 128 + map_exit_signal(interrupt.signal)
        # A phase that was stopped because another failed does not show the cause.
        failures = [code for code in self._codes.values() if code not in (ExitCode.DONE, ExitCode.QUARANTINED)]
        return next(
            (code for code in failures if code < 128), next(iter(failures), max(self._codes.values(), default=0))
        )

    def print_outputs(self, stream: BinaryIO) -> bool:
        """Write the standard output of the phases to ``stream``, in their order; return whether there was any."""
        has_printed = False
        for planned in self._phases:
            path = phase_process.locate_kept_output(self._here, planned.phase.name)
            if planned.phase.kind == "command" and not planned.phase.stdout and path.exists():
                with path.open("rb") as file:
                    while block := file.read(1 << 20):
                        has_printed = True
                        stream.write(block)
        stream.flush()
        return has_printed
