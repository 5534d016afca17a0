"""`make lint` fails on a violation of the layers, a class name that two classes share and a wrong type, and `.ci/run` with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

REPO = Path(__file__).resolve().parents[2]

#: What the commands read: the rest of the source has no part in them.
READ = ("Makefile", "pyproject.toml", "bench", "python", "scripts", "tests/support")

CASES = {
    "layer": ("lint-imports", "core/planted.py", "import millrace.cli.run\n", r"millrace.core is not allowed to import millrace.cli"),
    "class name": ("check-names", "core/planted.py", "class BatchScheduler:\n    pass\n", r"class BatchScheduler is at .*core/planted.py"),
    "type": ("mypy", "core/planted.py", 'N_TASKS: int = "7"\n', r"planted.py:2: error: Incompatible types in assignment"),
}  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the source, with the tools of the repository's own checks."""
    copy = tmp_path_factory.mktemp("source")
    for name in READ:
        place = copy / name
        place.parent.mkdir(exist_ok=True)
        if (REPO / name).is_dir():
            shutil.copytree(REPO / name, place, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy2(REPO / name, place)
    (copy / ".venv").symlink_to(REPO / ".venv")
    yield copy
    shutil.rmtree(copy)


@pytest.fixture(scope="module")
def commands(source: Path) -> str:
    """All that `make lint` runs."""
    return subprocess.run(["make", "-n", "lint"], cwd=source, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("case", ["layer", "class name", pytest.param("type", marks=pytest.mark.slow)])
def test_lint_fails_on_a_planted_fault(source: Path, commands: str, case: str) -> None:
    tool, path, text, said = CASES[case]
    (command,) = re.findall(rf"^\S*/{tool}$", commands, re.MULTILINE)
    place = source / "python" / "millrace" / path
    place.write_text(f'"""A planted fault."""\n{text}')
    try:
        environ = {**os.environ, "PYTHONPATH": "python", "COLUMNS": "200"}
        done = subprocess.run([command], cwd=source, env=environ, capture_output=True, text=True, check=False)
    finally:
        place.unlink()
    assert done.returncode and re.search(said, done.stdout + done.stderr), done.stdout + done.stderr


@pytest.mark.parametrize(("lint", "test"), [("true", "true"), ("false", "true"), ("true", "false")])
def test_ci_fails_with_lint_and_with_tests(tmp_path: Path, lint: str, test: str) -> None:
    (check,) = re.findall(r"^check:.*", (REPO / "Makefile").read_text(), re.MULTILINE)
    (tmp_path / "Makefile").write_text(f"{check}\nlint:\n\t{lint}\ntest:\n\t{test}\n")
    (tmp_path / ".ci").mkdir()
    shutil.copy(REPO / ".ci" / "run", tmp_path / ".ci")
    done = subprocess.run([tmp_path / ".ci" / "run"], capture_output=True, check=False)
    assert (done.returncode == 0) == (lint == test == "true")
