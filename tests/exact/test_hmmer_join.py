"""HMMER's outputs of batches, joined, are the serial outputs: the real programs on real data, cut badly."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from parameter_choice import again, some

from millrace import _core
from millrace.adapters.hmmer.adapter import HmmerAdapter
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputArg, OutputArg, ToolUse, UserCommand

pytestmark = pytest.mark.skipif(shutil.which("hmmscan") is None, reason="hmmer is not installed")

ENVIRON = {name: value for name, value in os.environ.items() if name != "HMMER_NCPU"}

TABLES = ("-o", "out.txt", "--tblout", "hits.tbl", "--domtblout=domains.tbl", "--pfamt", "pfam.tbl")
#: Longer than any column is wide.
LONG_NAME = b"a_name_that_is_" + b"very_" * 20 + b"long"


@dataclass
class Bench:
    """A folder with all inputs, where the serial command runs."""

    folder: Path

    def command(self, argv: tuple[str, ...]) -> UserCommand:
        exe = shutil.which(argv[0])
        assert exe is not None
        return UserCommand(argv=argv, cwd=self.folder, environ=ENVIRON, exe=Path(exe), stdin_is_data=True)

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


def fasta_records(text: bytes) -> list[bytes]:
    return re.findall(rb"^>.*\n(?:(?!>).*\n)*", text, re.MULTILINE)


def hmm_records(text: bytes) -> list[bytes]:
    return re.findall(rb"^HMMER(?:.*\n)+?//\n", text, re.MULTILINE)


def with_name(record: bytes, name: bytes) -> bytes:
    return re.sub(rb"^(>|NAME  )\S+", rb"\g<1>" + name, record, count=1, flags=re.MULTILINE)


def entangled(chosen: random.Random, family: list[bytes]) -> bytes:
    """A protein of overlapping pieces of relatives, whose domains HMMER tells apart by random sampling."""
    pieces = []
    for record in chosen.choices(family, k=5):
        residues = b"".join(record.splitlines()[1:])
        start = chosen.randrange(len(residues) // 2)
        pieces.append(residues[start : start + len(residues) * 2 // 3])
    return with_name(family[0].splitlines()[0] + b"\n" + b"".join(pieces) + b"\n", b"entangled")


@pytest.fixture(scope="module")
def bench(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Small inputs: no hits first, names of all lengths, many hits, few hits, several domains."""
    folder = tmp_path_factory.mktemp("user")
    chosen = random.Random(3)
    proteins = fasta_records((data / "proteins_db.faa").read_bytes())
    (folder / "db.faa").write_bytes(b"".join(proteins[::24]))
    profiles = hmm_records((data / "profiles.hmm").read_bytes())[:17]
    profiles[2] = with_name(profiles[2], LONG_NAME)
    for at in (3, 8):
        profiles[at] = profiles[at].replace(b"\nALPH", f"\nACC   PF{at:05}.2\nALPH".encode(), 1)
    with_cutoffs = [re.sub(rb"(?m)^STATS", b"GA    25.00 20.00;\nSTATS", each, count=1) for each in profiles]
    (folder / "families.hmm").write_bytes(b"".join(with_cutoffs))
    subprocess.run(["hmmpress", "families.hmm"], cwd=folder, check=True, capture_output=True)
    shutil.copy(folder / "families.hmm", folder / "unpressed.hmm")
    queries = fasta_records((data / "proteins_queries.faa").read_bytes())[:11]
    names = re.findall(rb"(?m)^NAME  (fam\d+)$", b"".join(profiles))
    families = [(data / "families" / f"{name.decode()}.faa").read_bytes() + b"\n" for name in names]
    queries += [chosen.choice(fasta_records(family)) for family in families[:10]]
    queries += [entangled(chosen, fasta_records(family)) for family in families[:4]]
    queries[4] = with_name(queries[4], LONG_NAME)
    queries[12] = with_name(queries[12], b"#" + LONG_NAME)
    (folder / "queries.faa").write_bytes(b"".join(queries))
    (folder / "one.faa").write_bytes(queries[14])
    (folder / "nohits.faa").write_bytes(b"".join(queries[:3]))
    (folder / "gaps.faa").write_bytes(b"".join([b">none\n", *queries[9:13], b">nothing here\n", queries[14], b">e\n"]))
    dna(folder, data, chosen)
    return Bench(folder)


