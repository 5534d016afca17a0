"""`millrace pack RUNDIR`: a run that was kept knows its command, and has what it wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tool_batches import need

from millrace.extensions.pack import pack_unpacker
from millrace.rundir.paths import RunDir

MILLRACE = [sys.executable, "-m", "millrace"]
BLASTP = "blastp -query q.faa -db prot -outfmt 6 -max_target_seqs 5 -out out"


def ask(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MILLRACE, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=540
    )


@pytest.fixture
def folder(bench_of: Path, tmp_path: Path) -> Path:
    """A folder with a kept run."""
    need("blastp")
    for name in ("q.faa", *(path.name for path in bench_of.glob("prot.*"))):
        (tmp_path / name).symlink_to(bench_of / name)
    told = ask(tmp_path, "run", "--keep-run-dir", "--run-dir", "kept", "--", *BLASTP.split())
    assert told.returncode == 0, told.stderr
    return tmp_path


def test_a_kept_run_is_packed_without_its_command_and_its_files(folder: Path) -> None:
    (folder / "out").rename(folder / "original")
    before = {path.name for path in folder.iterdir()}
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    told = ask(elsewhere, "pack", "../kept", "-o", "result.mrp")
    assert told.returncode == 0, told.stderr
    assert pack_unpacker.read_recipe(elsewhere / "result.mrp").codec == "blast"
    told = ask(elsewhere, "unpack", "result.mrp", "--yes", "--queries", "../q.faa", "--db", "../prot", "-o", "again")
    assert told.returncode == 0, told.stderr
    assert (elsewhere / "again").read_bytes() == (folder / "original").read_bytes()
    assert sorted(path.name for path in elsewhere.iterdir()) == ["again", "result.mrp"]
    assert {path.name for path in folder.iterdir()} == before | {"elsewhere"}


@pytest.mark.slow
def test_unfinished_run_or_extra_command_is_refused(folder: Path) -> None:
    def refused(words: str, *arguments: str) -> None:
        before = {path.name for path in folder.iterdir()}
        told = ask(folder, "pack", "-o", "result.mrp", *arguments)
        assert told.returncode == 2, told.stderr
        assert words in told.stderr
        assert {path.name for path in folder.iterdir()} == before

    refused("knows its command", "kept", "--", *BLASTP.split())
    refused("no command", "--plan", "--bandwidth", "1G")
    (folder / "kept/complete.json").unlink()
    refused("resume it", "kept")
    (folder / "kept/journal.mrj").unlink()
    refused("not kept", "kept")


@pytest.mark.slow
def test_kept_run_without_its_folder_is_compressed(folder: Path) -> None:
    (folder / "moved").mkdir()
    (folder / "kept").rename(folder / "moved/kept")
    manifest = RunDir(folder / "moved/kept").read_manifest()
    RunDir(folder / "moved/kept").write_manifest(replace(manifest, cwd=str(folder / "gone")))
    told = ask(folder / "moved", "pack", "kept", "-o", "result.mrp")
    assert told.returncode == 0, told.stderr
    assert "gone: is not there any more" in told.stderr
    told = ask(folder / "moved", "unpack", "result.mrp", "-o", "again")
    assert (folder / "moved/again").read_bytes() == (folder / "out").read_bytes()
