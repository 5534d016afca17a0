"""Millrace's own memory does not grow with the input."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from parameter_choice import again

#: Megabytes of Millrace itself at most, whatever the input.
MOST_MB = 300


def peak_mb(folder: Path, *arguments: str) -> float:
    """Run, and watch the high-water mark of Millrace alone, without its tools."""
    process = subprocess.Popen(
        [sys.executable, "-m", "millrace", "run", "-q", "--slots", "2", *arguments], cwd=folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                peak = max(peak, int(line.split()[1]))
        time.sleep(0.05)
    assert process.wait() == 0
    return peak / 1024


@pytest.mark.parametrize(
    ("shape", "size_mb"),
    [("many records", 400), again("one record", 400), pytest.param("many records", 4000, marks=pytest.mark.slow)],
)
def test_memory_is_bounded(shape: str, size_mb: int, tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 4 * size_mb << 20:
        pytest.skip("not enough space")
    line = b"ACGTACGTAC" * 6 + b"\n"
    record = b">r\n" + line * 5000 if shape == "many records" else b""
    with (tmp_path / "in.fa").open("wb") as file:
        if not record:
            file.write(b">one\n")
        chunk = record * 3 or line * 16_000
        for _ in range((size_mb << 20) // len(chunk) + 1):
            file.write(chunk)
    peak = peak_mb(tmp_path, "--input", "in.fa", "--output", "out.fa", "--", "cp", "in.fa", "out.fa")
    assert peak < MOST_MB
    subprocess.run(["cmp", "in.fa", "out.fa"], cwd=tmp_path, check=True)
    for name in ("in.fa", "out.fa"):
        (tmp_path / name).unlink()
