"""A database file that is shorter than its index says is named before anything starts."""

from __future__ import annotations

import os
import shutil

import pytest
from shell import Shell

BLASTP = "millrace run --batch 1 -- blastp -query q.fa -db db -outfmt 6 -out o"
DIAMOND = "millrace run -- diamond blastp -q q.fa -d dmnd -o o --quiet"


@pytest.fixture
def databases(shell: Shell) -> Shell:
    for tool in ("makeblastdb", "diamond"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}")
    letters = "ARNDCQEGHILKMFPSTWYV" * 9
    text = "".join(f">e{each}\n{letters[each:]}\n" for each in range(20))
    (shell.work / "db.fa").write_text(text)
    (shell.work / "q.fa").write_text(text)
    made = shell.run("makeblastdb -in db.fa -dbtype prot -out db && diamond makedb --in db.fa -d dmnd --quiet")
    assert made.code == 0, made.shown
    return shell


@pytest.mark.parametrize(
    ("name", "command"), [("db.psq", BLASTP), ("db.phr", BLASTP), ("db.pin", BLASTP), ("dmnd.dmnd", DIAMOND)]
)
def test_truncated_database_file_is_named_before_the_start(databases: Shell, name: str, command: str) -> None:
    path = databases.work / name
    os.truncate(path, path.stat().st_size * 3 // 4)
    ended = databases.run(command)
    assert ended.code == 2 and name in ended.err and "cut off" in ended.err, ended.shown
    assert not (databases.work / "o").exists()


def test_complete_databases_are_accepted(databases: Shell) -> None:
    for command in (BLASTP, DIAMOND):
        assert databases.run(command.replace("run ", "plan ").replace("--batch 1 ", "")).code == 0


def test_tool_killed_on_several_records_stops_the_run(shell: Shell) -> None:
    shell.tool(
        "dies", 'text=$(cat); [ -e mended ] || case $text in *[369]*) kill -BUS $$;; esac; printf "%s\\n" "$text"'
    )
    (shell.work / "in.fa").write_text("".join(f">r{each}\nACGT\n" for each in range(1, 30)))
    command = "millrace run --slots 1 --batch 1 --verify 0 --format fasta -- dies < in.fa > o"
    ended = shell.run(command)
    assert ended.code == 4 and "died on 3 of" in ended.err and "fault of the database" in ended.err, ended.shown
    (shell.work / "mended").touch()
    ended = shell.run(command.replace("--slots 1", "--slots 1 --retry-quarantined"))
    assert ended.code == 0, ended.shown
    assert (shell.work / "o").read_bytes() == (shell.work / "in.fa").read_bytes()


def test_tool_killed_within_the_allowed_count_continues(shell: Shell) -> None:
    shell.tool("dies", 'text=$(cat); case $text in *[369]*) kill -SEGV $$;; esac; printf "%s\\n" "$text"')
    (shell.work / "in.fa").write_text("".join(f">r{each}\nACGT\n" for each in range(1, 10)))
    ended = shell.run(
        "millrace run --slots 1 --batch 1 --verify 0 --max-quarantined 3 --format fasta -- dies < in.fa > o"
    )
    assert ended.code == 3, ended.shown
