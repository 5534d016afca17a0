"""The link between neighbours of a broadcast over MPI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millrace.errors import LostError


class Link:
    """The MPI requests to both neighbours; see ``millrace.storage.broadcast.Link``."""

    def __init__(self, mpi: Any, comm: Any, before: int | None, after: int | None) -> None:
        self._mpi, self._comm, self._before, self._after = mpi, comm, before, after

    def receive(self, buffer: memoryview) -> Piece:
        """Receive the next bytes from the rank before."""
        return Piece(self._mpi, lambda: self._comm.Irecv([buffer, self._mpi.BYTE], self._before))

    def send(self, buffer: memoryview) -> Piece:
        """Send the next bytes to the rank after."""
        return Piece(self._mpi, lambda: self._comm.Isend([buffer, self._mpi.BYTE], self._after))


class Piece:
    """One MPI request in flight.

    Raises:
        LostError: The neighbour is gone; ``Test`` raises the same.
    """

    def __init__(self, mpi: Any, begin: Callable[[], Any]) -> None:
        self._mpi = mpi
        self._request = self._checked(begin)

    def Test(self) -> bool:
        """Tell whether the request is complete."""
        return bool(self._checked(self._request.Test))

    def _checked(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._mpi.Exception as error:
            raise LostError(f"a neighbour in the broadcast is lost: {error}", "the same command resumes") from error
