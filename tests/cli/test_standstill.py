"""Tools whose threads wait for each other for ever, as those of DIAMOND before 2.2.3 do now and then."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys

import pytest
from shell import Shell

#: Takes a lock twice, as the program of the tool would: no CPU time, no reads, no writes, for ever.
DEADLOCK = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"

#: Its first `MARK/n` searches stand still, each in a child, which would outlive it.
DIAMOND = """\
case "$*" in */unread0*) exec {diamond} "$@";; esac  # the look at what a wrapper starts
case $1 in blastp)
    n=$(cat "$MARK/n" 2>/dev/null || echo 0)
    if [ "$n" -gt 0 ]; then
        echo $((n - 1)) > "$MARK/n"
        {python} -c {deadlock}
    fi;;
esac
exec {diamond} "$@"
"""

#: Millrace, for which what has done nothing for a moment stands still.
IMPATIENT = """
from millrace.core import tool_use
tool_use.STANDSTILL_SECONDS = 0.5
from millrace.cli import main
main()
"""


@pytest.fixture
def search(shell: Shell) -> Shell:
    """A DIAMOND that may stand still, and what it says if it does not."""
    diamond = shutil.which("diamond")
    if not diamond:
        pytest.skip("diamond is not installed")
    body = DIAMOND.format(python=sys.executable, deadlock=shlex.quote(DEADLOCK), diamond=diamond)
    shell.tool("diamond", body)
    shell.tool("impatient", f'exec {sys.executable} -c {shlex.quote(IMPATIENT)} "$@"')
    proteins = "".join(f">p{n}\n{'MKVLAAGIVGLCAKTYWRNDEHPQSF'[n % 7 :] * 4}\n" for n in range(40))
    (shell.work / "db.faa").write_text(proteins)
    (shell.work / "q.faa").write_text(proteins)
    subprocess.run([diamond, "makedb", "--in", "db.faa", "-d", "db", "--quiet"], cwd=shell.work, check=True)
    serial = [diamond, "blastp", "-q", "q.faa", "-d", "db", "-o", "expected", "--quiet", "-p", "1"]
    subprocess.run(serial, cwd=shell.work, check=True)
    return shell


RUN = "impatient run --verify 0 -- diamond blastp -q q.faa -d db -o out --quiet -p 1"


def test_stalled_search_is_killed_and_retried(search: Shell) -> None:
    (search.root / "n").write_text("1")
    run = search.run(RUN)
    assert run.code == 0, run.shown
    assert "diamond stood still: no CPU time, no reads, no writes for 0.5 s; ended and tried again" in run.err, (
        run.shown
    )
    assert (search.work / "out").read_bytes() == (search.work / "expected").read_bytes()


def test_search_that_always_stalls_stops_the_run(search: Shell) -> None:
    (search.root / "n").write_text("1000000")
    run = search.run(RUN)
    assert run.code == 4, run.shown
    assert "stood still: no CPU time, no reads, no writes" in run.err, run.shown


def test_waiting_script_is_not_killed(shell: Shell) -> None:
    shell.tool("impatient", f'exec {sys.executable} -c {shlex.quote(IMPATIENT)} "$@"')
    shell.tool("waits", "sleep 3; exec cat")
    run = shell.run("impatient run --verify 0 --format fasta -- waits < in.fa > out")
    assert run.code == 0, run.shown
    assert (shell.work / "out").read_bytes() == (shell.work / "in.fa").read_bytes()
