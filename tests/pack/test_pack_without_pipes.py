"""`run --pack-to` and `pack` into a filesystem that holds no pipes, and keeps files that are open when they are removed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import wait_until
from tool_batches import need

MILLRACE = [sys.executable, "-m", "millrace"]
#: Serves the filesystem.
SERVER = Path(__file__).parents[1] / "support" / "pipeless_filesystem.py"


@pytest.fixture
def mounted(bench_of: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder on such a filesystem, beside a database and queries."""
    pytest.importorskip("mfusepy")
    if not (unmount := shutil.which("fusermount3") or shutil.which("fusermount")):
        pytest.skip("no fusermount")
    real, at = tmp_path / "real", tmp_path / "at"
    real.mkdir()
    at.mkdir()
    for pattern in ("prot.*", "q3.faa"):
        for path in bench_of.glob(pattern):
            (tmp_path / path.name).symlink_to(path)
    with subprocess.Popen([sys.executable, str(SERVER), str(real), str(at)], stderr=subprocess.PIPE) as serving:
        try:
            if not wait_until(lambda: os.path.ismount(at) or serving.poll() is not None) or serving.poll() is not None:
                pytest.skip(f"no filesystem in user space can be mounted: {serving.stderr and serving.stderr.read()!r}")
            yield at
        finally:
            subprocess.run([unmount, "-u", str(at)], check=False, capture_output=True)
            serving.terminate()


def ask(folder: Path, *arguments: str) -> None:
    told = subprocess.run([*MILLRACE, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)  # fmt: skip
    assert told.returncode == 0, told.stderr


@pytest.mark.slow
def test_pack_to_folder_without_pipes(mounted: Path) -> None:
    need("blastp")
    with pytest.raises(OSError):
        os.mkfifo(mounted / "pipe")
    command = "blastp -query q3.faa -db prot -outfmt 6 -out at/out"
    place = mounted.parent
    subprocess.run(shlex.split(command), cwd=place, check=True)
    expected = (mounted / "out").read_bytes()
    ask(place, "pack", "at/out", "-o", "at/p.mrp", "--", *command.split())
    (mounted / "out").unlink()
    ask(place, "run", "--slots", "1", "--pack-to", "at/r.mrp", "--with-queries", "--", *command.split())
    assert {*os.listdir(mounted)} == {"p.mrp", "r.mrp"}
    ask(place, "unpack", "at/r.mrp", "--yes", "-o", "at/again")
    assert (mounted / "again").read_bytes() == expected
