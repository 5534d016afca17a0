"""Messages between the processes of an MPI job. The only module that imports ``mpi4py``.

Nothing here blocks: a peer may be dead. All calls come from the main thread (``MPI_THREAD_FUNNELED``; with more, Open
MPI 5 can lock itself out when a peer dies while a message is under way). Large messages travel in pieces.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace.engine.launched import Launched
from millrace.errors import RefusedError

#: Longest piece of a message, in bytes.
PIECE = 4 << 20

#: Pieces under way to one rank.
IN_FLIGHT = 8

#: Messages taken in one look, so that whoever looks does something else too.
MOST_AT_ONCE = 256

#: Tags: more pieces of this message follow, or this is its last.
MORE, LAST = 1, 2


@dataclass
class _Outbox:
    waiting: deque[tuple[Any, int]] = field(default_factory=deque)
    #: (request, buffer): the buffer must live until the request is done.
    flying: deque[tuple[Any, Any]] = field(default_factory=deque)


class World:
    """All processes of the job; `rank` 0 is the coordinator.

    Raises:
        RefusedError: MPI cannot be used, or is not the launcher's.
    """

    def __init__(self, launched: Launched) -> None:
        prefer_fast_start()
        try:
            import mpi4py

            mpi4py.rc.thread_level = "funneled"
            mpi4py.rc.finalize = False  # after a failure it may wait for ever: see `leave`
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise RefusedError(
                f"started as {launched.size} processes by {launched.launcher}, but there is no MPI to be used: {error}",
                "install mpi4py and an MPI with: pip install 'millrace[mpi]'; or load the site's MPI, and pip install mpi4py",
            ) from error
        self._mpi, self._comm = MPI, MPI.COMM_WORLD
        self.rank, self.size = self._comm.rank, self._comm.size
        check(launched, self.size, MPI.Get_library_version())
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        close_on_exec()
        self._status = MPI.Status()
        self._out: dict[int, _Outbox] = {}
        self._partial: dict[int, list[bytes]] = {}
        #: Whether a process was lost: the others cannot end together then.
        self.broken = False

    def send(self, rank: int, message: object) -> None:
        """Send ``message``, some time; in order for each rank."""
        content = pickle.dumps(message, protocol=5)
        box = self._out.setdefault(rank, _Outbox())
        if len(content) <= PIECE:
            box.waiting.append((content, LAST))
        else:
            view = memoryview(content)
            cuts = range(0, len(content), PIECE)
            box.waiting.extend((view[at : at + PIECE], LAST if at == cuts[-1] else MORE) for at in cuts)
        self._push(rank, box)

    def push(self) -> bool:
        """Carry on with what is being sent; whether anything is left."""
        for rank, box in list(self._out.items()):
            self._push(rank, box)
        return bool(self._out)

    def _push(self, rank: int, box: _Outbox) -> None:
        while box.flying and box.flying[0][0].Test():
            box.flying.popleft()
        while box.waiting and len(box.flying) < IN_FLIGHT:
            piece, tag = box.waiting.popleft()
            box.flying.append((self._comm.Isend([piece, self._mpi.BYTE], rank, tag), piece))
        if not box.flying:
            self._out.pop(rank, None)

    def receive(self) -> list[tuple[int, Any]]:
        """(rank, message) of what has come."""
        found: list[tuple[int, Any]] = []
        comm, status = self._comm, self._status
        while len(found) < MOST_AT_ONCE:
            # A message that arrives during the first look is only seen by the second.
            if not comm.Iprobe(self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, status) and not comm.Iprobe(
                self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, status
            ):
                break
            rank, tag = status.Get_source(), status.Get_tag()
            content = bytearray(status.Get_count(self._mpi.BYTE))
            comm.Recv([content, self._mpi.BYTE], rank, tag)
            if tag == MORE:
                self._partial.setdefault(rank, []).append(bytes(content))
            elif rank in self._partial:
                found.append((rank, pickle.loads(b"".join([*self._partial.pop(rank), content]))))
            else:
                found.append((rank, pickle.loads(content)))
        return found

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything is sent; whether it was within the time."""
        deadline = time.monotonic() + timeout_seconds
        while self.push():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def leave(self) -> None:
        """End MPI together with the others; ends this process at once if one of them is lost."""
        if not self.broken:
            self._mpi.Finalize()
            return
        sys.stdout.flush()
        sys.stderr.flush()
        # The launcher ends the others. Finalize would wait for those that are lost.
        os._exit(1)


def check(launched: Launched, size: int, library: str) -> None:
    """Refuse a world that is not the launcher's.

    Raises:
        RefusedError: The launcher started more processes than MPI knows: it is another MPI's.
    """
    if size == launched.size:
        return
    name = library.split("\0")[0].strip().splitlines()[0].partition(",")[0].strip()
    raise RefusedError(
        f"{launched.launcher} started {launched.size} processes, but the MPI library that mpi4py found ({name}) "
        f"sees {size}: the launcher belongs to another MPI",
        "use the mpirun or the srun --mpi=... of the library that is loaded, or load the launcher's library",
    )


def prefer_fast_start() -> None:
    """Spare the second in which the Open MPI of the Python package index looks for fast networks that it cannot use.

    A site's own MPI knows its network: it is left alone, as is whoever has said what to use.
    """
    ours = Path(sys.prefix, "lib", "libmpi.so.40").exists()
    said = any(name in os.environ for name in ("OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl"))
    if ours and not said:
        os.environ.update(OMPI_MCA_pml="ob1", OMPI_MCA_btl="^ofi")


def close_on_exec() -> None:
    """Keep the library's sockets from the tools: one that is inherited looks alive when its owner is dead."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # the listing's own