def dna(folder: Path, data: Path, chosen: random.Random) -> None:
    """Genes, their profiles, and contigs in which mutated genes were hidden on both strands."""
    genes = fasta_records((data / "genes_db.fna").read_bytes())[5:2701:450]
    genes[2] = with_name(genes[2], LONG_NAME)
    (folder / "genes.fna").write_bytes(b"".join(genes))
    profiles = b""
    for at, gene in enumerate(genes):
        (folder / "gene.fna").write_bytes(gene)
        build = ["hmmbuild", "--dna", "--singlemx", "-n", f"gene{at}", "gene.hmm", "gene.fna"]
        subprocess.run(build, cwd=folder, check=True, capture_output=True)
        profiles += (folder / "gene.hmm").read_bytes()
    (folder / "genes.hmm").write_bytes(profiles)
    shutil.copy(folder / "genes.hmm", folder / "genes_query.hmm")
    subprocess.run(["hmmpress", "genes.hmm"], cwd=folder, check=True, capture_output=True)
    contigs = []
    for contig in fasta_records((data / "contigs.fna").read_bytes())[-4:-1]:
        header, *lines = contig.splitlines()
        residues = b"".join(lines)[:20_000].decode()
        for gene in genes[:4]:
            copy = "".join(
                chosen.choice("ACGT") if chosen.random() < 0.15 else c for c in b"".join(gene.splitlines()[1:]).decode()
            )
            if chosen.random() < 0.5:
                copy = copy[::-1].translate(str.maketrans("ACGT", "TGCA"))
            place = chosen.randrange(len(residues))
            residues = residues[:place] + copy + residues[place:]
        contigs.append(header + b"\n" + re.sub(rb"(.{60})", rb"\1\n", residues.encode()).rstrip(b"\n") + b"\n")
    (folder / "contigs.fna").write_bytes(b"".join(contigs))


def serial(bench: Bench, argv: tuple[str, ...], use: ToolUse) -> dict[str, bytes]:
    """Bytes of each output of the command as the user typed it."""
    stdin = (bench.folder / STDIN_FILE).read_bytes() if use.inputs[0].stdin else None
    done = subprocess.run(argv, cwd=bench.folder, env=ENVIRON, input=stdin, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert any(output.stdout for output in use.outputs) or not done.stdout
    result = {}
    for output in use.outputs:
        result[output.name] = done.stdout if output.stdout else (bench.folder / output.path).read_bytes()
        if not output.stdout:
            (bench.folder / output.path).unlink()
    return result


STDIN_FILE = "queries.faa"


def run_batch(bench: Bench, use: ToolUse, batch: bytes, folder: Path) -> dict[str, bytes]:
    """Bytes of each output of one batch, run as the engine does: in a folder that mirrors the user's."""
    folder.mkdir()
    for path in bench.folder.iterdir():
        (folder / path.name).symlink_to(path)
    source = use.inputs[0]
    if not source.stdin:
        (folder / source.path).unlink()
        for pressed in folder.glob(f"{source.path}.h3?"):
            pressed.unlink()
        (folder / source.path).write_bytes(batch)
    argv = []
    for token in use.argv:
        if isinstance(token, InputArg):
            token = token.prefix + use.inputs[token.index].path
        elif isinstance(token, OutputArg):
            token = token.prefix + use.outputs[token.index].path
        argv.append(token)
    stdin = batch if source.stdin else None
    done = subprocess.run(argv, cwd=folder, env=ENVIRON | use.env, input=stdin, capture_output=True)
    assert done.returncode == 0, done.stderr
    blocks = {}
    for output in use.outputs:
        block = done.stdout if output.stdout else (folder / output.path).read_bytes()
        blocks[output.name] = block.replace(os.fsencode(folder), os.fsencode(bench.folder))
    shutil.rmtree(folder)
    return blocks


def mask(text: bytes, patterns: tuple[str, ...]) -> bytes:
    for pattern in patterns:
        text = re.sub(pattern.encode(), b"~", text, flags=re.MULTILINE)
    return text


def check(bench: Bench, argv: tuple[str, ...], tmp_path: Path, sizes: tuple[int, ...] = (1, 2, 7)) -> dict[str, bytes]:
    """Runs serially and in batches of all ``sizes``, and compares every byte that is not volatile."""
    use = HmmerAdapter().understand_command(bench.command(argv))
    before = bench.files()
    expected = serial(bench, argv, use)
    assert bench.files() == before, "an output that the adapter does not know"
    source = use.inputs[0]
    text = (bench.folder / (STDIN_FILE if source.stdin else source.path)).read_bytes()
    records = (fasta_records if source.format == "fasta" else hmm_records)(text)
    assert b"".join(records) == text
    for size in sizes:
        blocks: dict[str, list[tuple[int, bytes]]] = {output.name: [] for output in use.outputs}
        for first in range(0, len(records), size):
            batch = records[first : first + size]
            for name, block in run_batch(bench, use, b"".join(batch), tmp_path / "task").items():
                blocks[name].append((len(batch), block))
        for output in use.outputs:
            joined = _core.join(output.join, blocks[output.name])
            same = mask(joined, output.volatile) == mask(expected[output.name], output.volatile)
            assert same, f"{output.name} in batches of {size}"
    return expected


def sizes(options: str) -> tuple[int, ...]:
    """Batches of one record too where nothing else is out of the ordinary."""
    return (7,) if options else (1, 7)


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--noali",
        "--acc",
        "--notextw",
        "--textw 200",
        "-E 1e-5",
        "-E1e-5 --domE 1e-3",
        "-T 30 --domT 10",
        "--cut_ga",
        "-Z 10000 --domZ 20",
        "--seed 7 --nonull2 --nobias",
        "--cpu 0",
        "--cpu 1",
        "--cpu 3",
        "--qformat fasta",
    ],
)
def test_hmmscan_all_outputs(bench: Bench, tmp_path: Path, options: str) -> None:
    argv = ("hmmscan", *TABLES, *options.split(), "families.hmm", "queries.faa")
    expected = check(bench, argv, tmp_path, sizes=sizes(options))
    assert expected["tblout"].count(b"\n") > 20
    assert b"[No hits detected" in expected["out"]


