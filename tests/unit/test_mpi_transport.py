"""Shared memory that MPICH leaves behind."""

from __future__ import annotations

import mmap
import os
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from millrace.cluster.transport.mpi_transport import MpiTransport


def test_only_shared_memory_of_mpich_is_unlinked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "(deleted)").write_text("the user's")
    gone, there = (Path(f"/dev/shm/mpich_shm_{os.urandom(8).hex()}") for _ in range(2))
    with ExitStack() as stack:
        for path in (gone, there):
            path.write_bytes(b"x" * 4096)
            file = stack.enter_context(path.open("rb"))
            stack.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        gone.unlink()
        MpiTransport.unlink_startup_memory(cast(MpiTransport, None))
        assert not there.exists()
    assert (tmp_path / "(deleted)").exists()
