"""What is removed of a run that is dead, on its nodes."""

from __future__ import annotations

import mmap
import os
import subprocess
from pathlib import Path

import pytest

from millrace.host import work_places
from millrace.launch import sweep

pytestmark = pytest.mark.process


def test_mapped_shared_memory_is_not_removed(tmp_path: Path) -> None:
    for name in ("held", "dead", "young"):
        (tmp_path / name).write_bytes(b"x" * 4096)
        if name != "young":
            os.utime(tmp_path / name, (0, 0))
    with (tmp_path / "held").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert sweep.find_unused_segments(sorted(tmp_path.iterdir())) == [tmp_path / "dead"]


def test_sweep_ends_only_processes_with_the_token(tmp_path: Path) -> None:
    token = os.urandom(8).hex()
    by_environment = subprocess.Popen(["sleep", "600"], env={**os.environ, sweep.NAME: token})
    by_argument = subprocess.Popen(
        ["sh", "-c", "read _", f"--base={work_places.make_path_prefix(token)}0"], stdin=subprocess.PIPE
    )
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, sweep.NAME: "0" * 16})
    try:
        # Our own children: they are reaped only here, and a process that has ended but is not reaped counts as gone.
        assert sweep.sweep_this_node(token)
        assert by_environment.wait(300) == by_argument.wait(300) == -9
        assert other.poll() is None
    finally:
        for process in (by_environment, by_argument, other):
            process.kill()
            process.communicate()
