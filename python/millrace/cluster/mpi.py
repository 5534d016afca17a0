"""Messages between the processes of an MPI job. The only module that imports ``mpi4py``.

Nothing here blocks: a peer may be dead. All calls come from the main thread (``MPI_THREAD_FUNNELED``; with more, Open
MPI 5 can lock itself out when a peer dies while a message is under way). Large messages travel in pieces.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace import _core, debug
from millrace.cluster import interfaces, wire
from millrace.errors import ExitCode, LostError, RefusedError
from millrace.launch.mpi_environment import Launched
from millrace.report.words import count, duration
from millrace.schedule.packing import Packing
from millrace.waiting import until

#: Longest piece of a message, in bytes.
PIECE_BYTES = 4 << 20

#: Pieces under way to one rank.
IN_FLIGHT = 8

#: Seconds that a launcher gets to end all processes, once it is told to; and that all get to end together.
LONGEST_ABORT, LONGEST_FINALIZE = 2, 30

#: Seconds that all processes get to start MPI, and for each of them more: some disk may be slow.
LONGEST_INIT_SECONDS, LONGEST_INIT_PER_PROCESS = 120.0, 0.1

#: Seconds between the start of Open MPI and the first message.
AFTER_INIT_SECONDS = 0.2

#: Seconds between looks at what is being sent, where there is nothing else to do.
FLUSH_NAP_SECONDS = 0.001

#: Messages taken in one look, so that whoever looks does something else too.
MOST_AT_ONCE = 256

#: Tags: more pieces of this message follow, or this is its last; the last of one that was compressed.
MORE, LAST, LAST_PACKED = 1, 2, 3


@dataclass
class _Outbox:
    waiting: deque[tuple[Any, int]] = field(default_factory=deque)
    #: (request, buffer, when it was given to MPI): the buffer must live until the request is done.
    in_flight: deque[tuple[Any, Any, float]] = field(default_factory=deque)


class World:
    """All processes of the job; `rank` 0 is the coordinator.

    Args:
        scratch: A folder of this process in memory.

    Raises:
        RefusedError: MPI cannot be used, or is not the launcher's.
    """

    def __init__(self, launched: Launched, scratch: Path) -> None:
        settle(scratch)
        try:
            import mpi4py

            mpi4py.rc.initialize = mpi4py.rc.finalize = False  # see `check_library` and `leave`
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise RefusedError(
                f"started as {launched.size} processes by {launched.launcher}, but there is no MPI to be used: {error}",
                "install mpi4py and an MPI with: pip install 'millrace[mpi]'; or load the site's MPI, and pip install mpi4py",
            ) from error
        check_library(launched, name := name_of(MPI.Get_library_version()))
        self._mpi, self._comm = MPI, MPI.COMM_WORLD
        with _patience(launched):
            self._start(launched, name)
        close_on_exec()
        self._status = MPI.Status()
        #: Whether the launcher was told to go on when a process dies (``mpirun --with-ft ulfm``).
        self._tolerant = bool(os.environ.get("OMPI_MCA_mpi_ft_enable"))  # noqa: SIM112
        self._out: dict[int, _Outbox] = {}
        self._packing = Packing()
        self._partial: dict[int, list[bytes]] = {}
        #: Whether a process was lost: the others cannot end together then.
        self.broken = False

    def _start(self, launched: Launched, name: str) -> None:
        """Start MPI, up to the last call that waits for all processes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the launcher is another MPI's is said here, in our words
            self._mpi.Init_thread(self._mpi.THREAD_FUNNELED)
        if "Open MPI" in name and launched.size > 1:
            # A process that is still on its way out of MPI_Init must not get a message: it would crash
            # (https://github.com/open-mpi/ompi/issues/12495). Nobody can tell that it is, so let it have its time.
            time.sleep(AFTER_INIT_SECONDS)
        self.rank, self.size = self._comm.rank, self._comm.size
        if self.size != launched.size:
            self._mpi.Finalize()
            raise wrong_launcher(launched, f"{name} sees {count(self.size, 'process')}")
        self._comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        #: For what does not travel as messages: `receive` must not see it.
        self._bulk = self._comm.Dup()

    def send(self, rank: int, message: object) -> None:
        """Send ``message``, some time; in order for each rank."""
        debug.message("to", rank, message)
        content, last = wire.dumps(message), LAST
        box = self._out.setdefault(rank, _Outbox())
        if self._packing.pays(len(content)):
            content, last = self._packed(content), LAST_PACKED
        if len(content) <= PIECE_BYTES:
            box.waiting.append((content, last))
        else:
            view = memoryview(content)
            cuts = range(0, len(content), PIECE_BYTES)
            box.waiting.extend((view[at : at + PIECE_BYTES], last if at == cuts[-1] else MORE) for at in cuts)
        self._push(rank, box)

    def _packed(self, content: bytes) -> bytes:
        begun = time.monotonic()
        packed = _core.pack(content)
        self._packing.packed(len(content), len(packed), time.monotonic() - begun)
        return packed

    def push(self) -> bool:
        """Carry on with what is being sent; whether anything is left."""
        for rank, box in list(self._out.items()):
            self._push(rank, box)
        return bool(self._out)

    def _push(self, rank: int, box: _Outbox) -> None:
        try:
            while box.in_flight and box.in_flight[0][0].Test():
                _, piece, since = box.in_flight.popleft()
                self._packing.sent(len(piece), time.monotonic() - since)
            while box.waiting and len(box.in_flight) < IN_FLIGHT:
                piece, tag = box.waiting.popleft()
                request = self._comm.Isend([piece, self._mpi.BYTE], rank, tag)
                box.in_flight.append((request, piece, time.monotonic()))
        except self._mpi.Exception:
            if not self._tolerant:
                raise
            box.waiting.clear()
            box.in_flight.clear()  # its process is gone: `failed` tells
        if not box.in_flight:
            self._out.pop(rank, None)

    def receive(self) -> list[tuple[int, Any]]:
        """(rank, message) of what has come."""
        found: list[tuple[int, Any]] = []
        comm, status = self._comm, self._status
        while len(found) < MOST_AT_ONCE and self._probe():
            rank, tag = status.Get_source(), status.Get_tag()
            content = bytearray(status.Get_count(self._mpi.BYTE))
            comm.Recv([content, self._mpi.BYTE], rank, tag)
            if tag == MORE:
                self._partial.setdefault(rank, []).append(bytes(content))
                continue
            whole = b"".join([*self._partial.pop(rank), content]) if rank in self._partial else content
            found.append((rank, wire.loads(_core.unpack(bytes(whole)) if tag == LAST_PACKED else whole)))
            debug.message("from", *found[-1])
        return found

    def _probe(self) -> bool:
        """Whether a message is there; its envelope is in ``_status``."""
        any_source, any_tag = self._mpi.ANY_SOURCE, self._mpi.ANY_TAG
        try:
            # A message that arrives during the first look is only seen by the second.
            return bool(
                self._comm.Iprobe(any_source, any_tag, self._status)
                or self._comm.Iprobe(any_source, any_tag, self._status)
            )
        except self._mpi.Exception:
            if not self._tolerant:
                raise
            self._comm.Ack_failed(self.size)  # or every later look fails again
            return False

    def link(self, before: int | None, after: int | None) -> Link:
        """The way from rank ``before`` to this one and on to rank ``after``, for bytes that are not messages."""
        return Link(self._mpi, self._bulk, before, after)

    def failed(self) -> set[int]:
        """Ranks whose process is gone, where MPI goes on without them (ULFM); else empty."""
        if not self._tolerant:
            return set()
        group = self._comm.Get_failed()
        if not group.size:
            return set()
        mine = range(group.size)
        return set(self._mpi.Group.Translate_ranks(group, list(mine), self._comm.Get_group()))

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything is sent; whether it was within the time."""
        return until(lambda: not self.push(), timeout_seconds, nap=FLUSH_NAP_SECONDS)

    def for_files(self) -> tuple[Any, Any]:
        """MPI and the communicator, to open files that all processes write together."""
        return self._mpi, self._comm

    def all_are_here(self) -> None:
        """All processes have started MPI: what only its start needs goes.

        MPICH keeps the name of its shared memory until its end, and leaves it behind when a process is killed.
        """
        with suppress(OSError), open("/proc/self/maps", "rb") as maps:
            for name in segments(maps):
                with suppress(OSError):  # another one was faster
                    os.unlink(name)

    def leave(self, exit_code: int, *, missing: bool = False) -> None:
        """End MPI together with the others; if one of them is lost, rank 0 ends all at once, with ``exit_code``.

        Args:
            missing: Some process is neither at the end of its work nor known to be gone.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if not self.broken and not self._tolerant:
            # It waits for all others. One may have come to a standstill since its last word; mpirun copes with the death
            # of one process better than of all.
            signal.alarm(LONGEST_FINALIZE if self.rank == 0 else 2 * LONGEST_FINALIZE)
            self._mpi.Finalize()
            signal.alarm(0)
            return
        # Finalize would wait for those that are lost, and after a failure now and then for ever.
        if self.broken and self.rank == 0 and (missing or not self._tolerant):
            # Without this, a launcher that tolerates failures waits for what stands still, and another one calls the
            # whole job a failure, as a process has ended without Finalize.
            signal.alarm(LONGEST_ABORT)
            self._comm.Abort(exit_code)
        elif self.broken and not self._tolerant:
            time.sleep(LONGEST_ABORT)  # rank 0 ends this process too
        os._exit(exit_code)


