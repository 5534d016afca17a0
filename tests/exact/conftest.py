"""Small real databases and queries, cut from the test data."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def records(path: Path, start: bytes = b">") -> list[bytes]:
    """The records of a file that begin with ``start`` at the start of a line, byte for byte."""
    found: list[bytes] = []
    for line in path.read_bytes().splitlines(keepends=True):
        if line.startswith(start) or not found:
            found.append(b"")
        found[-1] += line
    return found


@pytest.fixture(scope="session")
def bench_of(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with databases (``prot``, ``nucl``, ``p.hmm`` pressed) and queries for every tool."""
    folder = tmp_path_factory.mktemp("exact")
    proteins = records(data / "proteins_db.faa")
    (folder / "prot.faa").write_bytes(b"".join(proteins[::6]))
    queries = records(data / "proteins_queries.faa")
    awkward = [b">empty_one\n", b">lower case\nmkvlaagivgllaa\nggsgkstlaraLAR\n", queries[3].replace(b"\n", b"\r\n")]
    (folder / "q.faa").write_bytes(
        b"".join([*queries[:9], *awkward[1:], *queries[20:26], awkward[0], *queries[40:43]]).rstrip(b"\n")
    )
    (folder / "q3.faa").write_bytes(b"".join(queries[5:12]))
    genes = records(data / "genes_db.fna")
    (folder / "nucl.fna").write_bytes(b"".join(genes[::4]))
    (folder / "q.fna").write_bytes(b"".join(genes[1:40:3]))
    (folder / "q3.fna").write_bytes(b"".join(genes[1:8:3]))
    profiles = (data / "profiles.hmm").read_bytes().split(b"//\n")
    (folder / "p.hmm").write_bytes(b"".join(part + b"//\n" for part in profiles[:25]))
    shutil.copy(data / "ligands.mol2", folder)
    shutil.copy(data / "drugs.smi", folder)
    (folder / "fams").mkdir()
    for path in sorted((data / "families").glob("*.faa"), key=lambda path: path.stat().st_size)[:7]:
        shutil.copy(path, folder / "fams")
    for name, kind in (("prot.faa", "prot"), ("nucl.fna", "nucl")):
        if shutil.which("makeblastdb"):
            command = ["makeblastdb", "-in", name, "-dbtype", kind, "-out", name.partition(".")[0]]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    if shutil.which("diamond"):
        command = ["diamond", "makedb", "--in", "prot.faa", "-d", "dmnd", "--quiet"]
        subprocess.run(command, cwd=folder, check=True)
    if shutil.which("hmmpress"):
        subprocess.run(["hmmpress", "p.hmm"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    yield folder
    shutil.rmtree(folder)
