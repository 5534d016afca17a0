"""Whoever writes the output of a job on several nodes, it is the serial tool's, and grows in order where it is promised."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import harness
import pytest
from crash_site import FRAMED, Site
from exact_cases import CASES, Case, differing, serially
from mpi_jobs import Mpi, end, ranks, said
from parameter_choice import again
from traced_writes import check, extents, traced

WAYS = ("merge", "individual", "collective", "coordinator")

#: With header, footer or numbers that run on: each node joins what it writes.
JOINED = (
    "blastp-0", "blastp-5", "blastp-7", "blastp-8", "blastp-15", "blastp-16", "hmmscan", "hmmsearch", "jackhmmer", "cmscan",
    "minimap2-sam", "bowtie2-sam",
)  # fmt: skip
#: Its parts one process must see, one after the other, whatever is asked.
WRITTEN_BY_ONE = "diamond-5"
JOBS = [case for case in CASES if case.name in ("blastp-6", "filter", WRITTEN_BY_ONE, *JOINED)]
#: What is shown in each run of the tests, at least one case of each way.
SHOWN = {
    ("blastp-0", "individual"), ("blastp-5", "merge"), ("blastp-15", "collective"), ("hmmscan", "merge"), ("minimap2-sam", "merge"),
}  # fmt: skip


def cases_and_ways() -> Iterator[Any]:
    """``SHOWN``; all ways and cases with ``-m slow``."""
    for case, way in product(JOBS, WAYS):
        marks = [] if (case.name, way) in SHOWN else pytest.mark.slow
        yield pytest.param(case, way, id=f"{case.name}-{way}", marks=marks)


@pytest.mark.parametrize(("case", "way"), list(cases_and_ways()))
def test_output_is_the_serial_tools(an_mpi: Mpi, case: Case, way: str, bench_of: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    words, serial = serially(case, bench_of, folder)
    ours = ["run", "--slots", "1", "--batch", "1", "--write", way, *case.options, "--", *words]
    code, text = an_mpi.run(4, ours, folder, stdin=case.stdin)
    assert code == 0, text
    assert not differing(case, folder, serial)
    alone = case.name == WRITTEN_BY_ONE and way != "coordinator"
    assert ("is written by the coordinator" in text) == alone
    assert "written again" not in text


@pytest.mark.parametrize("way", ["merge", pytest.param("individual", marks=pytest.mark.slow)])
def test_nodes_write_large_pieces_that_do_not_cross_a_stripe(openmpi: Mpi, way: str, tmp_path: Path) -> None:
    content = b"".join(b">r%d\n%s\n" % (k, b"A" * (99 if k % 3 else 1_700_000)) for k in range(12))
    (tmp_path / "in.fa").write_bytes(content)
    (tmp_path / "tool").write_text('#!/bin/sh\nexec cat "$1" > "$2"\n')
    (tmp_path / "tool").chmod(0o755)
    ours = f"run --slots 1 --batch 1 --verify 0 --write {way} --input in.fa --output out -- ./tool in.fa out".split()
    log, out = tmp_path / "log", tmp_path / "out"
    code, text = openmpi.run(3, ours, tmp_path, wrap=traced(log))
    assert code == 0 and out.read_bytes() == content, text
    # Each part that a node is given begins and ends where a result does.
    check(extents(log, out), len(content), most=2 * 12)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, n=60)


def words(*more: str) -> list[str]:
    tool = ["./tool", "in.fa", "out.fa"]
    return ["run", "--slots", "1", "--batch", "2", *more, "--input", "in.fa", "--output", "out.fa", "--", *tool]


@pytest.mark.slow
def test_merged_output_grows_during_the_run(openmpi: Mpi, site: Site) -> None:
    mark = f"{site.folder.name}-{os.getpid()}"
    process = openmpi.start(4, words(), site.folder, mark, LOG=str(site.log), HOLD="20")
    try:
        # No task after the nineteenth of thirty ends before it is seen.
        assert harness.wait_until(lambda: site.output.exists() and site.output.stat().st_size > 0, process)
        site.release()
        while process.poll() is None:
            # Two nodes may write side by side: where one is not there yet, the file has a gap.
            assert all(byte in (0, right) for byte, right in zip(site.output.read_bytes(), site.expected, strict=False))
    finally:
        end(process, mark)
    assert process.returncode == 0, said(site.folder)
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "victim"),
    [
        again("merge", 0),
        ("individual", 2),
        *(again(*each) for each in (("merge", 2), ("individual", 0), ("collective", 0), ("collective", 2))),
    ],
)
def test_killed_writer_costs_only_time(openmpi: Mpi, site: Site, way: str, victim: int) -> None:
    """Each node joins what it writes: the output has one header and one footer."""
    (site.folder / "tool").write_text(FRAMED)
    framed = ("--join", "header", "--join", "footer", "--write")
    (site.output).write_bytes(b"of another run, and longer than this one's\n" * 1000)
    mark = f"{site.folder.name}-{os.getpid()}"
    environ = {"LOG": str(site.log)}
    process = openmpi.start(4, words(*framed, way), site.folder, mark, HOLD="20", **environ)
    try:
        assert harness.wait_until(lambda: 0 < site.output.stat().st_size < 20_000, process), said(site.folder)
        os.kill(ranks(mark)[victim], signal.SIGKILL)
        process.wait(harness.LONGEST_SECONDS)
    finally:
        end(process, mark)
    assert process.returncode != 0
    code, text = openmpi.run(3, words(*framed, "merge"), site.folder, **environ)
    assert code == 0, text
    assert site.output.read_bytes() == b"# framed\n%s# end\n" % site.expected
    assert not site.run_dir.exists()


@pytest.mark.slow
@pytest.mark.parametrize("way", [again("merge"), "individual"])
def test_extents_of_a_lost_writer_are_written_by_others(openmpi: Mpi, site: Site, way: str) -> None:
    tolerant = replace(openmpi, mpirun=(*openmpi.mpirun, "--with-ft", "ulfm"))
    mark = f"{site.folder.name}-{os.getpid()}"
    process = tolerant.start(4, words("--write", way), site.folder, mark, LOG=str(site.log), HOLD="20")
    try:
        assert harness.wait_until(lambda: site.output.exists() and site.output.stat().st_size > 0, process), said(
            site.folder
        )
        os.kill(ranks(mark)[2], signal.SIGKILL)
        assert harness.wait_until(lambda: "(rank 2) is lost" in said(site.folder), process), said(site.folder)
        site.release()
        process.wait(harness.LONGEST_SECONDS)
    finally:
        end(process, mark)
    assert process.returncode == 0, said(site.folder)
    assert "(rank 2) is lost" in said(site.folder)
    assert "/3 slots busy" in said(site.folder).partition("is lost")[2], said(site.folder)
    assert site.output.read_bytes() == site.expected


def test_output_on_another_filesystem_goes_to_coordinator(openmpi: Mpi, site: Site) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if site.folder.stat().st_dev == os.stat(other).st_dev:
            pytest.skip("one filesystem for all")
        more = ("--write", "merge", "--run-dir", f"{other}/out.millrace")
        code, text = openmpi.run(3, words(*more), site.folder, LOG=str(site.log))
    assert code == 0, text
    assert "out.fa is written by the coordinator: it is on another filesystem than the run directory" in text
    assert site.output.read_bytes() == site.expected
