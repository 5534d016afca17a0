"""A database of physical fragments is the database that it was made of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from exact_cases import records
from fragment_driver import command_of, in_fragments, serial, understand
from parameter_choice import some

from millrace.adapters.blast import physical_fragments as splitting
from millrace.core.errors import MillraceError, RefusedError

pytestmark = pytest.mark.skipif(shutil.which("makeblastdb") is None, reason="BLAST+ is not installed")

DATABASES = {
    "plain": "-dbtype prot",
    "many": "-dbtype prot -max_file_sz 30000B",
    "ids": "-dbtype prot -parse_seqids -taxid_map taxa",
    "old": "-dbtype prot -blastdb_version 4",
    "old_ids": "-dbtype prot -blastdb_version 4 -parse_seqids",
    "masked": "-dbtype prot -parse_seqids -mask_data seg.asnb",
    "genes": "-dbtype nucl -max_file_sz 60000B",
    "gene_ids": "-dbtype nucl -parse_seqids",
}


@pytest.fixture(scope="module")
def place(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("split")
    proteins = records(data / "proteins_db.faa")[::40]
    # Entries that are the same sequence under several names are one entry with several names.
    merged = b">twin.1 first\x01twin.2 second\n" + proteins[3].partition(b"\n")[2]
    (folder / "prot.fa").write_bytes(b"".join([*proteins, merged]))
    genes = [re.sub(rb"^>\S+", b">g%d" % n, record) for n, record in enumerate(records(data / "genes_db.fna")[::12])]
    (folder / "nucl.fa").write_bytes(b"".join(genes).replace(b"ACGTT", b"ACNTT"))
    (folder / "q.faa").write_bytes(b"".join([merged, proteins[7], *proteins[100:103]]))
    (folder / "q.fna").write_bytes(b"".join(genes[3:90:30]))
    names = [record[1:].split()[0] for record in proteins]
    (folder / "taxa").write_bytes(b"".join(b"%s %d\n" % (name, n % 3 + 1) for n, name in enumerate(names)))
    for name, options in DATABASES.items():
        if name == "masked":
            line = "segmasker -in ids -infmt blastdb -parse_seqids -outfmt maskinfo_asn1_bin -out seg.asnb"
            subprocess.run(line.split(), cwd=folder, check=True, capture_output=True)
        kind = options.split()[1]
        line = f"makeblastdb -in {kind}.fa -out {name} {options}"
        subprocess.run([*line.split(), "-title", f"all of {name}"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    yield folder
    shutil.rmtree(folder)


def without_date(text: bytes) -> bytes:
    return re.sub(rb"(?m)^ *Posted date: .*$", b"", text)


#: Those that have something of all others, but for masks, which `test_fragments_blast` has.
FAST = ("gene_ids",)


@pytest.mark.parametrize("name", some(DATABASES, *FAST))
def test_split_database_search_writes_the_serial_bytes(name: str, place: Path, tmp_path: Path) -> None:
    made = splitting.split_database(name, (5, 0), tmp_path, place, os.environ)
    assert made.database == tmp_path / name and len(made.volumes) == 5
    for query in ("q.faa", "q.fna"):
        shutil.copy(place / query, tmp_path)
    mask = " -db_soft_mask 21" if name == "masked" else ""
    line = f"blastn -query q.fna -db {name}" if "gene" in name else f"blastp -query q.faa -db {name}{mask}"
    for outfmt in ("0", "5", "7 qaccver saccver sallseqid stitle salltitles staxids score evalue"):
        arguments = [*line.split(), "-outfmt", outfmt]
        whole = without_date(serial(command_of(arguments, place)))
        command = command_of(arguments, tmp_path)
        assert without_date(serial(command)) == whole
        assert without_date(in_fragments(command, 5, 3, tmp_path / f"run{outfmt[0]}")) == whole
    # Each fragment is one volume.
    fragmented = understand(command_of(line.split(), tmp_path), [1] * 5).fragmented
    assert fragmented is not None
    edges = [0]
    for volume in made.volumes:
        edges.append(edges[-1] + volume.entries)
    assert [fragment.last for fragment in fragmented.fragments] == edges[1:]


def test_fragments_of_a_size(place: Path, tmp_path: Path) -> None:
    made = splitting.split_database("plain", (0, 30_000), tmp_path, place, os.environ)
    sizes = [volume.base.with_name(f"{volume.base.name}.psq").stat().st_size for volume in made.volumes]
    assert len(sizes) > 3 and max(sizes) < 40_000
    with pytest.raises(RefusedError, match="there already"):
        splitting.split_database("plain", (2, 0), tmp_path, place, os.environ)


def test_no_more_fragments_than_entries(place: Path, tmp_path: Path) -> None:
    (tmp_path / "three.fa").write_bytes(b"".join(records(place / "prot.fa")[:3]))
    line = "makeblastdb -in three.fa -dbtype prot"
    subprocess.run(line.split(), cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    made = splitting.split_database("three.fa", (100, 0), tmp_path / "parts", tmp_path, os.environ)
    entries = [volume.entries for volume in made.volumes]
    assert sum(entries) == 3 and min(entries) >= 1


def test_failed_split_leaves_nothing(place: Path, tmp_path: Path) -> None:
    """``makeblastdb`` fails at the last fragment."""
    fake = tmp_path / "bin" / "makeblastdb"
    fake.parent.mkdir()
    real = shutil.which("makeblastdb")
    fake.write_text(f'#!/bin/sh\ncase "$*" in *plain.02*) echo no more >&2; exit 3;; esac\nexec {real} "$@"\n')
    fake.chmod(0o755)
    environ = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    with pytest.raises(MillraceError, match="no more"):
        splitting.split_database("plain", (3, 0), tmp_path / "parts", place, environ)
    assert not list((tmp_path / "parts").iterdir())


@pytest.mark.slow
def test_the_command_line(place: Path, tmp_path: Path) -> None:
    millrace = [sys.executable, "-m", "millrace"]
    made = subprocess.run([*millrace, "db", "split", "many", "4", "-o", str(tmp_path)], cwd=place, capture_output=True, check=False)  # fmt: skip
    assert made.returncode == 0, made.stderr.decode()
    assert made.stdout.count(b" entries, ") == 4 and made.stdout.endswith(f"-db {tmp_path / 'many'}\n".encode())
    shutil.copy(place / "q.faa", tmp_path)
    tool = ["blastp", "-query", "q.faa", "-db", "many", "-outfmt", "5"]
    command = [*millrace, "run", "-q", "--run-dir", "run", "--fragments", "4", "--slots", "2", "--", *tool]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == serial(command_of(tool, place))
