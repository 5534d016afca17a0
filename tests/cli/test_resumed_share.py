"""The share that a resumed run shows as done is what is done, wherever the gaps are."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from shell import Shell

#: Records, all of one size; the first takes as long as the test wants.
N = 12


def start(shell: Shell) -> subprocess.Popen[str]:
    words = (
        "millrace run --progress json --slots 2 --batch 1 --verify 0 --input many.fa --output out -- ./wait many.fa out"
    )
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}
    return subprocess.Popen(
        words.split(), cwd=shell.work, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def until(process: subprocess.Popen[str], name: str, least: int) -> dict[str, Any]:
    """The first snapshot whose ``name`` is as much."""
    assert process.stderr
    for line in process.stderr:
        if line.startswith("{"):
            told = json.loads(line)
            if told["event"] == "progress" and told[name] >= least:
                return dict(told)
    raise AssertionError("the run has ended")


def test_resumed_run_counts_only_finished_records_as_done(shell: Shell) -> None:
    (shell.work / "many.fa").write_text("".join(f">r{k:02}\nMKV\n" for k in range(N)))
    tool = shell.work / "wait"
    tool.write_text(
        f'#!/bin/sh\nif grep -q r00 "$1"; then until [ -e {shell.root}/go ]; do sleep 0.05; done; fi\ncp "$1" "$2"\n'
    )
    tool.chmod(0o755)
    first = start(shell)
    until(first, "records_done", N - 1)
    first.kill()
    first.communicate()
    again = start(shell)
    seen = until(again, "records_resumed", N - 1)
    (shell.root / "go").touch()
    again.communicate()
    assert again.returncode == 0
    assert seen["bytes_done"] == seen["bytes_total"] * (N - 1) // N
    assert (shell.work / "out").read_text() == (shell.work / "many.fa").read_text()
