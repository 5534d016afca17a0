"""A `PYTHONPATH` or `PYTHONHOME` that is meant for the tool does not change Millrace's own processes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
from shell import RECORDS, Shell

from millrace.host.python_launch import move_user_modules_last

#: Modules of Millrace's own that another Python has too, in a version that this one cannot load.
OF_ANOTHER_PYTHON = ("click", "msgspec", "rich", "jinja2", "lark", "signal", "threading")


@pytest.fixture
def other(shell: Shell) -> Shell:
    """A folder ``other`` of modules for the tool, which shows what it sees of it."""
    for name in OF_ANOTHER_PYTHON:
        (shell.root / "other" / name).mkdir(parents=True)
        (shell.root / "other" / name / "__init__.py").write_text('raise ImportError("this is of another Python")')
    (shell.root / "other" / "letters.py").write_text("ADDED = b'X'\n")
    (shell.work / "tool.py").write_text(
        "import letters, os, sys\n"
        "for line in sys.stdin.buffer:\n"
        "    print(line.rstrip() + letters.ADDED, os.environ['PYTHONPATH'].endswith('/other'))\n"
    )
    return shell


def test_run_with_foreign_python_modules_is_exact(other: Shell) -> None:
    tool = f"{shlex.quote(sys.executable)} tool.py"
    path = f"export PYTHONPATH={other.root}/other"
    serial = other.run(f"{path}; {tool} < in.fa")
    assert serial.code == 0 and serial.out.count("X' True") == 6, serial.shown
    ended = other.run(f"{path}; millrace run --format lines -- {tool} < in.fa")
    assert (ended.code, ended.out) == (0, serial.out), ended.shown
    for words in ("report --help", "runs", "doctor", "plan --input in.fa -- cat in.fa"):
        said = other.run(f"{path}; millrace {words}")
        assert "another Python" not in said.err and said.code in (0, 1), said.shown


def test_modules_of_the_working_folder_are_not_imported(shell: Shell) -> None:
    for name in OF_ANOTHER_PYTHON:
        (shell.work / f"{name}.py").write_text('raise ImportError("this is the user\'s")')
    code = "import os, sys; sys.path.remove(''); import millrace; print(b''.join(millrace.run(['cat'], stdin='in.fa', format='fasta')))"
    ended = shell.run(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}")
    assert (ended.code, ended.out) == (0, f"{RECORDS.encode()!r}\n"), ended.shown


@pytest.mark.parametrize("module", ["batch_host", "guard", "node_shell", "reachability", "sweep"])
def test_helpers_of_jobs_start_despite_foreign_modules(other: Shell, module: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(other.root / "other")}
    said = subprocess.run(
        [sys.executable, "-P", "-m", f"millrace.launch.{module}"],
        env=environ,
        input=b"\n",
        capture_output=True,
        check=False,
    )
    assert b"another Python" not in said.stderr, said


def test_pythonhome_reaches_the_tool_alone(shell: Shell) -> None:
    shell.tool("home", 'cat; echo "$PYTHONHOME"')
    body = "export PYTHONHOME=/nowhere"
    line = f"{shlex.quote(sys.executable)} -E -m millrace run --batch 9 --verify 0 --format fasta -- home < in.fa"
    ended = shell.run(f"{body}; {line}")
    assert (ended.code, ended.out) == (0, f"{RECORDS}/nowhere\n"), ended.shown


def test_user_site_modules_come_last_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/bin", "/a", "/b", "/usr/lib/python", "/site"])
    move_user_modules_last({"PYTHONPATH": "/a:/b/"})
    assert sys.path == ["/bin", "/usr/lib/python", "/site", "/a", "/b"]
