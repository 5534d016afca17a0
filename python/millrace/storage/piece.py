"""A piece of a file, as a location of its own."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from millrace.storage.clients.base import About, Location


class Piece(Location):
    """A range of bytes of a file, with the version of the file.

    Args:
        first: Offset of the first byte; ``size``: number of bytes.
    """

    def __init__(self, whole: Location, first: int, size: int) -> None:
        super().__init__(whole.url, whole.shown)
        self._whole, self._first, self._size = whole, first, size
        #: Status of the whole file, once asked.
        self._about: About | None = None

    def about(self) -> About:
        self._about = self._whole.about()
        if self._about.size < self._first + self._size:
            raise self.changed()
        return msgspec.structs.replace(self._about, size=self._size, checksum="")

    def stream(self, offset: int, length: int, about: About) -> Iterator[bytes]:
        assert self._about  # set by ``about``
        return self._whole.stream(self._first + offset, length, self._about)

    def names(self, folders: bool = False) -> list[str]:
        return self._whole.names(folders)

    def close(self) -> None:
        self._whole.close()