def test_random_sampling_starts_anew_for_every_query(bench: Bench, tmp_path: Path) -> None:
    expected = check(bench, ("hmmscan", *TABLES, "families.hmm", "queries.faa"), tmp_path, sizes=(1, 5, 11))
    rows = [line.split() for line in expected["tblout"].splitlines() if line[:1] not in b"#"]
    n_clusters = 12
    assert sum(int(row[n_clusters]) for row in rows) > 0, "no query needed random sampling"


def test_missing_cutoffs_are_refused(bench: Bench, tmp_path: Path) -> None:
    """Also where one profile alone has none, in a text file and in a pressed one; and where nhmmer makes the profiles."""
    profiles = hmm_records((bench.folder / "families.hmm").read_bytes())
    profiles[1] = re.sub(rb"\nGA .*", b"\nTC    25.00 20.00;", profiles[1])
    (tmp_path / "p.hmm").write_bytes(b"".join(profiles))
    subprocess.run(["hmmpress", "p.hmm"], cwd=tmp_path, check=True, capture_output=True)
    shutil.copy(bench.folder / "genes.fna", tmp_path)
    shutil.copy(bench.folder / "db.faa", tmp_path)
    name = re.search(rb"\nNAME  (\S+)", profiles[1])
    assert name
    for option, problem in (
        ("--cut_ga", f"model {name[1].decode()} of p.hmm has no GA thresholds\n"),
        ("--cut_tc", f"has no TC thresholds, nor have {len(profiles) - 2} others\n"),
    ):
        for program in ("hmmscan", "hmmsearch"):
            with pytest.raises(RefusedError, match=f"{program} {option}: .*{problem}"):
                HmmerAdapter().understand_command(Bench(tmp_path).command((program, option, "p.hmm", "db.faa")))
    with pytest.raises(RefusedError, match="profiles that nhmmer makes of sequences have no GA"):
        HmmerAdapter().understand_command(Bench(tmp_path).command(("nhmmer", "--cut_ga", "genes.fna", "genes.fna")))


@pytest.mark.parametrize("queries", ["one.faa", "nohits.faa", "gaps.faa"])
@pytest.mark.parametrize("program", ["hmmscan", "phmmer", "jackhmmer"])
def test_odd_queries(bench: Bench, tmp_path: Path, program: str, queries: str) -> None:
    files = ("families.hmm", queries) if program == "hmmscan" else (queries, "db.faa")
    tables = TABLES[:5] if program == "jackhmmer" else TABLES
    check(bench, (program, *tables, *files), tmp_path, sizes=(1, 3))


@pytest.mark.parametrize("program", some(["hmmscan", "phmmer", "jackhmmer"], "hmmscan", "phmmer"))
def test_queries_on_standard_input(bench: Bench, tmp_path: Path, program: str) -> None:
    files = ("families.hmm", "-") if program == "hmmscan" else ("-", "db.faa")
    expected = check(bench, (program, "--tblout", "hits.tbl", *files), tmp_path, sizes=(7,))
    assert b"# query sequence file:             -\n" in expected["stdout"]


@pytest.mark.parametrize("options", ["", "--noali --acc", "--notextw", "--cut_ga", "-Z 500 --domZ 3", "--cpu 2"])
@pytest.mark.parametrize("profiles", ["families.hmm", "unpressed.hmm"])
def test_hmmsearch_all_outputs(bench: Bench, tmp_path: Path, options: str, profiles: str) -> None:
    argv = ("hmmsearch", *TABLES, "-A", "all.sto", *options.split(), profiles, "db.faa")
    expected = check(bench, argv, tmp_path, sizes=sizes(options))
    assert expected["alignment"].count(b"# STOCKHOLM") > 5


