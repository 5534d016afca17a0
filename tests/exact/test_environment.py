"""Variables of the environment: each that a known tool reads is in its table, and none changes what a run writes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path

import harness
import pytest
from exact_cases import MILLRACE
from tool_batches import need

from millrace.adapters.tool_environment import ANY_PROGRAM, BLAST, TABLES, VariableTable, check_variables
from millrace.core.errors import ExitCode, RefusedError

SHIM = Path(__file__).with_name("getenv_log.c")

#: A command of each family that reads all that it can read of the environment, in a folder as `place` makes it.
COMMANDS = {
    "blast": ("blastp -query q.faa -db p -outfmt 5", "blastn -query n.fna -db n -outfmt 0", "tblastn -query q.faa -db n -outfmt 6", "blastp -query q.faa -db p -outfmt 15 -num_threads 2 -mt_mode 1"),
    "hmmer": ("hmmsearch p.hmm q.faa", "phmmer q.faa q.faa"),
    "infernal": ("/usr/lib/infernal/cmscan -h",),
    "diamond": ("diamond blastp -q q.faa -d d --threads 2",),
    # The program itself, not Debian's script: bash reads variables of its own.
    "mmseqs": ("mmseqs-sse4.1 easy-search few.faa db.faa m8 tmp -k 5 --alph-size aa:13,nucl:5 -v 1",),
    "minimap2": ("minimap2 n.fna n.fna",),
    "muscle": ("muscle3 -version",),
    "mafft": ("mafft --auto few.faa",),
    "obabel": ("obabel -:CCO -osdf",),
    "vina": ("vina --version",),
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    need("blastp")
    folder = tmp_path_factory.mktemp("environment")
    harness.take(data / "proteins_db.faa", folder / "db.faa", 200)
    harness.take(data / "proteins_queries.faa", folder / "q.faa", 24)
    harness.take(data / "proteins_queries.faa", folder / "few.faa", 3)
    harness.take(data / "genes_db.fna", folder / "n.fna", 60)
    for line in (
        "makeblastdb -in db.faa -dbtype prot -out p",
        "makeblastdb -in n.fna -dbtype nucl -out n",
        "diamond makedb --in db.faa -d d --quiet",
    ):
        if shutil.which(line.split()[0]):
            subprocess.run(line.split(), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with (data / "profiles.hmm").open() as profiles, (folder / "p.hmm").open("w") as one:
        for line in profiles:
            one.write(line)
            if line.startswith("//"):
                break
    return folder


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("shim") / "getenv_log.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SHIM], check=True)
    return library


def asked_for(command: str, folder: Path, shim: Path, log: Path) -> set[str]:
    """The variables that a command asks for."""
    environ = {**os.environ, "LD_PRELOAD": str(shim), "GETENV_LOG": str(log)}
    environ.pop("BATCH_SIZE", None)
    log.touch()
    done = subprocess.run(shlex.split(command), cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)  # fmt: skip
    assert not done.returncode, done.stderr.decode()[-500:]
    return set(log.read_text().split())


@pytest.mark.parametrize("family", COMMANDS)
def test_variables_read_by_a_tool_are_in_its_table(family: str, place: Path, shim: Path, tmp_path: Path) -> None:
    known = VariableTable(passed=(*TABLES[family].passed, *ANY_PROGRAM))
    for number, command in enumerate(COMMANDS[family]):
        if not shutil.which(command.split()[0]):
            pytest.skip(f"{command.split()[0]} is not installed")
        asked = asked_for(command, place, shim, tmp_path / f"log{number}") - {"LD_PRELOAD", "GETENV_LOG"}
        unknown = sorted(
            name for name in asked if not TABLES[family].classify_variable(name) and not known.classify_variable(name)
        )
        assert not unknown, f"{command} reads them"


@pytest.mark.parametrize("family", ["blast", "hmmer", "muscle", "obabel"])
def test_variables_of_a_table_are_in_the_programs(family: str) -> None:
    """A name in a table that no program has is a slip of the pen, or of a version that nobody has any more."""
    programs = {"blast": ["blastp", "blastn"], "hmmer": ["hmmscan", "hmmsearch"], "muscle": ["muscle3"], "obabel": ["obabel"]}[family]  # fmt: skip
    text = b"".join(map(_bytes_of, programs))
    table = TABLES[family]
    # Those that newer libraries read; entries of settings, whose names are put together when they are asked for.
    later = (
        "DO_NOT_TRACK",
        "BLASTAPI_PROFILE_LOG",
        "BLAST_ELB_*",
        "BLAST_MT_QUERY_BATCH_SIZE",
        "PIXMAN_DISABLE",
        "NCBI_USAGE_REPORT_*",
        "HMMERDB",
        "BLASTMAT",
    )
    names = [*table.counted, *table.refused, *table.passed]
    missing = [
        name
        for name in names
        if not name.startswith("NCBI_CONFIG_") and name not in later and name.rstrip("*").encode() not in text
    ]
    assert not missing


def _bytes_of(program: str) -> bytes:
    """The program and the libraries that it loads."""
    path = shutil.which(program) or pytest.skip(f"{program} is not installed")
    loaded = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    files = [word for line in loaded.splitlines() for word in line.split() if word.startswith("/")]
    return b"".join(Path(each).read_bytes() for each in (path, *files))


@pytest.mark.parametrize("name", [each for each in BLAST.refused if "*" not in each and "[" not in each])
def test_refused_variables_are_named_before_a_start(name: str, place: Path, tmp_path: Path) -> None:
    done = _millrace("blastp -query q.faa -db p -outfmt 6", place, tmp_path, {name: "x"})
    assert done.returncode == ExitCode.REFUSED
    assert f"the environment variable {name} " in done.stderr.decode() and f"unset {name}" in done.stderr.decode()


def test_patterns_of_refused_variables_match_both_cases() -> None:
    for name in ("NCBI_CONFIG__LOG__FILE", "NCBI_CONFIG__Log__File", "NCBI_CONFIG_Inherits__NCBI"):
        with pytest.raises(RefusedError, match=name):
            check_variables("blast", {name: "x"})
    check_variables("blast", {"CHUNK_SIZE": "500", "PATH": "/bin"})
    check_variables("generic", {"NCBI_CONFIG_PATH": "x"})


#: Values of variables of BLAST: those that change its passes and chunks, and those that may change what it finds.
VALUES = {
    "CHUNK_SIZE": ("400", "1500", "abc", "0", "50"),
    "OVERLAP_CHUNK_SIZE": ("1", "4000", "20000"),
    "BATCH_SIZE": ("1", "700", "3000", "100000", "x", ""),
    "ADAPTIVE_CBS": ("1",),
    "OLD_FSC": ("1",),
    "PRE_FETCH_SEQS_LIMIT": ("1",),
    "BLASTINPUT_GEN_DELTA_SEQ": ("1",),
    "BLAST_USAGE_REPORT": ("false",),
    "CTOOLKIT_COMPATIBLE": ("1",),
    "NCBI_CONFIG__BLAST__LONG_SEQID": ("1",),
    "NCBI_CONFIG__SERIAL__FASTWRITEDOUBLE": ("0",),
    "OBJECTS_PACK_GENERAL": ("0",),
    "LC_ALL": ("C", "C.UTF-8"),
}
SEARCHES = {
    "blastp": "blastp -query q.faa -db p -evalue 20",
    "psiblast": "psiblast -query q.faa -db p -evalue 20",
    "blastx": "blastx -query n.fna -db p -evalue 20",
    "tblastn": "tblastn -query q.faa -db n -evalue 20",
    "tblastx": "tblastx -query n.fna -db n -evalue 1e-3",
    "blastn": "blastn -query n.fna -db n",
}


def _cases() -> Iterator[object]:
    """Each variable, value, program and format; a sample of them in each test run."""
    for name, program in product(VALUES, SEARCHES):
        for value, form in product(VALUES[name], ("6", "0", "5", "15", "11")):
            sample = (
                program == "blastp"
                and form in ("6", "0")
                and name in ("CHUNK_SIZE", "OVERLAP_CHUNK_SIZE", "BATCH_SIZE")
            )
            chosen = VALUES[name][:1] if form == "6" else VALUES[name][1:3]
            marks = [] if sample and value in chosen else [pytest.mark.slow]
            yield pytest.param(name, value, program, form, marks=marks, id=f"{program}-{form}-{name}={value}")


@pytest.mark.parametrize(("name", "value", "program", "form"), [*_cases()])
def test_blast_variables_write_serial_bytes_or_are_refused(
    name: str, value: str, program: str, form: str, place: Path, tmp_path: Path
) -> None:
    command = f"{SEARCHES[program]} -outfmt {form}"
    ours = _millrace(command, place, tmp_path, {name: value}, "--batch", "3")
    if ours.returncode != ExitCode.REFUSED:
        serial = _serial(command, place, name, value)
        if serial.returncode:  # tblastx wants chunks of whole codons
            assert ours.returncode == ExitCode.TOOL and serial.stderr.splitlines()[-1] in ours.stderr
        else:
            assert ours.returncode == ExitCode.DONE, ours.stderr.decode()[-500:]
            assert ours.stdout == serial.stdout
    else:
        assert not ours.stdout


@pytest.mark.parametrize("program", ["blastp", pytest.param("tblastn", marks=pytest.mark.slow)])
def test_chunked_queries_are_not_searched_in_fragments(program: str, place: Path, tmp_path: Path) -> None:
    command = f"{SEARCHES[program]} -outfmt 6"
    ours = _millrace(command, place, tmp_path, {"CHUNK_SIZE": "400"}, "--slots", "3")
    assert ours.stdout == _serial(command, place, "CHUNK_SIZE", "400").stdout
    refused = _millrace(command, place, tmp_path / "again", {"CHUNK_SIZE": "400"}, "--fragments", "3")
    assert refused.returncode == ExitCode.REFUSED and "into chunks" in refused.stderr.decode()


def test_databases_named_by_a_registry_variable_are_opened(place: Path, tmp_path: Path) -> None:
    """``NCBI_CONFIG__BLAST__BLASTDB`` comes before the entry of ``.ncbirc``."""
    for file in (*place.glob("p.p*"), place / "q.faa"):
        folder = tmp_path / ("databases" if file.name != "q.faa" else "")
        folder.mkdir(exist_ok=True)
        shutil.copy(file, folder)
    (tmp_path / ".ncbirc").write_text("[BLAST]\nBLASTDB=/nowhere\n")
    environ = {"NCBI_CONFIG__BLAST__BLASTDB": str(tmp_path / "databases")}
    command = "blastp -query q.faa -db p -outfmt 6"
    serial = subprocess.run(
        command.split(), cwd=tmp_path, env={**os.environ, **environ}, capture_output=True, check=True
    )
    ours = _millrace(command, tmp_path, tmp_path, environ, "--batch", "5")
    assert ours.returncode == ExitCode.DONE and ours.stdout == serial.stdout


@pytest.mark.parametrize("length", [9_801, pytest.param(21_000, marks=pytest.mark.slow)])
def test_long_proteins_keep_the_passes_of_the_serial_run(length: int, data: Path, place: Path, tmp_path: Path) -> None:
    """A pass of 19,800 residues is cut into chunks, so that a query's rows depend on the others of its pass."""
    residues = "".join(
        line for line in (data / "proteins_queries.faa").read_text().split("\n") if not line.startswith(">")
    )
    texts = (place / "q.faa").read_text().split(">")[1:]
    texts.insert(12, f"long\n{residues[5000 : 5000 + length]}\n")
    (tmp_path / "long.faa").write_text("".join(f">{text}" for text in texts))
    command = f"blastp -query {tmp_path / 'long.faa'} -db p -evalue 20 -outfmt 6"
    serial = subprocess.run(command.split(), cwd=place, capture_output=True, check=True).stdout
    ours = _millrace(command, place, tmp_path, {}, "--batch", "1", "--slots", "3")
    assert ours.returncode == ExitCode.DONE and ours.stdout == serial


@cache
def _serial(command: str, folder: Path, name: str, value: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command.split(), cwd=folder, env={**os.environ, name: value}, capture_output=True, timeout=300
    )


def _millrace(
    command: str, folder: Path, tmp_path: Path, environ: Mapping[str, str], *options: str
) -> subprocess.CompletedProcess[bytes]:
    words = [
        *MILLRACE,
        "run",
        "-q",
        "--run-dir",
        str(tmp_path / "run"),
        "--slots",
        "2",
        *options,
        "--",
        *command.split(),
    ]
    return subprocess.run(words, cwd=folder, env={**os.environ, **environ}, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)  # fmt: skip
