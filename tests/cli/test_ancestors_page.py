"""``docs/ancestors.md``: its commands run, in their order, and what it names as shown by a test is a test."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tool_batches import need

REPO = Path(__file__).resolve().parents[2]
PAGE = (REPO / "docs" / "ancestors.md").read_text()

#: What the last column of its tables names.
SHOWN = re.findall(r"\| `([^`]+)` \|$", PAGE, re.MULTILINE)


def test_ancestors_page_commands_run_and_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("makeblastdb", "blastp"):
        need(tool)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "folder"
    shutil.copytree(REPO / "examples" / "blast-on-a-laptop", folder, ignore=shutil.ignore_patterns("out"))
    preparation = PAGE.split("```")[1]
    subprocess.run(["bash", "-e", "-c", preparation], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    commands = [shlex.split(line) for line in SHOWN if line.startswith("millrace ")]
    assert len(commands) > 12
    for _, *arguments in commands:
        done = subprocess.run(
            [sys.executable, "-m", "millrace", *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, (arguments, done.stdout + done.stderr)

    def search(*arguments: str) -> bytes:
        command = ["blastp", "-query", "queries.faa", "-db", "nr", *arguments]
        return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE).stdout

    table = search("-outfmt", "6")
    assert table and all((folder / name).read_bytes() == table for name in ("hits.tsv", "found.tsv", "again.tsv"))
    assert (folder / "fragments.txt").read_bytes() == search("-outfmt", "7")
    assert (folder / "live.mrp").exists() and not (folder / "never.txt").exists()


def test_ancestors_page_tests_and_pages_are_there() -> None:
    tests = [line for line in SHOWN if not line.startswith("millrace ")]
    assert len(tests) > 12 and [name for name in tests if not (REPO / name).is_file()] == []
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", PAGE)]
    assert [link for link in links if not (REPO / "docs" / link).is_file()] == []
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what it had")]
    assert len(rows) == len(SHOWN), "each row is shown by something"