@pytest.mark.slow
@pytest.mark.parametrize(("program", "queries"), [("hmmsearch", "unpressed.hmm"), again("phmmer", "gaps.faa")])
def test_without_filters(bench: Bench, tmp_path: Path, program: str, queries: str) -> None:
    check(bench, (program, *TABLES, "--max", "-E", "1e-3", queries, "db.faa"), tmp_path, sizes=(3,))


def test_hmmsearch_without_output_options(bench: Bench, tmp_path: Path) -> None:
    check(bench, ("hmmsearch", "--", "unpressed.hmm", "db.faa"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", some(["", "--noali -E 1e-3", "--mx BLOSUM45 --popen 0.03", "--cpu 1 --EmN 100"], "")
)
def test_phmmer_all_outputs(bench: Bench, tmp_path: Path, options: str) -> None:
    argv = ("phmmer", *TABLES, "-Aall.sto", *options.split(), "queries.faa", "db.faa")
    check(bench, argv, tmp_path, sizes=sizes(options))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", some(["", "-N 2 --noali", "--eclust --wgsc --incE 1e-5", "--cpu 1 --enone --plaplace"], "-N 2 --noali")
)
def test_jackhmmer_all_outputs(bench: Bench, tmp_path: Path, options: str) -> None:
    tables = TABLES[:5]
    argv = ("jackhmmer", *tables, "-A", "all.sto", *options.split(), "queries.faa", "db.faa")
    expected = check(bench, argv, tmp_path, sizes=(7,))
    assert b"@@ Round:                  2" in expected["out"]


NUCLEOTIDE = ("-o", "out.txt", "--tblout", "hits.tbl", "--dfamtblout", "dfam.tbl")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", some(["", "--noali --watson", "-Z 5 --acc", "--cpu 0", "--cpu 2 --notextw"], "", "--cpu 0")
)
def test_nhmmer_profiles(bench: Bench, tmp_path: Path, options: str) -> None:
    argv = ("nhmmer", *NUCLEOTIDE, "--aliscoresout", "scores.txt", "-A", "all.sto", *options.split())
    expected = check(bench, (*argv, "genes_query.hmm", "contigs.fna"), tmp_path, sizes=(4,) if options else (1, 4))
    assert expected["aliscoresout"].count(b"\n") > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    some(["", "--dna", "--qformat fasta", "--qsingle_seqs --rna", "--cpu 1", "--popen 0.02"], "--qsingle_seqs --rna"),
)
def test_nhmmer_sequences(bench: Bench, tmp_path: Path, options: str) -> None:
    argv = ("nhmmer", *NUCLEOTIDE, "--hmmout", "built.hmm", "-A", "all.sto", *options.split())
    check(bench, (*argv, "genes.fna", "contigs.fna"), tmp_path, sizes=(4,) if options else (1, 4))


@pytest.mark.parametrize(
    ("name", "last", "options", "refused"),
    [
        ("q.fna", "", "", True),
        ("q.fna", "A", "", False),
        ("q.fna", "", "--qformat fasta", False),
        ("q.a2m", "", "", True),
    ],
)
def test_nhmmer_queries_that_may_be_an_alignment_are_refused(
    name: str, last: str, options: str, refused: bool, tmp_path: Path
) -> None:
    """Of records of one length it says that they could be one; a file called ``.a2m`` is one query to it."""
    rows = "".join(f">q{n}\n{part * 30}\n" for n, part in enumerate(("ACGT", "ACCA", "GGTC")))
    (tmp_path / name).write_text(f"{rows}{last}\n")
    (tmp_path / "db.fna").write_text(rows)
    command = ["nhmmer", "--dna", *options.split(), name, "db.fna"]
    alone = subprocess.run(command, cwd=tmp_path, capture_output=True)
    run = [sys.executable, "-m", "millrace", "run", "-q", "--progress", "none", "--batch", "1", "--", *command]
    ours = subprocess.run(run, cwd=tmp_path, capture_output=True)
    if refused:
        assert ours.returncode == 2 and b"--qformat fasta" in ours.stderr
        assert b"either aligned or unaligned" in alone.stderr + alone.stdout or alone.stdout.count(b"\nQuery:") < 3
    else:
        assert ours.returncode == 0, ours.stderr.decode()
        assert _untimed(ours.stdout) == _untimed(alone.stdout)


def _untimed(report: bytes) -> list[bytes]:
    return [line for line in report.splitlines() if not line.startswith((b"# CPU time", b"# Mc/sec"))]


@pytest.mark.parametrize(
    "options", some(["", "--noali --crick", "-E 1e-5 --notextw"], "--noali --crick", "-E 1e-5 --notextw")
)
def test_nhmmscan_all_outputs(bench: Bench, tmp_path: Path, options: str) -> None:
    check(bench, ("nhmmscan", *NUCLEOTIDE, *options.split(), "genes.hmm", "contigs.fna"), tmp_path, sizes=(1, 3))
