"""What the command line says of fragments: the plan's reason, and what is refused before anything starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from shell import Shell


@pytest.fixture
def with_database(shell: Shell) -> Shell:
    if not shutil.which("blastp") or not shutil.which("makeblastdb"):
        pytest.skip("needs blastp and makeblastdb")
    records = "".join(f">s{k}\n{'MKVLAAGIVGLPNVGKSTLFNALT' * 4}{'ACDEFGHIKL'[k % 10]}\n" for k in range(40))
    (shell.work / "db.faa").write_text(records)
    made = shell.run("makeblastdb -in db.faa -dbtype prot -out db")
    assert made.code == 0, made.shown
    return shell


def test_plan_reports_number_of_fragments_and_reason(with_database: Shell) -> None:
    line = "millrace plan {} -- blastp -query in.fa -db db -outfmt 6 -out out"
    asked = with_database.run(line.format("--json --fragments 3"))
    plan = json.loads(asked.out)
    assert plan["fragments"] == 3 and "fragments: 3; as asked" in plan["notes"], asked.shown
    alone = with_database.run(line.format("--slots 8"))
    assert "fragments: 1; the search of the 3 queries is too short to gain by it" in alone.out, alone.shown
    shared = with_database.run(line.replace("blastp", "blastx").format("--slots 8"))
    assert "fragments: 1; the search of the 3 queries in 1 pass is too short to gain by it" in shared.out, shared.shown
    whole = with_database.run(line.format("--fragments 1"))
    assert "fragments: 1, as asked" in whole.out, whole.shown
    too_many = with_database.run(line.format("--fragments 100"))
    assert "there are no more than 40 entries" in too_many.out, too_many.shown


def test_no_query_at_all_is_searched_as_a_whole(with_database: Shell) -> None:
    line = "blastp -query none.fa -db db -outfmt 7 -out"
    serial = with_database.run(f": > none.fa; {line} serial")
    ended = with_database.run(f"millrace run --fragments 2 -- {line} out")
    assert (ended.code, serial.code) == (0, 0), ended.shown
    assert (with_database.work / "out").read_bytes() == (with_database.work / "serial").read_bytes()


def test_targets_are_counted_only_if_queries_need_it(shell: Shell, data: Path) -> None:
    """Queries that keep the slots busy decide alone, so a fault in the targets is not seen."""
    if not shutil.which("hmmsearch"):
        pytest.skip("needs hmmsearch")
    shutil.copy(data / "profiles.hmm", shell.work / "q.hmm")
    # Whoever counts these finds the fault in the second one.
    (shell.work / "t.faa").write_text(">a\nMKV\n>b\nMKV>c\nMKV\n")
    line = "millrace plan --slots 2 {} -- hmmsearch -o out q.hmm t.faa"
    by_queries = shell.run(line.format(""))
    assert "queries keep 2 slots busy, and the database fits into memory" in by_queries.out, by_queries.shown
    asked = shell.run(line.format("--fragments 2"))
    assert asked.code == 2 and "'>' within a line" in asked.err, asked.shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("millrace run --fragments 3 --format fasta -- copy < in.fa", "has no database that is known to be exact"),
        ("millrace run --fragments 1.5G -- copy in.fa", "neither a number of fragments nor a size"),
        ("millrace run --fragments 0 -- copy in.fa", "neither a number of fragments nor a size"),
    ],
)
def test_impossible_fragment_options_are_refused(shell: Shell, line: str, words: str) -> None:
    ended = shell.run(line)
    assert ended.code == 2 and words in ended.err and "hint:" in ended.err, ended.shown
    assert not ended.out and not shell.run_dirs()


def test_inexact_fragment_search_is_refused_or_whole(with_database: Shell) -> None:
    """Refused where fragments were asked for, searched as one where they were not."""
    line = "millrace {} -- psiblast -query in.fa -db db -num_iterations 3 -outfmt 6 -out out"
    refused = with_database.run(line.format("run --fragments 2"))
    assert refused.code == 2 and "--fragments 2: " in refused.err, refused.shown
    planned = with_database.run(line.format("plan"))
    assert "note:      fragments: 1; " in planned.out, planned.shown


def test_job_file_sets_fragments(with_database: Shell) -> None:
    (with_database.work / "job.toml").write_text(
        'command = "blastp -query in.fa -db db -outfmt 6 -out out"\nfragments = 4\n'
    )
    ended = with_database.run("millrace plan --json job.toml")
    assert json.loads(ended.out)["fragments"] == 4, ended.shown
