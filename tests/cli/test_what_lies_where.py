"""A run leaves files only where the docs say that they lie."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs/install.md"


def test_run_leaves_files_only_where_the_docs_name(tmp_path: Path) -> None:
    home, work, temporary = tmp_path / "home", tmp_path / "work", tmp_path / "tmp"
    for folder in (home, work, temporary):
        folder.mkdir()
    (work / "in.fa").write_text(">a\nMKV\n>b\nMAA\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MILLRACE_"))}
    environ |= {"HOME": str(home), "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "millrace", "run", "-q", "--"]
    tool = ["blastp", "-query", "in.fa", "-subject", "in.fa", "-outfmt", "6", "-out", "out"]
    ran = subprocess.run([*command, *tool], cwd=work, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr

    said = re.findall(r"^\| `~/([^`]+)`", DOCS.read_text(), re.MULTILINE)
    left = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    places = tuple(f"{place}/" for place in said)
    assert [path for path in left if not path.startswith(places)] == []
    assert [place for place in places if not any(path.startswith(place) for path in left)] == []
    assert sorted(path.name for path in work.iterdir()) == ["in.fa", "out"]
    assert list(temporary.iterdir()) == []
