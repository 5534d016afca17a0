"""The MPI transport: messages between the processes of a job, each with a seal.

The only module that imports ``mpi4py``. Nothing here blocks: a peer may be dead. All calls come from the main thread
(``MPI_THREAD_FUNNELED``; with more, Open MPI 5 can deadlock when a peer dies with a message in flight). Large messages
are cut into pieces. Encoding and seals are those of ``millrace.cluster.transport.message_encoding``.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from millrace import _core
from millrace.cluster.messages import Message
from millrace.cluster.transport import message_encoding, mpi_start
from millrace.cluster.transport.message_encoding import MessageSeal
from millrace.cluster.transport.mpi_start import MpiBroadcastLink
from millrace.core.errors import CorruptError, RefusedError
from millrace.core.text_format import format_count
from millrace.core.wait_loop import wait_until
from millrace.host import debug_log
from millrace.host.core_allocation import LaunchedProcess
from millrace.launch import launch_commands
from millrace.scheduler.message_timing import MessageCompression

#: Longest piece of a message, in bytes.
MAX_PIECE_BYTES = 4 << 20

#: Pieces in flight to one rank.
MAX_PIECES_IN_FLIGHT = 8

#: Seconds that a launcher gets to end all processes after ``MPI_Abort``; and that all get for ``MPI_Finalize``.
MAX_ABORT_SECONDS, MAX_FINALIZE_SECONDS = 2, 30

#: Seconds between the start of Open MPI and the first message.
AFTER_INIT_SECONDS = 0.2

#: Seconds between tests of pending sends, where there is nothing else to do.
FLUSH_NAP_SECONDS = 0.001

#: Most messages returned by one ``MpiTransport.receive``, so that its caller is not kept from its other work.
MAX_MESSAGES_PER_RECEIVE = 256

#: Tags: more pieces of this message follow; its last piece; the last piece of a compressed message.
MORE, LAST, LAST_PACKED = 1, 2, 3


class _RankOutbox(msgspec.Struct):
    waiting: deque[tuple[Any, int]] = msgspec.field(default_factory=deque)
    #: (request, buffer, when it was given to MPI): the buffer must live until the request is done.
    in_flight: deque[tuple[Any, Any, float]] = msgspec.field(default_factory=deque)


class MpiTransport:
    """The transport between all processes of the job; ``rank`` 0 is the coordinator.

    Args:
        scratch: A folder of this process in memory.
        handed: The key that a supervisor handed to all ranks; empty: no supervisor.

    Raises:
        RefusedError: MPI cannot be used, or is not that of the launcher.
    """

    def __init__(self, launched: LaunchedProcess, scratch: Path, handed: bytes = b"") -> None:
        mpi_start.set_openmpi_defaults(scratch)
        try:
            import mpi4py

            mpi4py.rc.initialize = mpi4py.rc.finalize = (
                False  # see ``mpi_start.check_library_fits_launcher`` and ``finalize_or_abort``
            )
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise RefusedError(
                f"started as {launched.size} processes by {launched.launcher}, but there is no MPI to be used: {error}",
                "install mpi4py and an MPI with: pip install 'millrace[mpi]'; or load the site's MPI, and pip install mpi4py",
            ) from error
        mpi_start.check_library_fits_launcher(launched, name := mpi_start.parse_library_name(MPI.Get_library_version()))
        self._mpi, self._comm = MPI, MPI.COMM_WORLD
        with mpi_start.limit_startup_time(launched):
            self._start_mpi(launched, name, handed)
        mpi_start.set_close_on_exec()
        self._status = MPI.Status()
        #: Whether the launcher continues when a process dies (``mpirun --with-ft ulfm``).
        self._tolerant = bool(os.environ.get("OMPI_MCA_mpi_ft_enable"))  # noqa: SIM112
        self._out: dict[int, _RankOutbox] = {}
        self._packing = MessageCompression()
        self._partial: dict[int, list[bytearray]] = {}
        self._refused: CorruptError | None = None
        #: Names a rank in messages to the user.
        self.name_of: Callable[[int], str] = "rank {}".format
        #: Whether a process was lost: then ``MPI_Finalize`` would not return.
        self.broken = False

    def _start_mpi(self, launched: LaunchedProcess, name: str, handed: bytes) -> None:
        """Initialize MPI, up to the last call that waits for all processes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a launcher of another MPI is reported below, in our words
            self._mpi.Init_thread(self._mpi.THREAD_FUNNELED)
        if "Open MPI" in name and launched.size > 1:
            # A process that has not returned from MPI_Init must not get a message: it would crash
            # (https://github.com/open-mpi/ompi/issues/12495). That cannot be detected from outside, so wait.
            time.sleep(AFTER_INIT_SECONDS)
        self.rank, self.size = self._comm.rank, self._comm.size
        if self.size != launched.size:
            self._mpi.Finalize()
            raise mpi_start.make_wrong_launcher_error(launched, f"{name} sees {format_count(self.size, 'process')}")
        self._comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        #: Communicator for bytes that are not messages: ``receive`` must not see them.
        self._bulk = self._comm.Dup()
        secret = bytearray(message_encoding.draw_secret())
        self._bulk.Bcast([secret, self._mpi.BYTE], 0)
        self._seal = MessageSeal(message_encoding.derive_start_key(secret, handed), self.rank)

    def send(self, rank: int, message: Message) -> None:
        """Queue ``message`` and begin to send it; in order for each rank. Never blocks."""
        debug_log.log_message("to", rank, message)
        content, last = message_encoding.encode_message(message), LAST
        box = self._out.setdefault(rank, _RankOutbox())
        if self._packing.should_compress(len(content)):
            content, last = self._compress_content(content), LAST_PACKED
        self._seal.seal_message(rank, last, content)
        if len(content) <= MAX_PIECE_BYTES:
            box.waiting.append((content, last))
        else:
            view = memoryview(content)
            cuts = range(0, len(content), MAX_PIECE_BYTES)
            box.waiting.extend((view[at : at + MAX_PIECE_BYTES], last if at == cuts[-1] else MORE) for at in cuts)
        self._continue_sends_to(rank, box)

    def _compress_content(self, content: bytearray) -> bytearray:
        begun = time.monotonic()
        packed = bytearray(_core.pack(content))
        self._packing.observe_compression(len(content), len(packed), time.monotonic() - begun)
        return packed

    def continue_sends(self) -> bool:
        """Continue pending sends; return whether any are left."""
        for rank, box in list(self._out.items()):
            self._continue_sends_to(rank, box)
        return bool(self._out)

    def _continue_sends_to(self, rank: int, box: _RankOutbox) -> None:
        try:
            while box.in_flight and box.in_flight[0][0].Test():
                _, piece, since = box.in_flight.popleft()
                self._packing.observe_send(len(piece), time.monotonic() - since)
            while box.waiting and len(box.in_flight) < MAX_PIECES_IN_FLIGHT:
                piece, tag = box.waiting.popleft()
                request = self._comm.Isend([piece, self._mpi.BYTE], rank, tag)
                box.in_flight.append((request, piece, time.monotonic()))
        except self._mpi.Exception:
            if not self._tolerant:
                raise
            box.waiting.clear()
            box.in_flight.clear()  # its process is dead: see ``find_failed_ranks``
        if not box.in_flight:
            self._out.pop(rank, None)

    def receive(self) -> list[tuple[int, Message]]:
        """Return the messages that have arrived, as (rank, message); at most ``MAX_MESSAGES_PER_RECEIVE``. Never blocks.

        Raises:
            CorruptError: The next one is no message of this run; earlier calls returned those before it.
        """
        found: list[tuple[int, Message]] = []
        comm, status = self._comm, self._status
        while not self._refused and len(found) < MAX_MESSAGES_PER_RECEIVE and self._has_message():
            rank, tag = status.Get_source(), status.Get_tag()
            content = bytearray(status.Get_count(self._mpi.BYTE))
            comm.Recv([content, self._mpi.BYTE], rank, tag)
            if tag == MORE:
                self._partial.setdefault(rank, []).append(content)
                continue
            whole = b"".join([*self._partial.pop(rank), content]) if rank in self._partial else content
            try:
                found.append((rank, self._decode_sealed_message(rank, tag, whole)))
            except CorruptError as error:
                self._refused, self.broken = error, True
            else:
                debug_log.log_message("from", *found[-1])
        if self._refused and not found:
            refused, self._refused = self._refused, None
            raise refused
        return found

    def _decode_sealed_message(self, rank: int, tag: int, whole: bytes | bytearray) -> Message:
        """Check the seal of received bytes, and decode their message.

        Raises:
            CorruptError: The seal is not that of ``rank``, or the bytes are no message.
        """
        try:
            content = self._seal.open_message(rank, tag, whole)
            return message_encoding.decode_message(_core.unpack(content) if tag == LAST_PACKED else content)
        except CorruptError as error:
            where = f"{socket.gethostname()} (rank {self.rank})"
            raise CorruptError(
                f"{where}: a message in the name of {self.name_of(rank)} {error.message}", error.hint
            ) from error

    def _has_message(self) -> bool:
        """Tell whether a message has arrived; its envelope is in ``_status``."""
        any_source, any_tag = self._mpi.ANY_SOURCE, self._mpi.ANY_TAG
        try:
            # A message that arrives during the first probe is only seen by the second.
            return bool(
                self._comm.Iprobe(any_source, any_tag, self._status)
                or self._comm.Iprobe(any_source, any_tag, self._status)
            )
        except self._mpi.Exception:
            if not self._tolerant:
                raise
            self._comm.Ack_failed(self.size)  # else every later probe fails, too
            return False

    def make_broadcast_link(self, before: int | None, after: int | None) -> MpiBroadcastLink:
        """Make the link from rank ``before`` through this one to rank ``after``, for bytes that are not messages."""
        return MpiBroadcastLink(self._mpi, self._bulk, before, after)

    def find_failed_ranks(self) -> set[int]:
        """Return the ranks whose process is dead, where MPI continues without them (ULFM); else none."""
        if not self._tolerant:
            return set()
        group = self._comm.Get_failed()
        if not group.size:
            return set()
        mine = range(group.size)
        return set(self._mpi.Group.Translate_ranks(group, list(mine), self._comm.Get_group()))

    def flush_sends(self, timeout_seconds: float) -> bool:
        """Wait until everything is sent; return whether the time sufficed."""
        return wait_until(lambda: not self.continue_sends(), timeout_seconds, nap=FLUSH_NAP_SECONDS)

    def get_file_communicator(self) -> tuple[Any, Any]:
        """Return the MPI module and the communicator, to open files for collective writes."""
        return self._mpi, self._comm

    def unlink_startup_memory(self) -> None:
        """Unlink the shared memory that MPICH needs only at start; to be called when all processes have started.

        MPICH itself unlinks it at its end, and leaves it behind when a process is killed.
        """
        with suppress(OSError), open("/proc/self/maps", "rb") as maps:
            for name in mpi_start.find_mpich_segments(maps):
                with suppress(OSError):  # another process unlinked it first
                    os.unlink(name)

    def kill_stalled_process(self, pid: int) -> bool:
        """Kill a stopped process of the job; return false if it has another launcher, or that tolerates no failure.

        At an abort, the prterun of Open MPI 5 sometimes waits for a stopped process for ever (``--with-ft ulfm``).
        """
        if (
            not self._tolerant
            or not (launcher := launch_commands.find_launcher_process())
            or launch_commands.find_launcher_process(pid) != launcher
        ):
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True

    def finalize_or_abort(self, exit_code: int, *, missing: bool = False) -> None:
        """Finalize MPI with all others; if one is lost, rank 0 aborts the job with ``exit_code`` instead.

        Args:
            missing: Some process has neither reached its end nor is known to be dead.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if not self.broken and not self._tolerant:
            # Finalize waits for all others. One may have been stopped since its last message; mpirun copes with the death
            # of one process better than of all.
            signal.alarm(MAX_FINALIZE_SECONDS if self.rank == 0 else 2 * MAX_FINALIZE_SECONDS)
            self._mpi.Finalize()
            signal.alarm(0)
            return
        # Finalize would wait for lost processes, and after a failure sometimes for ever.
        if self.broken and self.rank == 0 and (missing or not self._tolerant):
            # Without this, a launcher that tolerates failures waits for stopped processes, and another one reports the
            # whole job as failed, as a process has ended without Finalize.
            signal.alarm(MAX_ABORT_SECONDS)
            self._comm.Abort(exit_code)
        elif self.broken and not self._tolerant:
            time.sleep(MAX_ABORT_SECONDS)  # the abort of rank 0 ends this process, too
        os._exit(exit_code)
