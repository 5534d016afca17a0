"""``millrace why`` on real runs: one that has ended, one that goes on, and one whose records fail."""

from __future__ import annotations

import os
import re
import subprocess

from harness import wait_until
from shell import Shell


def test_why_of_ended_run_names_what_was_left(shell: Shell) -> None:
    shell.tool("nap", 'text=$(cat); case $text in *r3*) sleep 1.5;; esac; printf "%s\\n" "$text"')
    shell.run("millrace run -q --keep-run-dir --run-dir k --batch 1 --slots 2 --verify 0 --format fasta -- nap < in.fa")
    done = shell.run("millrace why k")
    assert done.code == 0, done.shown
    assert re.search(
        r"Slots were idle \d+ % of the time:(\n.*)*\n- .* at the end, when only record 3 was left", done.out
    ), done.shown


def test_why_of_failing_run_has_the_tools_words(shell: Shell) -> None:
    shell.run("millrace run -q --run-dir k --batch 1 --format fasta -- bad2 < in.fa")
    assert "- record 2 (r2): exit status 7: cannot do r2" in shell.run("millrace why k").out


def test_why_of_running_run_names_what_is_waited_for(shell: Shell) -> None:
    line = "exec millrace run -q --run-dir k --batch 1 --slots 2 --verify 0 --format fasta -- hang2 < in.fa > o"
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}
    with subprocess.Popen(["bash", "-c", line], cwd=shell.work, env=environ) as process:
        told = ""

        def is_told() -> bool:
            nonlocal told
            told = shell.run("millrace why k").out
            return "The output waits for record 2:" in told

        assert wait_until(is_told), told
        process.terminate()
    assert "It has been running for" in told
