"""A filesystem in user space that holds files and folders, and nothing else: no pipes, no links. `python pipeless_filesystem.py FROM AT`."""

from __future__ import annotations

import os
import sys
from typing import Any

import mfusepy


class Plain(mfusepy.Operations):  # type: ignore[misc]
    """What is in the folder ``root``."""

    use_ns = True

    def __init__(self, root: str) -> None:
        self._root = root

    def _real(self, path: str) -> str:
        return self._root + path

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.lstat(self._real(path))
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size")
        times = {f"st_{each}time": getattr(found, f"st_{each}time_ns") for each in "amc"}
        return {name: getattr(found, name) for name in names} | times

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._real(path))]

    def open(self, path: str, flags: int) -> int:
        return os.open(self._real(path), flags & ~os.O_APPEND)

    def create(self, path: str, mode: int, fi: object = None) -> int:
        return os.open(self._real(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        os.truncate(self._real(path), length)

    def release(self, path: str, fh: int) -> None:
        os.close(fh)

    def flush(self, path: str, fh: int) -> None:
        pass

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        pass

    def fsyncdir(self, path: str, datasync: int, fh: int) -> None:
        pass

    def unlink(self, path: str) -> None:
        os.unlink(self._real(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(self._real(old), self._real(new))

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self._real(path), mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(self._real(path))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self._real(path), mode)

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        os.utime(self._real(path), ns=times)

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._real(path))
        return {
            name: getattr(found, name)
            for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_namemax")
        }

    def access(self, path: str, mode: int) -> None:
        pass


if __name__ == "__main__":
    mfusepy.FUSE(Plain(sys.argv[1]), sys.argv[2], foreground=True, nothreads=True)
