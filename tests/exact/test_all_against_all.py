"""One file as the input that is cut and as what it is compared with: there the tools see all of it."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest
from shell import Shell

LETTERS = "ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture
def sequences(shell: Shell) -> None:
    """``q.faa``, ``r.fa`` with entries that are like each other, and links to them."""
    chance = random.Random(21)
    families = ["".join(chance.choices(LETTERS, k=90)) for _ in range(6)]
    mutated = (
        "".join(c if chance.random() < 0.7 else chance.choice(LETTERS) for c in families[k % 6]) for k in range(24)
    )
    (shell.work / "q.faa").write_text("".join(f">q{k}\n{entry}\n" for k, entry in enumerate(mutated)))
    genome = "".join(chance.choices("ACGT", k=7000))
    reads = (genome[k * 200 : k * 200 + 1500] for k in range(24))
    (shell.work / "r.fa").write_text("".join(f">r{k}\n{read}\n" for k, read in enumerate(reads)))
    (shell.work / "link.faa").symlink_to("q.faa")


@pytest.mark.usefixtures("sequences")
@pytest.mark.parametrize(
    "command",
    [
        "blastp -query q.faa -subject q.faa -outfmt 6",
        pytest.param("blastp -query q.faa -subject q.faa -outfmt 7", marks=pytest.mark.slow),
        pytest.param("blastp -query q.faa -subject ./q.faa -outfmt 6", marks=pytest.mark.slow),
        pytest.param("blastp -query ./q.faa -subject ../{here}/q.faa -outfmt 6", marks=pytest.mark.slow),
        "blastp -query link.faa -subject q.faa -outfmt 6",
        pytest.param("blastp -query q.faa -subject link.faa -outfmt 6", marks=pytest.mark.slow),
        "phmmer --cpu 0 q.faa q.faa",
        "minimap2 -x ava-ont r.fa r.fa",
        "minimap2 -c ./r.fa r.fa",
        "minimap2 -a r.fa r.fa",
    ],
)
def test_file_as_query_and_subject_is_searched_whole(command: str, shell: Shell) -> None:
    """The query is cut; the file that is searched is not, under either name."""
    if not shutil.which(command.split()[0]):
        pytest.skip(f"not installed: {command.split()[0]}")
    command = command.format(here=shell.work.name)
    serial = subprocess.run(command.split(), cwd=shell.work, capture_output=True, text=True, check=True).stdout
    assert serial
    done = shell.run(f"millrace run --batch 3 --verify 0 -- {command}")
    assert done.code == 0, done.shown
    assert _steady(done.out) == _steady(serial)


def _steady(text: str) -> list[str]:
    """Without the times of HMMER, and minimap2's line with its command, of which `test_minimap2_join` knows more."""
    return [line for line in text.splitlines() if not line.startswith(("# CPU time", "# Mc/sec", "@PG"))]


@pytest.mark.parametrize(
    "options, words",
    [
        ("--shared in.fa", "in.fa in.fa"),
        ("", "in.fa in.fa"),
        ("", "in.fa --with=in.fa"),
        ("--shared ./in.fa", "in.fa other"),
        ("", "in.fa ./in.fa"),
        ("", "in.fa --with=../{here}/in.fa"),
        ("", "in.fa -c 'grep -c x in.fa; cat'"),
    ],
)
def test_unknown_program_with_one_file_for_both_is_refused(options: str, words: str, shell: Shell) -> None:
    shell.tool("both", 'cat "$1" "$2"')
    done = shell.run(f"millrace run --input in.fa {options} -- both {words.format(here=shell.work.name)}")
    assert done.code == 2, done.shown
    assert "is the file that --input in.fa cuts into batches" in done.err
    assert shell.run_dirs() == []


def test_shared_folder_shows_the_whole_input_file(shell: Shell) -> None:
    """The batches of that file are elsewhere; without that the run is refused."""
    (shell.work / "d").mkdir()
    shell.run("mv in.fa d")
    line = "millrace run --batch 1 --verify 0 --input {0} --shared d -- counted {0} d"
    shell.tool("counted", 'sed "s/$/ $(cat "$2"/* | grep -c ">")/" "$1"')
    done = shell.run(line.format("d/in.fa"))
    assert done.code == 2 and "--shared d has in it what --input d/in.fa cuts" in done.err, done.shown
    done = shell.run(line.format("$PWD/d/in.fa"))
    assert done.code == 0, done.shown
    assert done.out == shell.run("counted d/in.fa d").out


def test_script_may_name_the_batch_file(shell: Shell) -> None:
    """The plan reports a script that names the input by itself."""
    done = shell.run("""millrace run --batch 1 --verify 0 --input in.fa -- sh -c 'cat ./in.fa | tr A-Z a-z'""")
    assert done.code == 0 and done.out == (shell.work / "in.fa").read_text().lower(), done.shown
    for text in ("cat in.fa $1", "cat $1"):
        (shell.work / "own.sh").write_text(text)
        done = shell.run("millrace plan --input in.fa -- sh own.sh in.fa")
        assert ("own.sh speaks of in.fa" in " ".join(done.out.split())) == ("in.fa" in text), done.shown


def test_link_to_the_input_shows_the_whole_file(shell: Shell) -> None:
    (shell.work / "whole.fa").symlink_to("in.fa")
    shell.tool("both", 'sed "s/$/ $(grep -c ">" "$2")/" "$1"')
    done = shell.run("millrace run --batch 1 --verify 0 --input in.fa --shared whole.fa -- both in.fa whole.fa")
    assert done.code == 0, done.shown
    text = (shell.work / "in.fa").read_text()
    assert done.out == "".join(f"{line} {text.count('>')}\n" for line in text.splitlines())
