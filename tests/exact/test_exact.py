"""The promise itself: for every tool the command line gives the serial tool's bytes, whatever the slots and batches."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tool_batches import need

#: (slots, batch): one by one, as measured, and in sizes that cut badly on more slots than cores.
WAYS = ((1, "1"), (2, "auto"), (7, "4"))

MILLRACE = [sys.executable, "-m", "millrace"]


@dataclass(frozen=True)
class Case:
    """One serial command and the files that it writes."""

    name: str
    command: str
    outputs: tuple[str, ...] = ("out",)
    #: File that is its standard input.
    stdin: str = ""
    #: Whether its standard output counts too.
    stdout: bool = False
    options: tuple[str, ...] = ()
    ways: tuple[tuple[int, str], ...] = field(default=WAYS)


def blast(program: str, outfmt: str, more: str = "") -> Case:
    database = {"blastp": "prot", "psiblast": "prot", "blastx": "prot"}.get(program, "nucl")
    query = "q.faa" if program in ("blastp", "psiblast", "tblastn") else "q.fna"
    name = f"{program}-{outfmt.split()[0]}{'-' + more.split()[0].strip('-') if more else ''}"
    outfmt = shlex.quote(outfmt)
    return Case(name, f"{program} -query {query} -db {database} -outfmt {outfmt} -evalue 1e-3 {more} -out out")


CASES = [
    *(blast("blastp", str(outfmt)) for outfmt in (0, 5, 6, 7, 8, 10, 11, 12, 15, 16, 18)),
    blast("blastp", "6 qseqid sseqid evalue bitscore qseq"),
    blast("blastp", "6", "-max_target_seqs 3"),
    blast("blastp", "7", "-comp_based_stats 0 -seg yes"),
    blast("blastp", "0", "-num_descriptions 3 -num_alignments 2"),
    *(blast("blastn", str(outfmt)) for outfmt in (0, 5, 6, 7, 10)),
    blast("blastn", "6", "-task blastn -strand plus"),
    blast("blastx", "6"),
    blast("blastx", "0"),
    Case("psiblast", "psiblast -query q3.faa -db prot -outfmt 6 -evalue 1e-3 -num_iterations 2 -out out"),
    blast("tblastn", "6"),
    blast("tblastx", "6", "-max_target_seqs 2"),
    Case("blastp-stdin", "blastp -db prot -outfmt 7 -evalue 1e-3", outputs=(), stdin="q.faa", stdout=True),
    Case("blastp-threads", "blastp -query q.faa -db prot -outfmt 6 -evalue 1e-3 -num_threads 2 -out out"),
    Case("hmmscan", "hmmscan -o out --tblout t --domtblout d --pfamtblout f p.hmm q.faa", ("out", "t", "d", "f")),
    Case("hmmscan-stdin", "hmmscan --tblout t p.hmm -", ("t",), stdin="q.faa", stdout=True),
    Case("hmmsearch", "hmmsearch -o out --tblout t --domtblout d -A a p.hmm prot.faa", ("out", "t", "d", "a")),
    Case("phmmer", "phmmer -o out --tblout t --domtblout d q.faa prot.faa", ("out", "t", "d"), ways=((2, "auto"), (7, "3"))),
    Case("nhmmer", "nhmmer -o out --tblout t q3.fna nucl.fna", ("out", "t"), ways=((2, "2"),)),
    Case("jackhmmer", "jackhmmer -N 2 -o out --tblout t q3.faa prot.faa", ("out", "t"), ways=((2, "3"),)),
    Case("diamond-6", "diamond blastp -q q.faa -d dmnd -o out --quiet"),
    Case("diamond-5", "diamond blastp -q q.faa -d dmnd -o out --outfmt 5 --unal 0 --quiet"),
    Case("diamond-blastx", "diamond blastx -q q.fna -d dmnd -f 101 -o out --quiet"),
    Case("obabel-sdf", "obabel ligands.mol2 -O out.sdf", ("out.sdf",)),
    Case("obabel-smi", "obabel -imol2 ligands.mol2 -osmi", (), stdout=True),
    Case("obabel-from-smi", "obabel drugs.smi -O out.mol2", ("out.mol2",)),
    Case("filter", "sed s/A/B/", (), stdin="q.faa", stdout=True, options=("--format", "fasta")),
    Case(
        "tool-with-files", "cp q.faa out", options=("--input", "q.faa", "--output", "out"),
    ),
]  # fmt: skip


def run(command: list[str], folder: Path, case: Case) -> None:
    """Run ``command`` in ``folder``; standard output goes to the file ``stdout``."""
    with (folder / (case.stdin or "/dev/null")).open("rb") as stdin, (folder / "stdout").open("wb") as stdout:
        done = subprocess.run(command, cwd=folder, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 0, done.stderr.decode(errors="replace")


def collect(folder: Path, case: Case) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (*case.outputs, *(("stdout",) if case.stdout else ()))}


def serially(case: Case, bench_of: Path, folder: Path) -> tuple[list[str], dict[str, bytes], dict[str, list[str]]]:
    """Run a case without Millrace in the new ``folder``: its words, its outputs, and what of them is volatile."""
    words = shlex.split(case.command)
    need(words[0])
    shutil.copytree(bench_of, folder)
    run(words, folder, case)
    return words, collect(folder, case), volatile_of(words, folder, case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_output_is_the_serial_tools(case: Case, bench_of: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    words, serial, volatile = serially(case, bench_of, folder)
    for slots, batch in case.ways:
        for name in serial:
            (folder / name).unlink()
        run(
            [*MILLRACE, "run", "-q", "--slots", str(slots), "--batch", batch, *case.options, "--", *words], folder, case
        )
        ours = collect(folder, case)
        for name, expected in serial.items():
            if ours[name] != expected:
                assert masked(ours[name], volatile.get(name, [])) == masked(expected, volatile.get(name, [])), (
                    f"{name} differs with {slots} slots, batch {batch}"
                )
        left = [path.name for path in folder.iterdir() if path.name.endswith(".millrace")]
        assert not left


def volatile_of(words: list[str], folder: Path, case: Case) -> dict[str, list[str]]:
    """The named volatile parts of each output, as the adapter lists them."""
    with (folder / (case.stdin or "/dev/null")).open("rb") as stdin:
        plan = subprocess.run(
            [*MILLRACE, "plan", "--json", *case.options, "--", *words],
            cwd=folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            check=True,
        )
    outputs = json.loads(plan.stdout)["outputs"]
    return {("stdout" if output["path"] == "-" else output["path"]): output["volatile"] for output in outputs}


def masked(text: bytes, patterns: list[str]) -> bytes:
    for pattern in patterns:
        text = re.sub(pattern.encode(), b"", text, flags=re.MULTILINE)
    return text


def test_muscle3_writes_one_alignment_per_family(bench_of: Path, tmp_path: Path) -> None:
    need("muscle3")
    shutil.copytree(bench_of / "fams", tmp_path / "fams")
    for kind in ("serial", "ours"):
        (tmp_path / kind).mkdir()
    for family in sorted((tmp_path / "fams").iterdir()):
        subprocess.run(
            ["muscle3", "-quiet", "-in", f"fams/{family.name}", "-out", f"serial/{family.name}"],
            cwd=tmp_path,
            check=True,
        )
    for slots in (1, 2, 7):
        shutil.rmtree(tmp_path / "ours")
        (tmp_path / "ours").mkdir()
        command = [
            *MILLRACE,
            "run",
            "-q",
            "--slots",
            str(slots),
            "--",
            "muscle3",
            "-quiet",
            "-in",
            "fams/",
            "-out",
            "ours/",
        ]
        subprocess.run(command, cwd=tmp_path, check=True)
        assert {path.name: path.read_bytes() for path in (tmp_path / "ours").iterdir()} == {
            path.name: path.read_bytes() for path in (tmp_path / "serial").iterdir()
        }


def test_mafft_writes_one_alignment_per_family(bench_of: Path, tmp_path: Path) -> None:
    need("mafft")
    shutil.copytree(bench_of / "fams", tmp_path / "fams")
    families = sorted(path.name for path in (tmp_path / "fams").iterdir())
    for kind in ("serial", "ours"):
        (tmp_path / kind).mkdir()
    for family in families:
        with (tmp_path / "serial" / family).open("wb") as out:
            subprocess.run(["mafft", "--quiet", f"fams/{family}"], cwd=tmp_path, stdout=out, check=True)
    for slots in (1, 2, 7):
        command = ["mafft", "--quiet", "--out", "ours/", "fams/"]
        subprocess.run([*MILLRACE, "run", "-q", "--slots", str(slots), "--", *command], cwd=tmp_path, check=True)
        for family in families:
            assert (tmp_path / "ours" / family).read_bytes() == (tmp_path / "serial" / family).read_bytes()
            (tmp_path / "ours" / family).unlink()
