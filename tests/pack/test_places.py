"""Where packs and unpacked results are written: over nothing that anybody needs, or nowhere."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_pack import MILLRACE, RESULTS, ask, blastp_6, link, own, tools  # noqa: F401 (fixtures)

COMMAND = shlex.split(RESULTS["blastp-6"][0])


@pytest.fixture
def result(blastp_6: Path, tmp_path: Path) -> Iterator[Path]:  # noqa: F811
    yield link(blastp_6, tmp_path)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A folder with a result that is packed as it is."""
    (tmp_path / "out").write_text("B\nA\n" * 500)
    told = ask(tmp_path, "pack", "out", "-o", "result.mrp", "--", "tr", "a", "b")
    assert told.returncode == 0, told.stderr
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def places(folder: Path) -> dict[str, str]:
    """What cannot be written as a file, and a word of why."""
    (folder / "folder").mkdir()
    (folder / "aim").write_text("precious")
    (folder / "link").symlink_to("aim")
    (folder / "stdout").symlink_to("/proc/self/fd/1")
    os.mkfifo(folder / "pipe")
    return {
        "folder": "is a folder",
        "link": "is a link",
        "stdout": "is a link",
        "pipe": "device or a pipe",
        "-": "not standard output",
        "nodir/x": "no such folder",
        "aim/x": "is no folder",
        "/dev/null": "device or a pipe",
    }


@pytest.mark.slow
def test_only_files_are_written(plain: Path) -> None:
    """Never a name over a link, device, pipe or folder; said before anything."""
    wanted = places(plain)
    before = {name: (plain / name).lstat().st_ino for name in names(plain)}
    null = os.lstat("/dev/null")
    for name, words in wanted.items():
        for arguments in (("unpack", "result.mrp", "-o", name), ("pack", "out", "-o", name, "--", "tr", "a", "b")):
            told = ask(plain, *arguments)
            assert told.returncode == 2, told.stderr
            assert words in told.stderr
            assert "-o" in told.stderr
    assert {name: (plain / name).lstat().st_ino for name in names(plain)} == before
    assert stat.S_ISCHR(os.lstat("/dev/null").st_mode) and os.lstat("/dev/null").st_ino == null.st_ino
    assert (plain / "aim").read_text() == "precious"


def test_a_pack_replaces_nothing_but_packs(plain: Path) -> None:
    (plain / "precious").write_text("precious")
    told = ask(plain, "pack", "out", "-o", "precious", "--", "tr", "a", "b")
    assert told.returncode == 2
    assert "is no pack" in told.stderr
    assert (plain / "precious").read_text() == "precious"
    (plain / "empty").touch()
    for name in ("empty", "result.mrp"):
        assert ask(plain, "pack", "out", "-o", name, "--", "tr", "a", "b").returncode == 0
        assert ask(plain, "unpack", name, "-o", "again").returncode == 0
        assert (plain / "again").read_bytes() == (plain / "out").read_bytes()


def test_a_database_is_not_written_over(result: Path) -> None:
    """Nor by another name of the same file."""
    original = own(result / "prot.psq")
    os.link(result / "prot.psq", result / "other-name")
    for name in ("prot.psq", "other-name"):
        for arguments in (
            ("unpack", "result.mrp", "--yes", "--queries", "q.faa", "-o", name),
            ("pack", "-o", name, "--", *COMMAND),
        ):
            told = ask(result, *arguments)
            assert told.returncode == 2, told.stderr
            assert "would be written over" in told.stderr
            assert (result / name).read_bytes() == original


def test_one_file_for_two_outputs_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 100)
    assert ask(tmp_path, "pack", "a", "b", "-o", "p.mrp", "--", "tr", "a", "b").returncode == 0
    before = names(tmp_path)
    told = ask(tmp_path, "unpack", "p.mrp", "-o", "same", "-o", "same")
    assert told.returncode == 2
    assert "named twice" in told.stderr
    assert names(tmp_path) == before


def test_a_refused_unpacking_leaves_nothing(result: Path) -> None:
    before = names(result)
    for more in (["--queries", "q.faa"], ["--yes"], ["--yes", "--queries", "q.faa", "--db", "nodb"]):
        told = ask(result, "unpack", "result.mrp", "-o", "again", *more)
        assert told.returncode == 2, told.stderr
        assert names(result) == before


@pytest.mark.slow
def test_concurrent_packings_use_separate_files(plain: Path) -> None:
    """Both write the same pack, which is whole whoever ends last."""
    words = [*MILLRACE, "pack", "out", "-o", "p.mrp", "--", "tr", "a", "b"]
    both = [subprocess.Popen(words, cwd=plain, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for process in both:
        _, told = process.communicate(timeout=300)
        assert process.returncode == 0, told
    assert ask(plain, "unpack", "p.mrp", "-o", "again").returncode == 0
    assert (plain / "again").read_bytes() == (plain / "out").read_bytes()
    assert names(plain) == {"out", "result.mrp", "p.mrp", "again"}
