"""A piece of a file, as a location of its own."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from millrace.storage.clients.base import FileLocation, FileStatus


class PieceLocation(FileLocation):
    """A range of bytes of a file, with the version of the file.

    Args:
        first: Offset of the first byte; ``size``: number of bytes.
    """

    def __init__(self, whole: FileLocation, first: int, size: int) -> None:
        super().__init__(whole.url, whole.shown)
        self._whole, self._first, self._size = whole, first, size
        #: Status of the whole file, once asked.
        self._about: FileStatus | None = None

    def query_status(self) -> FileStatus:
        self._about = self._whole.query_status()
        if self._about.size < self._first + self._size:
            raise self.make_changed_error()
        return msgspec.structs.replace(self._about, size=self._size, checksum="")

    def stream_bytes(self, offset: int, length: int, about: FileStatus) -> Iterator[bytes]:
        assert self._about  # set by ``query_status``
        return self._whole.stream_bytes(self._first + offset, length, self._about)

    def list_names(self, folders: bool = False) -> list[str]:
        return self._whole.list_names(folders)

    def close(self) -> None:
        self._whole.close()