class Link:
    """See `millrace.storage.broadcast.Link`."""

    def __init__(self, mpi: Any, comm: Any, before: int | None, after: int | None) -> None:
        self._mpi, self._comm, self._before, self._after = mpi, comm, before, after

    def receive(self, buffer: memoryview) -> Piece:
        """Receive the next bytes from the one before."""
        return Piece(self._mpi, lambda: self._comm.Irecv([buffer, self._mpi.BYTE], self._before))

    def send(self, buffer: memoryview) -> Piece:
        """Send the next bytes to the one after."""
        return Piece(self._mpi, lambda: self._comm.Isend([buffer, self._mpi.BYTE], self._after))


class Piece:
    """Bytes under way.

    Raises:
        LostError: As `Test` does: the other is gone.
    """

    def __init__(self, mpi: Any, begin: Callable[[], Any]) -> None:
        self._mpi = mpi
        self._request = self._checked(begin)

    def Test(self) -> bool:
        """Whether they are there."""
        return bool(self._checked(self._request.Test))

    def _checked(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._mpi.Exception as error:
            raise LostError(f"a neighbour in the broadcast is lost: {error}", "the same command resumes") from error


@contextmanager
def _patience(launched: Launched) -> Iterator[None]:
    """End this process if MPI does not start: it waits for ever for a process that never comes, or froze."""
    limit = LONGEST_INIT_SECONDS + LONGEST_INIT_PER_PROCESS * launched.size
    words = (
        f"millrace: MPI does not start: one of {launched.size} processes has not come for {duration(limit)}\n\n"
        "hint: look at the nodes; the same command resumes\n"
    )
    # The launcher ends all once one has gone: rank 0, or the next if that is the one that does not come.
    turn = min(launched.rank, 2)
    alarm = _core.Alarm(limit + 2.0 * turn, words if turn < 2 else "", int(ExitCode.STOPPED))
    try:
        yield
    finally:
        alarm.cancel()


def segments(maps: Iterable[bytes]) -> set[bytes]:
    """Paths of MPICH's shared memory among the lines of ``/proc/PID/maps``, but for what has no name any more.

    >>> line = b"7f00-7f01 rw-s 00000000 00:19 7   /dev/shm/mpich_shm_x"
    >>> segments([line + b"\\n", line + b"y (deleted)\\n", b"7f02-7f03 rw-p 00000000 00:00 0\\n"])
    {b'/dev/shm/mpich_shm_x'}
    """
    paths = {fields[5].rstrip(b"\n") for line in maps if len(fields := line.split(maxsplit=5)) == 6}
    return {path for path in paths if path.startswith(b"/dev/shm/mpich_shm_") and not path.endswith(b" (deleted)")}


def name_of(version: str) -> str:
    """Name and version of an MPI library, from the page that it says of itself."""
    line = version.split("\0")[0].strip().splitlines()[0].partition(",")[0]
    return " ".join(line.replace("Version:", " ").split())


def check_library(launched: Launched, name: str) -> None:
    """Refuse a library that would end the process with words of its own if it were started.

    Raises:
        RefusedError: The launcher is Open MPI's and the library is one of MPICH's kind.
    """
    if "Open MPI" in launched.launcher and any(other in name for other in ("MPICH", "Intel", "MVAPICH")):
        raise wrong_launcher(launched, f"it is {name}")


def wrong_launcher(launched: Launched, found: str) -> RefusedError:
    """The error of a launcher that is another MPI's."""
    return RefusedError(
        f"{launched.launcher} started {launched.size} processes, but is not of the MPI library that mpi4py has loaded: "
        f"{found}",
        "use the mpirun of that library (or the right srun --mpi=...), or load the library of the launcher",
    )


def settle(scratch: Path) -> None:
    """Set what Open MPI reads when it starts, where nobody has.

    Its shared memory goes where it is removed whatever ends this process. The library of the Python package index
    looks for fast networks for a second, which it cannot use, and takes bridges of containers for ways to other nodes; a
    site's own MPI knows its network and is left alone.
    """
    for name in ("btl_sm", "btl_vader"):  # Open MPI 5, and 4
        os.environ.setdefault(f"OMPI_MCA_{name}_backing_directory", str(scratch))
    from_index = Path(sys.prefix, "lib", "libmpi.so.40").exists()
    if from_index and not any(f"OMPI_MCA_{name}" in os.environ for name in ("pml", "btl", "mtl")):
        os.environ.update(OMPI_MCA_pml="ob1", OMPI_MCA_btl="^ofi")
    if from_index and "OMPI_MCA_btl_tcp_if_include" not in os.environ:
        inner = ",".join(["127.0.0.0/8", *interfaces.inner_bridges()])
        os.environ.setdefault("OMPI_MCA_btl_tcp_if_exclude", inner)


def close_on_exec() -> None:
    """Keep the library's sockets from the tools: one that is inherited looks alive when its owner is dead."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # the listing's own
