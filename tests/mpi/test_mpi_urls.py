"""Files behind URLs in a bare ``mpirun``: the processes of a node download each once."""

from __future__ import annotations

from pathlib import Path

import pytest
import web_server
from mpi_jobs import Mpi


@pytest.mark.slow
def test_mpirun_processes_download_a_file_once(openmpi: Mpi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("requests")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    records = "".join(f">r{k}\nMKV\n" for k in range(12))
    (tmp_path / "tool").write_text('#!/bin/sh\ncat "$2" > /dev/null && sed "s|^>.*|& $(cksum < "$2")|" "$1"\n')
    (tmp_path / "tool").chmod(0o755)
    with web_server.serve() as web:
        queries, shared = web.put("q.fa", records.encode()), web.put("set.bin", b"x" * 5_000_000)
        options = f"run --slots 1 --batch 2 --stage disk --input {queries} --shared {shared} -o out.fa"
        words = [*options.split()[:-2], "--", "./tool", queries, shared]
        code, said = openmpi.run(3, words, tmp_path)
        assert code == 0 and "in 3 processes" in said, said
        assert web.n_downloads == 2, said
    assert (tmp_path / "stdout").read_text().count(" 5000000\n") == 12, "each record was read beside the whole file"
