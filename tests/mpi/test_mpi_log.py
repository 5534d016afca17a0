"""The debug log of a job of several processes: a file for each rank, with what it says to the others and hears."""

from __future__ import annotations

from pathlib import Path

from mpi_jobs import Mpi


def test_each_rank_logs_messages_sent_and_received(an_mpi: Mpi, tmp_path: Path) -> None:
    (tmp_path / "in.fa").write_text("".join(f">r{k}\nMKV\n" for k in range(20)))
    words = ["run", "--slots", "1", "--batch", "1", "--verify", "0", "--input", "in.fa", "--output", "o", "--"]
    code, said = an_mpi.run(2, [*words, "cp", "in.fa", "o"], tmp_path, MILLRACE_LOG="log")
    assert code == 0, said
    first, second = ((tmp_path / f"log.{rank}").read_text().splitlines() for rank in (0, 1))
    assert all(" rank 0 pid " in line for line in first) and all(" rank 1 pid " in line for line in second)
    for way, back, name in (("to", "from", "SetUpNode"), ("from", "to", "NodeReady")):
        assert any(f"millrace.mpi: {way} rank 1: {name}(" in line for line in first), name
        assert any(f"millrace.mpi: {back} rank 0: {name}(" in line for line in second), name
    assert any("millrace.decision: BatchCut(" in line for line in first)
    assert "MKV" not in str(first + second)
