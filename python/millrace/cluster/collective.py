"""Writing an output with MPI-IO: all processes in one call, which moves the bytes to those that write them.

Such a call waits for every process. So each reads its blocks first, says that it is `say.Prepared`, and then calls; the
coordinator calls last, when all others have said so. It never waits for one that is lost, and they wait for its
messages no longer than it takes the slowest of them to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.cluster.mpi import World
from millrace.errors import MillraceError, RefusedError
from millrace.output.parts import ExtentWriter, Prepared


class CollectiveFile:
    """A file open for writing in all processes; each method is to be called by all of them.

    Raises:
        RefusedError: MPI-IO cannot open it.
    """

    def __init__(self, world: World, path: Path) -> None:
        self._mpi, comm = world.for_files()
        self._path = path
        try:
            self._file = self._mpi.File.Open(comm, str(path), self._mpi.MODE_WRONLY)
        except self._mpi.Exception as error:
            raise RefusedError(
                f"--write collective: the MPI-IO of this MPI cannot open {path}: {error}", "use --write merge"
            ) from error

    def write(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Write these bytes at their offsets, in order; others write theirs.

        Raises:
            MillraceError: It failed.
        """
        mpi = self._mpi
        kind: Any = mpi.BYTE
        if pieces:
            kind = mpi.BYTE.Create_hindexed([len(content) for _, content in pieces], [at for at, _ in pieces]).Commit()
        try:
            self._file.Set_view(0, mpi.BYTE, kind)
            self._file.Write_all([b"".join(content for _, content in pieces), mpi.BYTE])
        except mpi.Exception as error:
            raise MillraceError(
                f"{self._path}: MPI-IO: {error}", "the same command with --write merge resumes"
            ) from error
        if pieces:
            kind.Free()

    def close(self) -> None:
        self._file.Close()


class Together:
    """The outputs that are written so, in one process."""

    def __init__(self, world: World, paths: Mapping[int, Path], parts: ExtentWriter) -> None:
        self._parts = parts
        self._files = {stream: CollectiveFile(world, path) for stream, path in sorted(paths.items())}

    def prepared(self) -> list[Prepared]:
        """What this process could write now."""
        return self._parts.take_prepared()

    def write(self, prepared: Prepared) -> None:
        """Write together with all others."""
        self._files[prepared.stream].write(prepared.pieces)
        self._parts.wrote(prepared.stream, prepared.number)

    def close(self) -> None:
        """Close all files, together with all others."""
        for file in self._files.values():
            file.close()
        self._files.clear()


class Rounds:
    """The coordinator's side: when all others are ready to write a part of a stream, it is."""

    def __init__(self, together: Together, n_others: int) -> None:
        self._together, self._n_others = together, n_others
        self._ready: dict[int, int] = {}
        self._own: dict[int, Prepared] = {}

    def heard(self, stream: int) -> None:
        """Another process is prepared."""
        self._ready[stream] = self._ready.get(stream, 0) + 1

    def turn(self) -> None:
        """Take part where all others wait."""
        for prepared in self._together.prepared():
            self._own[prepared.stream] = prepared
        for stream in [stream for stream in self._own if self._ready.get(stream) == self._n_others]:
            del self._ready[stream]
            self._together.write(self._own.pop(stream))

    @property
    def over(self) -> bool:
        """Whether nobody waits."""
        return not self._ready

    def close(self) -> None:
        """Close all files; the others do so too."""
        self._together.close()
