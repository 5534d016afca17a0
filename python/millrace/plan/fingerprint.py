"""Fingerprints of what a result depends on: cheap enough for every start, honest enough for a resume."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

#: A file is read whole up to this size, above it in samples.
WHOLE_BYTES = 64 << 20
SAMPLES = 64
SAMPLE_BYTES = 64 << 10


def of_content(path: Path) -> str:
    """Size and digest of a file; of samples of it if it is large.

    A change that the samples miss is still found by a resume, which compares the checksum of every batch.
    A pipe has no fingerprint beyond what it is.
    """
    if not path.is_file():
        return "not a regular file"
    size = path.stat().st_size
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            while block := file.read(1 << 20):
                digest.update(block)
        else:
            for k in range(SAMPLES):
                file.seek((size - SAMPLE_BYTES) * k // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return f"{size} bytes, {digest.hexdigest()}"


def of_stat(path: str | os.PathLike[str]) -> str:
    """Size and time of change: for databases and programs, which are too large to read at every start."""
    stat = os.stat(path)
    return f"{stat.st_size} bytes, changed {stat.st_mtime_ns}"
