"""The process that is meant is found, whatever looks like it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import process_lookup
import pytest

#: A process with a child that executes nothing, and one that does.
PARENT = """
import os, subprocess, time
if not os.fork():
    time.sleep(3600)
    os._exit(0)
subprocess.Popen(["sleep", "3600"])
print(flush=True)
time.sleep(3600)
"""


def numbers() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def test_child_that_resembles_its_parent_is_told_apart(tmp_path: Path) -> None:
    mark = str(tmp_path)
    started = subprocess.Popen([sys.executable, "-c", PARENT, mark], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert started.stdout
        started.stdout.readline()
        same = [pid for pid in numbers() if mark in process_lookup.arguments(pid)]
        assert len(same) == 2
        for order in (same, same[::-1]):
            assert process_lookup.only(order) == started.pid
        assert process_lookup.with_words(numbers(), mark) == [started.pid]
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def test_two_unrelated_processes_are_an_error() -> None:
    two = [subprocess.Popen(["sleep", "3600"]) for _ in range(2)]
    try:
        with pytest.raises(AssertionError, match="sleep 3600"):
            process_lookup.only(one.pid for one in two)
    finally:
        for one in two:
            one.kill()
            one.wait()
