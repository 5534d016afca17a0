"""What the tables in ``docs/tools`` say is refused: each row, typed as a user would, before anything starts."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from docking_folders import STAND_IN_DOCK6, make_dock6_folder, make_vina_folder
from in_process_cli import told
from refused_calls import CALLS
from shell import Shell
from test_everyday import understand
from tool_batches import need

from millrace.cli import run
from millrace.core.errors import RefusedError

PAGES = Path(__file__).resolve().parents[2] / "docs" / "tools"
#: Of the table of everyday programs: what is a program, where the others of its row are commands of the first.
PROGRAMS = ("bowtie2-build", "makeblastdb", "lastdb", "hmmpress")


def rows_of(text: str) -> list[list[str]]:
    """The cells of all tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {number + way for number, line in enumerate(lines) if line.startswith("|---") for way in (-1, 0)}
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for number, line in enumerate(lines)
        if number not in heads
    ]


#: What the page's tool needs beside the databases and queries for all.
PREPARE = {"vina": make_vina_folder, "dock6": make_dock6_folder}


def test_each_row_of_each_page_has_its_calls() -> None:
    for page, rows in CALLS.items():
        table = (PAGES / f"{page}.md").read_text().partition("\n## What is refused")[2].partition("\n## ")[0]
        assert [row[0] for row in rows_of(table)] == list(rows), page


@pytest.mark.parametrize(
    ("page", "row"), [(page, row) for page, rows in CALLS.items() for row in rows], ids=lambda text: text[:40]
)
def test_calls_of_a_row_are_refused_before_they_start(
    page: str, row: str, shell: Shell, bench_of: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{shell.root / 'bin'}:{os.environ['PATH']}")
    for number, line in enumerate(CALLS[page][row]):
        first, _, last = line.rpartition("; ")
        before, pipe, call = last.rpartition("| ")
        if call.startswith("dock6"):
            shutil.copy(STAND_IN_DOCK6, shell.root / "bin" / "dock6")
        else:
            need(call.split()[0])
        folder = shell.work / str(number)
        folder.mkdir()
        for path in bench_of.iterdir():
            (folder / path.name).symlink_to(path)
        if page in PREPARE:
            PREPARE[page](data, folder)
        prepared = shell.run(f"cd {number}; {first or 'true'} && printf '%s\\0' {call}")
        assert prepared.code == 0, prepared.shown
        there = sorted(path.name for path in folder.rglob("*"))
        if pipe or row == next(iter(CALLS[page])):
            ended = shell.run(f"cd {number}; {before}{pipe}millrace run -- {call}")
            assert ended.code == 2 and not ended.out, f"{call}\n{ended.shown}"
            assert ended.err.startswith("millrace: ") and "\nhint: " in ended.err, ended.shown
        else:
            monkeypatch.chdir(folder)
            code, words = told(run.command, "--", *prepared.out.split("\0")[:-1])
            assert code == 2 and "\nhint: " in words, f"{call}\n{words}"
        assert sorted(path.name for path in folder.rglob("*")) == there, call


def refused_everyday() -> list[str]:
    calls = []
    for what, way, _ in rows_of((PAGES / "programs.md").read_text()):
        if way.startswith("refused"):
            names = re.findall(r"`([^`]+)`", what)
            program, *command = names[0].split()
            calls += [
                name if not command or name.split()[0] in (program, *PROGRAMS) else f"{program} {name}"
                for name in names
                if name not in ("replace", "{nr}", "{NR}")  # refused with a certain word; see `test_everyday`
            ]
    return [call.replace("*", "fast") for call in calls]


@pytest.mark.parametrize("call", refused_everyday())
def test_everyday_programs_of_the_table_are_refused(tmp_path: Path, call: str) -> None:
    with pytest.raises(RefusedError) as caught:
        understand(tmp_path, f"{call} in.fa")
    assert caught.value.hint
