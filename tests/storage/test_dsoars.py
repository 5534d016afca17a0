"""The programs with which dSOARS was shown, from the cheapest places: as the docs have them."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from shell import Shell
from web_server import Web


def needs(*programs: str) -> None:
    if missing := [name for name in programs if not shutil.which(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")


def serial(folder: Path, line: str) -> str:
    return subprocess.run(["sh", "-c", line], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_grep_reads_a_list_of_files_from_the_cheapest_places(web: Web, environment: Path, shell: Shell) -> None:
    chance = random.Random(3)
    (shell.root / "db").mkdir()
    names = [f"{shell.root}/db/part{k}.txt" for k in range(11)]
    for k, name in enumerate(names):
        words = (chance.choice(("alpha", "beta", "gamma")) for _ in range(30))
        content = "".join(f"{word} {k} {n}\n" for n, word in enumerate(words))
        web.put(f"db/part{k}.txt", content.encode())
        if k % 2:
            Path(name).write_text(content)
    (shell.work / "names").write_text("".join(f"{name}\n" for name in names))
    rule = f'[[replica]]\npath = "{shell.root}/db/part*"\nat = ["{web.url}/db/part*"]\n'
    (environment / "config" / "millrace.toml").write_text(rule)
    (shell.root / "copies").mkdir()
    done = shell.run(f"millrace data stage --to {shell.root}/copies $(cat names) > here")
    assert done.code == 0, done.shown
    assert web.n_downloads == 6 and done.err.count("left in place: ") == 5, done.shown
    here = (shell.work / "here").read_text().split()
    assert [path == name for path, name in zip(here, names, strict=True)] == [bool(k % 2) for k in range(11)]
    done = shell.run("millrace run --input here:files -- grep -h beta here > hits")
    assert done.code == 0, done.shown
    assert (shell.work / "hits").read_text() == serial(shell.work, "grep -h beta $(cat here)")
    assert len((shell.work / "hits").read_text().splitlines()) > 30


@pytest.fixture
def genes(shell: Shell) -> Path:
    """``ref.fa``, and ``q.fa`` with parts of it."""
    chance = random.Random(4)
    targets = ["".join(chance.choices("ACGT", k=600)) for _ in range(4)]
    (shell.work / "ref.fa").write_text("".join(f">t{k}\n{each}\n" for k, each in enumerate(targets)))
    (shell.work / "q.fa").write_text("".join(f">q{k}\n{targets[k % 4][9 * k : 9 * k + 200]}\n" for k in range(8)))
    return shell.work


def test_lastal_aligns_in_batches(genes: Path, shell: Shell) -> None:
    needs("lastal", "lastdb")
    serial(genes, "lastdb refdb ref.fa")
    done = shell.run("millrace run --batch 3 -- lastal -f BlastTab refdb q.fa > found")
    assert done.code == 0, done.shown
    assert (genes / "found").read_text() == serial(genes, "lastal -f BlastTab refdb q.fa") != ""


def test_exonerate_aligns_one_query_at_a_time(genes: Path, shell: Shell) -> None:
    needs("exonerate")
    (genes / "queries").mkdir()
    (genes / "found").mkdir()
    for record in (genes / "q.fa").read_text().split(">")[1:5]:
        (genes / "queries" / f"{record.split()[0]}.fa").write_text(f">{record}")
    (genes / "align").write_text(
        '#!/bin/sh\nexonerate --verbose 0 --showalignment no --model affine:local "$1" ref.fa > "$2"\n'
    )
    (genes / "align").chmod(0o755)
    line = (
        "millrace run --input queries --output 'found/{stem}.txt' --shared ref.fa -- ./align queries 'found/{stem}.txt'"
    )
    done = shell.run(line)
    assert done.code == 0, done.shown
    for path in sorted((genes / "queries").iterdir()):
        serial(genes, f"./align queries/{path.name} wanted")
        assert (genes / "found" / f"{path.stem}.txt").read_text() == (genes / "wanted").read_text() != ""
