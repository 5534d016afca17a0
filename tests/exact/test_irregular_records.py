"""What a tool writes for irregular files is what it writes for their records one by one, or the file is refused with its line."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import irregular_files
import pytest
from tool_batches import need

from millrace import _core
from millrace.adapters.blast.query_sizes import find_searched_letters

DNA, PROTEIN = "ACGT", "ACDEFGHIKLMNPQRSTVWY"

#: Format, letters, whether it is compressed, command (``IN`` is the file), what is made first; what is joined by writing one after the other.
CASES = {
    "blastn": ("fasta", DNA, False, "blastn -query IN -subject db.fa -outfmt 6"),
    "blastp": ("fasta", PROTEIN, False, "blastp -query IN -subject db.fa -outfmt 6"),
    "minimap2": ("fasta", DNA, False, "minimap2 -t 1 db.fa IN"),
    "minimap2-gzip": ("fasta", DNA, True, "minimap2 -t 1 db.fa IN"),
    "minimap2-fastq": ("fastq", DNA, False, "minimap2 -t 1 db.fa IN"),
    "seqtk-fastq": ("fastq", DNA, True, "seqtk seq IN"),
    "seqtk": ("fasta", DNA, False, "seqtk seq IN"),
    "obabel-sdf": ("sdf", "", False, "obabel -isdf IN -osmi"),
    "obabel-sdf-mol2": ("sdf", "", False, "obabel -isdf IN -omol2"),
    "obabel-mol2": ("mol2", "", False, "obabel -imol2 IN -osmi"),
    "obabel-smiles": ("smiles", "", False, "obabel -ismi IN -osmi"),
    "hmmstat": ("hmm", "", False, "hmmconvert IN"),
    "cat": ("lines", "", False, "cat IN"),
    "sed": ("lines", "", False, "sed s/a/b/ IN"),
    "awk": ("lines", "", False, "awk {print($1,NF)} IN"),
}  # fmt: skip


def prepare(folder: Path, case: str) -> str:
    """Make what the command needs; what the generator is given."""
    form, letters, _, command = CASES[case]
    tool = shlex.split(command)[0]
    need(tool)
    choose = irregular_files.random.Random(0)
    if letters:
        (folder / "db.fa").write_text(
            "".join(f">d{each}\n{irregular_files.sequence(choose, letters)}\n" for each in range(3))
        )
    if form == "hmm":
        need("hmmbuild")
        (folder / "m.sto").write_text(f"# STOCKHOLM 1.0\nm {irregular_files.sequence(choose, PROTEIN)[:20]}\n//\n")
        subprocess.run(["hmmbuild", "-n", "m", "m.hmm", "m.sto"], cwd=folder, check=True, capture_output=True)
        return (folder / "m.hmm").read_text()
    return letters


def written(folder: Path, command: str, name: str) -> tuple[int, bytes]:
    words = [name if word == "IN" else word for word in shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=300, check=False)
    return done.returncode, done.stdout


def check(folder: Path, case: str, seed: int, given: str) -> str:
    """Compare; ``equal``, ``refused`` by us, or ``failed`` serially."""
    form, _, packed, command = CASES[case]
    data = irregular_files.make(form, seed, given, packed=packed)
    (folder / "in").write_bytes(data)
    status, expected = written(folder, command, "in")
    if status:
        return "failed"
    content = None
    if command.startswith("blast"):
        content = (find_searched_letters(command.split()[0], {}) or "", 1)
    reader = _core.Reader([str(folder / "in")], form, content=content)
    found = b""
    try:
        while reader.cut(str(folder / "part"), 1, 0, 0):
            status, more = written(folder, command, "part")
            found += more
    except _core.RecordError as error:
        assert "in:" in str(error), error
        return "refused"
    assert found == expected, (case, seed, data)
    return "equal"


def sweep(folder: Path, case: str, seeds: range) -> dict[str, int]:
    given = prepare(folder, case)
    told = [check(folder, case, seed, given) for seed in seeds]
    return {word: told.count(word) for word in ("equal", "refused", "failed")}


@pytest.mark.parametrize(
    "case", ["blastn", "minimap2-gzip", "seqtk-fastq", "obabel-sdf", "obabel-mol2", "obabel-smiles", "hmmstat", "awk"]
)
def test_irregular_files_a_record_at_a_time(tmp_path: Path, case: str) -> None:
    assert sweep(tmp_path, case, range(5))["equal"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_thousand_irregular_files_a_record_at_a_time(tmp_path: Path, case: str) -> None:
    counts = sweep(tmp_path, case, range(2000))
    print(case, counts)
    assert counts["equal"] > 1000
