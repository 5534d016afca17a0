"""How the documentation says that a user can compare (docs/exactness.md, "How to check it yourself")."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

#: Commands whose outputs name the command line or the time, and one whose do not.
WITH_COMMAND_LINE = ["hmmscan -o OUT p.hmm q.faa", "minimap2 -a -o OUT nucl.fna q.fna"]
WITHOUT = "blastp -query q.faa -db prot -outfmt 6 -out OUT"


def both(bench: Path, folder: Path, command: str) -> None:
    """Write ``serial.txt`` and ``parallel.txt``."""
    program = command.split()[0]
    if not shutil.which(program):
        pytest.skip(f"not installed: {program}")
    for path in bench.iterdir():
        (folder / path.name).symlink_to(path)
    for name, before in (
        ("serial.txt", []),
        ("parallel.txt", [sys.executable, "-m", "millrace", "run", "--slots", "2", "--"]),
    ):
        subprocess.run([*before, *command.replace("OUT", name).split()], cwd=folder, check=True, capture_output=True)


def compare(folder: Path, command: str) -> int:
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True).returncode


@pytest.mark.parametrize("command", WITH_COMMAND_LINE, ids=lambda command: command.split()[0])
def test_recipe_without_command_lines_compares_equal(bench_of: Path, tmp_path: Path, command: str) -> None:
    """The page says that cmp differs, and gives a recipe that does not."""
    both(bench_of, tmp_path, command)
    (recipe,) = re.findall(r"`(cmp <\(.*?)`", (DOCS / "exactness.md").read_text())
    assert compare(tmp_path, "cmp serial.txt parallel.txt") == 1, "as the page says"
    assert compare(tmp_path, recipe) == 0


def test_cmp_is_enough_for_blast(bench_of: Path, tmp_path: Path) -> None:
    both(bench_of, tmp_path, WITHOUT)
    assert compare(tmp_path, "cmp serial.txt parallel.txt") == 0


def test_stand_in_tests_are_named_in_the_docs() -> None:
    """A tool that was only tested by a stand-in is documented as such."""
    for page in (DOCS.parent / "README.md", DOCS / "tools" / "dock6.md"):
        text = " ".join(page.read_text().split())
        assert re.search(r"DOCK 6 \(tested with a stand-in|Tested with a stand-in only", text), page
