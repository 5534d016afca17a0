"""What blastn finds for a query depends on the queries beside it, and Millrace does not let it show."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from exact_cases import MILLRACE, records
from fragment_driver import command_of
from parameter_choice import some
from tool_batches import need

from millrace.adapters.blast import passes
from millrace.core.errors import ExitCode

#: Letters in a row that score just enough for blastn, and that no four-letter steps of the subject fill.
MOTIF = "GATTACACCATGCA"

#: With the databases here BLAST then wants the score that it wants of any match to be extended with gaps.
SEARCH = ["blastn", "-task", "blastn", "-query", "q", "-db", "db", "-evalue", "0.0025", "-outfmt"]


def letters(n: int, seed: int) -> str:
    return "".join(random.Random(seed).choices("ACGT", k=n))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    need("blastn")
    # Three letters of the motif stand before the first step of four, and three after the last.
    entry = f"{letters(401, 1)}{MOTIF}{letters(600, 2)}"
    database(tmp_path, f">entry\n{entry}\n")
    return tmp_path


def database(folder: Path, text: str) -> None:
    (folder / "db.in").write_text(text)
    subprocess.run(
        ["makeblastdb", "-in", "db.in", "-dbtype", "nucl", "-out", "db"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def run(
    command: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **(environ or {})},
        timeout=300,
    )


def search(
    words: list[str], folder: Path, environ: Mapping[str, str] | None = None, batch: str = "1"
) -> tuple[bytes, bytes]:
    """What a command writes by itself, and with Millrace."""
    serial = run(words, folder, environ)
    ours = run([*MILLRACE, "run", "-q", "--slots", "2", "--batch", batch, "--", *words], folder, environ)
    assert (serial.returncode, ours.returncode) == (0, 0), ours.stderr.decode()
    return serial.stdout, ours.stdout


def beginning_with_motif(n: int) -> str:
    """``n`` queries that have nothing in common with the database but the motif at their beginning."""
    other = next(letter for letter in "ACGT" if letter != letters(1, 2))
    return "".join(f">q{k}\n{MOTIF}{other}{letters(200, 100 + k)}\n" for k in range(n))


def test_weak_match_at_query_start_depends_on_previous_query(place: Path) -> None:
    """blastn compares the query with the letters before it in the pass."""
    (place / "q").write_text(beginning_with_motif(2))
    rows = run([*SEARCH, "6"], place).stdout.splitlines()
    assert [row.split()[0] for row in rows] == [b"q1"]  # q0, which has the same letters, has none before it


@pytest.mark.slow
def test_weak_match_at_query_start_is_refused(place: Path) -> None:
    (place / "q").write_text(beginning_with_motif(40))
    done = run([*MILLRACE, "run", "--", *SEARCH, "6"], place)
    assert done.returncode == ExitCode.REFUSED
    assert b"at the first letters of a query" in done.stderr
    limit = done.stderr.split(b"use -evalue ")[1].split()[0].decode()
    serial, ours = search([limit if word == "0.0025" else word for word in SEARCH] + ["6"], place)
    assert serial == ours
    assert not (place / "q.millrace").exists()


@pytest.mark.slow
@pytest.mark.parametrize("options", some(["6", "0", "11", "7 -ungapped"], "0"))
def test_passes_set_by_the_user_are_kept(options: str, place: Path) -> None:
    (place / "q").write_text(beginning_with_motif(12))
    found = []
    for residues in ("1", "1000"):
        serial, ours = search([*SEARCH, *options.split()], place, {"BATCH_SIZE": residues})
        assert serial == ours
        found.append(serial)
    assert found[0] != found[1] or "-ungapped" in options


def test_few_queries_are_one_pass(place: Path) -> None:
    (place / "q").write_text(beginning_with_motif(20))
    serial, ours = search([*SEARCH, "6"], place)
    assert serial == ours
    assert serial.count(b"\n") == 19


@pytest.mark.parametrize(
    ("options", "score"),
    [
        ("", 0),
        ("-word_size 11", 15),
        ("-task blastn", 32),
        ("-task blastn -word_size 15", 0),
        ("-task blastn -word_size 7", 0),
        ("-task blastn -word_size inf", 32),
        ("-task blastn -reward 1 -penalty -3", 15),
        ("-task blastn-short", 0),
        ("-task dc-megablast", 32),
        ("-template_type coding -template_length 18 -word_size 11", 15),
    ],
)
def test_scores_in_doubt(options: str, score: int) -> None:
    words = iter(options.split())
    given = {name[1:]: value for name, value in zip(words, words, strict=True)}
    assert passes._compute_doubtful_score(given, *passes._read_scores(given)) == score


@pytest.mark.slow
def test_the_least_evalue_is_no_more_than_blasts_own(data: Path, tmp_path: Path) -> None:
    need("blastn")
    genes = [record.decode() for record in records(data / "genes_db.fna")[::27]]
    database(tmp_path, "".join(genes))
    n_rows = 0
    for options in (
        "",
        "-reward 1 -penalty -3",
        "-gapopen 0 -gapextend 4",
        "-reward 4 -penalty -5",
        "-dbsize 1000000000",
    ):
        for gene in genes[:2]:
            name, _, sequence = gene.partition("\n")
            for length in (30, 100, 400):
                (tmp_path / "q").write_text(f"{name}\n{sequence.replace(chr(10), '')[:length]}\n")
                command = f"blastn -task blastn -query q -db db -evalue 1000 {options} -dust no"
                rows = run([*command.split(), "-outfmt", "6 score evalue"], tmp_path).stdout.splitlines()
                words = itertools.pairwise(command.split())
                given = {one[1:]: other for one, other in words if one.startswith("-") and not one[1:].isdigit()}
                scores = passes._read_scores(given)
                score = passes._compute_doubtful_score(given, *scores)
                lengths = passes.measure_queries(tmp_path / "q")
                space = passes._estimate_search_space(given, scores, lengths, command_of(command.split(), tmp_path))
                least = passes._estimate_least_evalue(score, scores, space)
                weak = [float(evalue) for s, evalue in map(bytes.split, rows) if int(s) <= score]
                assert all(evalue >= least * 0.99 for evalue in weak), (options, length)
                n_rows += len(weak)
    assert n_rows > 100


@pytest.mark.slow
def test_long_record_behind_the_start_of_a_pass_is_refused(tmp_path: Path) -> None:
    need("blastn")
    genome = letters(2_100_000, 3)
    database(
        tmp_path, "".join(f">e{k}\n{genome[at : at + 900]}\n" for k, at in enumerate(range(0, len(genome), 150_000)))
    )
    short = "".join(f">s{k}\n{genome[at : at + 500]}\n" for k, at in enumerate(range(400, len(genome), 150_000)))
    (tmp_path / "last").write_text(f"{short}>long\n{genome}\n")
    (tmp_path / "first").write_text(f">long\n{genome}\n{short}")
    blastn = ["blastn", "-db", "db", "-outfmt", "6", "-evalue", "1e-12", "-task"]
    done = run([*MILLRACE, "run", "--", *blastn, "blastn", "-query", "last"], tmp_path)
    assert done.returncode == ExitCode.REFUSED
    assert b"record 15 of last has 1,000,800 residues or more" in done.stderr
    serial, ours = search([*blastn, "blastn", "-query", "first"], tmp_path, batch="auto")
    assert serial == ours
    assert serial.count(b"\n") > 20
    # Megablast has larger chunks, and takes it as it stands.
    serial, ours = search([*blastn, "megablast", "-query", "last"], tmp_path, batch="2")
    assert serial == ours
    with (tmp_path / "last").open("rb") as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as cat:
        command = [*MILLRACE, "run", "--", *blastn, "blastn"]
        done = subprocess.run(command, cwd=tmp_path, stdin=cat.stdout, capture_output=True, timeout=300)
    assert done.returncode == ExitCode.STOPPED
    assert b"has 2,100,000 residues" in done.stderr
    assert b"long" not in done.stdout
