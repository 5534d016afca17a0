"""What the adapters of Vina, MAFFT and DIAMOND understand and refuse; none of them is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.adapters.registry import find_adapter
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputArg, OutputArg, ThreadsArg, ToolUse, UserCommand

pytestmark = pytest.mark.process


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """A working directory with what the commands name; the fake program knows ``dbinfo``."""
    for folder in ("ligands", "families", "out", "none"):
        (tmp_path / folder).mkdir()
    for name in (
        "ligands/a.pdbqt",
        "ligands/b.pdbqt",
        "families/x.faa",
        "families/y.faa",
        "r.pdbqt",
        "q.faa",
    ):
        (tmp_path / name).write_text(">x\nMK\n")
    (tmp_path / "db.dmnd").write_text("1000")
    (tmp_path / "big.dmnd").write_text("300000000")
    (tmp_path / "box.txt").write_text("receptor = r.pdbqt\nseed = 3 # any\n")
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\n[ "$1" = dbinfo ] && echo "  Letters  $(cat "$3")" || echo version 0\n')
    program.chmod(0o755)
    return tmp_path


def understand(cwd: Path, text: str) -> ToolUse:
    argv = tuple(text.split())
    return find_adapter(argv[0]).understand_command(UserCommand(argv=argv, cwd=cwd, environ={}, exe=cwd / "program"))


def test_vina_ligand_folder(cwd: Path) -> None:
    use = understand(cwd, "vina --config=box.txt --ligand ligands --out out")
    assert use.argv == (
        "vina", "--config=box.txt", "--ligand", InputArg(index=0), "--out", OutputArg(index=0), "--cpu", "1"
    )  # fmt: skip
    out = use.outputs[0]
    assert (out.name, out.layout, out.path) == ("out", "record", "out/{name}")
    assert (use.outputs[1].join, use.cost.max_records, use.threads) == ("vina-log:cpu=0", 1, 1)
    assert {path.name for path in use.databases} == {"r.pdbqt", "box.txt"}


def test_vina_batch(cwd: Path) -> None:
    use = understand(cwd, "vina --seed 1 --batch ligands/a.pdbqt ligands/b.pdbqt --dir out --center_x -5.1 --cpu 3")
    assert use.argv[3:7] == ("--batch", InputArg(index=0), "--dir", OutputArg(index=0))
    assert use.inputs[0].path == "ligands/a.pdbqt\0ligands/b.pdbqt"
    assert [(out.layout, out.join) for out in use.outputs] == [
        ("directory", "concat"),
        ("file", "vina-log:n=2"),
    ]
    assert (use.threads, use.cost.max_records) == (3, 0)


def test_vina_score_only_needs_no_seed_and_writes_no_poses(cwd: Path) -> None:
    use = understand(cwd, "vina --receptor r.pdbqt --score_only --ligand ligands --cpu 1")
    assert [(out.name, out.join) for out in use.outputs] == [("stdout", "concat")]


def test_mafft_threads(cwd: Path) -> None:
    assert understand(cwd, "mafft --thread 4 families").threads == 4
    assert understand(cwd, "mafft --thread -1 families").argv[:3] == ("mafft", "--thread", "1")
    assert understand(cwd, "mafft --thread -1 --threadit 0 --auto families").argv[:3] == (
        "mafft",
        "--thread",
        "0",
    )
    assert understand(cwd, "mafft --thread 1 --auto families").argv[1:3] == ("--thread", "1")
    use = understand(cwd, "linsi --op 1.5 families/*.faa")
    assert use.argv == ("linsi", "--op", "1.5", InputArg(index=0))


def test_diamond_arguments(cwd: Path) -> None:
    use = understand(cwd, "diamond blastp -q q.faa -d db -o hits -f 6 qseqid sseqid -k5")
    assert use.argv == (
        "diamond", "blastp", "-q", InputArg(index=0), "-d", "db", "-o", OutputArg(index=0),
        "-f", "6", "qseqid", "sseqid", "-k5", "-p", ThreadsArg(),
    )  # fmt: skip
    assert use.threads == 0, "as many as it gets"
    assert use.databases == (cwd / "db.dmnd",)
    use = understand(cwd, "diamond blastp --query q.faa --db db.dmnd -f101 -p4 --un un --al al")
    assert [(out.name, out.join) for out in use.outputs] == [
        ("stdout", r"header:^@(HD|PG|mm|CO)\t"),
        ("un", "concat"),
        ("al", "concat"),
    ]
    assert use.threads == 4
    use = understand(cwd, "diamond blastp -q q.faa -d db -f101 -p 0")
    assert (use.threads, use.outputs[0].join) == (0, r"header:^@(HD|PG|mm|CO)\t")
    join = understand(cwd, "diamond blastp -q q.faa -d db --header").outputs[0].join
    assert join.split("\n") == ["header:3", r"restore:^(?:@PG\t|# Invocation:).*( -p [0-9]+)$" + "\t"]
    assert understand(cwd, "diamond blastx -q q.faa -d big --algo 0").inputs[0].format == "fasta"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("vina --receptor r.pdbqt --ligand ligands --out out", "starts at random"),
        ("vina --receptor r.pdbqt --ligand ligands --out out --seed 0", "starts at random"),
        ("vina --config box.txt --ligand ligands", "no --out"),
        ("vina --config box.txt --ligand ligands/a.pdbqt --out out", "one ligand"),
        ("vina --config box.txt --ligand ligands/a.pdbqt ligands/b.pdbqt --out out", "docks them together"),
        ("vina --config box.txt --batch ligands", "needs --dir"),
        ("vina --config box.txt --batch ligands --dir out --ligand ligands", "exclude each other"),
        ("vina --config box.txt --batch ligands --dir out --verbosity 2", "fewer digits"),
        ("vina --config box.txt --ligand ligands --out out --write_maps m", "same files in every task"),
        ("vina --config nothere --ligand ligands", "cannot be read"),
        ("vina --config box.txt --ligand none --out out", "no files in it"),
        ("vina --config box.txt", "no ligands"),
        ("vina --ligan ligands", "--ligan is not known"),
        ("mafft families/x.faa", "one family"),
        ("mafft -", "standard input is one family"),
        ("mafft --auto --thread 4 families", "differs from run to run"),
        ("linsi --thread -1 families", "differs from run to run"),
        ("mafft --maxiterate 2 --thread 2 families", "differs from run to run"),
        ("mafft --add new.faa families", "adds to one alignment"),
        ("mafft --treeout families", "beside each input"),
        ("mafft --dash families", "asks a server"),
        ("mafft --thread many families", "whole number"),
        ("mafft none", "no files in it"),
        ("diamond makedb --in q.faa -d x", "only blastp and blastx"),
        ("diamond blastp -q q.faa", "no database"),
        ("diamond blastp -q q.faa -d nothere", "no such DIAMOND database"),
        ("diamond blastp -d db", "no queries"),
        ("diamond blastp -q q.faa -d big", "which of two algorithms"),
        ("diamond blastp -q q.faa -d db -f 100", "cannot be joined"),
        ("diamond blastp -q q.faa -d db -f 0", "not reported alike"),
        ("diamond blastp -q q.faa -d db --unal 1", "not reported alike"),
        ("diamond blastp -q q.faa -d db -f 6 qseqid qnum", "numbers the queries"),
        ("diamond blastp -q q.faa -d db --compress 1", "one compressed stream"),
        ("diamond blastp -q q.faa -d db --log", "writes a second file"),
        ("diamond blastp -q q.faa -d db --iterate", "changes ties"),
        ("diamond blastp -q q.faa -d db --multiprocessing", "spreads the work itself"),
        ("diamond blastp -q q.faa -d db --outfmt=6", "--outfmt=6 is not known"),
    ],
)
def test_refused_by_name(cwd: Path, command: str, problem: str) -> None:
    with pytest.raises(RefusedError, match=problem) as caught:
        understand(cwd, command)
    assert not caught.value.message.endswith(".")


def test_unknown_programs_are_generic() -> None:
    assert type(find_adapter("./mytool")).__name__ == "GenericAdapter"
    assert type(find_adapter("/usr/bin/mafft")).__name__ == "MafftAdapter"
