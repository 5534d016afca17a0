"""The link between neighbours of a broadcast over MPI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millrace.errors import LostError


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

    def Test(self) -> bool:
        """Tell whether the request is complete."""
        return bool(self._call_mpi(self._request.Test))

    def _call_mpi(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._mpi.Exception as error:
            raise LostError(f"a neighbour in the broadcast is lost: {error}", "the same command resumes") from error
