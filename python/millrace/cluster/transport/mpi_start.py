"""Settings and checks around the start of MPI, and small parts that depend on its library.

The settings keep MPI away from network interfaces that reach no other node. The parts are the link between neighbours
of a broadcast, and the back-off between polls for messages. No other message is sent here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millrace import _core
from millrace.core.errors import ExitCode, LostError, RefusedError
from millrace.core.text_format import format_duration
from millrace.core.wait_loop import PollBackoff
from millrace.host.core_allocation import LaunchedProcess

#: The kernel's description of each interface (Linux, Documentation/ABI/testing/sysfs-class-net).
SYS = Path("/sys/class/net")


def list_inner_bridges(net: Path = SYS) -> list[str]:
    """Return the bridges that lead to no other machine: those of containers and virtual machines, such as ``docker0``.

    Open MPI takes the address of each interface for a route to this node. These bridges have the same addresses on many
    nodes, and come and go while a job runs: then a message is lost, and both sides wait.
    """
    return sorted(each.parent.name for each in net.glob("*/bridge") if not _has_outside_port(net, each.parent))


def _has_outside_port(net: Path, bridge: Path) -> bool:
    """Tell whether a port of a bridge is a device, or is made of others, as bonds and VLANs are."""
    ports = (net / port.name for port in (bridge / "brif").glob("*"))
    return any((port / "device").exists() or any(port.glob("lower_*")) for port in ports)


class MpiBroadcastLink:
    """The MPI requests to both neighbours; see ``millrace.storage.broadcast.BroadcastLink``."""

    def __init__(self, mpi: Any, comm: Any, before: int | None, after: int | None) -> None:
        self._mpi, self._comm, self._before, self._after = mpi, comm, before, after

    def receive(self, buffer: memoryview) -> MpiTransfer:
        """Receive the next bytes from the rank before."""
        return MpiTransfer(self._mpi, lambda: self._comm.Irecv([buffer, self._mpi.BYTE], self._before))

    def send(self, buffer: memoryview) -> MpiTransfer:
        """Send the next bytes to the rank after."""
        return MpiTransfer(self._mpi, lambda: self._comm.Isend([buffer, self._mpi.BYTE], self._after))


class MpiTransfer:
    """One MPI request in flight.

    Raises:
        LostError: The neighbour is gone; ``Test`` raises the same.
    """

    def __init__(self, mpi: Any, begin: Callable[[], Any]) -> None:
        self._mpi = mpi
        self._request = self._call_mpi(begin)

    def Test(self) -> bool:  # noqa: N802 - as mpi4py names it
        """Tell whether the request is complete."""
        return bool(self._call_mpi(self._request.Test))

    def _call_mpi(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._mpi.Exception as error:
            raise LostError(f"a neighbour in the broadcast is lost: {error}", "the same command resumes") from error


#: Seconds that all processes get to start MPI, and more for each of them: a disk may be slow.
MAX_INIT_SECONDS, MAX_INIT_SECONDS_PER_PROCESS = 120.0, 0.1

#: Slurm reads 1,024 bytes of a message of the first PMI protocol and takes the rest for the next one
#: (src/plugins/mpi/pmi2/pmi1.c). MPICH 5 sends the address of a process together with 4 kB of memory behind it, and its
#: length in the message depends on its content.
LOST_PMI_MESSAGE_HINT = (
    '; if Slurm says "mpi/pmi2: invalid client request", a message of MPICH was too long for it: '
    "leave out srun, and the processes are started in another way"
)


@contextmanager
def limit_startup_time(launched: LaunchedProcess) -> Iterator[None]:
    """End this process if MPI does not start in time: MPI waits for ever for a process that is missing or stopped."""
    limit = MAX_INIT_SECONDS + MAX_INIT_SECONDS_PER_PROCESS * launched.size
    hint = LOST_PMI_MESSAGE_HINT if os.environ.get("SLURM_MPI_TYPE") == "pmi2" else ""
    words = (
        f"millrace: MPI does not start: one of {launched.size} processes has not come for {format_duration(limit)}\n\n"
        f"hint: look at the nodes; the same command resumes{hint}\n"
    )
    # The launcher ends all once one has exited: rank 0, or the next if rank 0 is the missing one.
    turn = min(launched.rank, 2)
    alarm = _core.Alarm(limit + 2.0 * turn, words if turn < 2 else "", int(ExitCode.STOPPED))
    try:
        yield
    finally:
        alarm.cancel()


def find_mpich_segments(maps: Iterable[bytes]) -> set[bytes]:
    """Find the paths of MPICH's shared memory in the lines of ``/proc/PID/maps``; unlinked ones are left out.

    >>> line = b"7f00-7f01 rw-s 00000000 00:19 7   /dev/shm/mpich_shm_x"
    >>> find_mpich_segments([line + b"\\n", line + b"y (deleted)\\n", b"7f02-7f03 rw-p 00000000 00:00 0\\n"])
    {b'/dev/shm/mpich_shm_x'}
    """
    paths = {fields[5].rstrip(b"\n") for line in maps if len(fields := line.split(maxsplit=5)) == 6}
    return {path for path in paths if path.startswith(b"/dev/shm/mpich_shm_") and not path.endswith(b" (deleted)")}


def parse_library_name(version: str) -> str:
    """Parse name and version of an MPI library from the text of ``MPI_Get_library_version``."""
    line = version.split("\0")[0].strip().splitlines()[0].partition(",")[0]
    return " ".join(line.replace("Version:", " ").split())


def check_library_fits_launcher(launched: LaunchedProcess, name: str) -> None:
    """Refuse a library that does not fit the launcher, before it aborts the process with a message of its own.

    Raises:
        RefusedError: The launcher is Open MPI's, and the library is MPICH or one derived from it.
    """
    if "Open MPI" in launched.launcher and any(other in name for other in ("MPICH", "Intel", "MVAPICH")):
        raise make_wrong_launcher_error(launched, f"it is {name}")


def make_wrong_launcher_error(launched: LaunchedProcess, found: str) -> RefusedError:
    """Make the error of a launcher that belongs to another MPI library."""
    return RefusedError(
        f"{launched.launcher} started {launched.size} processes, but is not of the MPI library that mpi4py has loaded: "
        f"{found}",
        "use the mpirun of that library (or the right srun --mpi=...), or load the library of the launcher",
    )


def set_openmpi_defaults(scratch: Path) -> None:
    """Set defaults for the parameters that Open MPI reads from the environment when it starts.

    Its shared memory goes to ``scratch``, which is removed whatever ends this process. The library from the Python
    package index probes for a second for fast networks, which it cannot use, and takes bridges of containers for routes
    to other nodes. A site's own MPI knows its network and keeps its settings.
    """
    for name in ("btl_sm", "btl_vader"):  # Open MPI 5, and 4
        os.environ.setdefault(f"OMPI_MCA_{name}_backing_directory", str(scratch))
    from_index = Path(sys.prefix, "lib", "libmpi.so.40").exists()
    if from_index and not any(f"OMPI_MCA_{name}" in os.environ for name in ("pml", "btl", "mtl")):
        os.environ.update(OMPI_MCA_pml="ob1", OMPI_MCA_btl="^ofi")
    if from_index and "OMPI_MCA_btl_tcp_if_include" not in os.environ:
        inner = ",".join(["127.0.0.0/8", *list_inner_bridges()])
        os.environ.setdefault("OMPI_MCA_btl_tcp_if_exclude", inner)


def set_close_on_exec() -> None:
    """Keep the library's sockets out of child processes: one inherited by a tool looks alive when its owner is dead."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # the descriptor of the listing itself


#: Shortest and longest nap between polls for messages, in seconds; naps grow while no message arrives.
NAP_SECONDS = (0.0002, 0.005)

#: Ratio of a nap to the one before.
GROWTH = 2.0


def create_message_naps(shortest: float = NAP_SECONDS[0]) -> PollBackoff:
    """Create the back-off between polls for messages; its first nap takes ``shortest`` seconds."""
    return PollBackoff(shortest, NAP_SECONDS[1], GROWTH)
