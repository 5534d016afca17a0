"""The version of a program is asked once for each build of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from millrace.adapters.program_identity import read_version_line
from millrace.core.tool_use import UserCommand


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def asked(exe: Path, *arguments: str) -> str:
    return read_version_line(UserCommand(argv=(str(exe), *arguments), exe=exe, cwd=exe.parent, environ={}), *arguments)


def kept(home: Path) -> list[str]:
    return [path.read_text() for path in home.rglob("*") if path.is_file()]


def test_program_version_is_asked_once_per_build(home: Path, tmp_path: Path) -> None:
    echo = shutil.which("echo")
    assert echo
    exe = Path(shutil.copy(echo, tmp_path / "tool"))
    assert asked(exe, "tool 1.0") == "tool 1.0"
    assert kept(home) == ["tool 1.0\n"]
    next(path for path in home.rglob("*") if path.is_file()).write_text("from the cache\n")
    assert asked(exe, "tool 1.0") == "from the cache"
    assert asked(exe, "other") == "other"
    exe.touch()
    assert asked(exe, "tool 1.0") == "tool 1.0"


def test_script_version_is_always_asked(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.touch(mode=0o755)
    for version in ("1", "2"):
        command = UserCommand(argv=("tool",), exe=script, cwd=tmp_path, environ={})
        script.write_text(f"#!/bin/sh\n\necho\necho wrapped {version}\n")
        assert read_version_line(command, "-v") == f"wrapped {version}"
    assert not kept(home)


def test_failed_version_query_is_repeated(home: Path, tmp_path: Path) -> None:
    false = shutil.which("false")
    assert false
    exe = Path(shutil.copy(false, tmp_path / "tool"))
    assert asked(exe, "--help")
    assert asked(exe, "--help") and not kept(home)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    echo = shutil.which("echo")
    assert echo
    assert asked(Path(echo), "here") == "here"
