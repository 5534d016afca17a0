"""A tool that brings its own threads and takes long to start is started as rarely as possible."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from parameter_choice import some
from shell import Shell

#: Logs each search that is started; the one with the number in the file ``kill-at`` kills Millrace.
WRAPPER = """
case "$*" in */unread0*) exec {diamond} "$@";; esac  # the look at what a wrapper starts
if [ "$1" = blastp ]; then
    echo "$@" >> "$COUNT"
    [ "$(wc -l < "$COUNT")" = "$(cat "$MARK/kill-at" 2>/dev/null)" ] && kill -KILL $PPID
fi
exec {diamond} "$@"
"""

SEARCH = "diamond blastp -q q.faa -d db -o out --quiet"


@pytest.fixture
def searching(shell: Shell, data: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A folder with queries and a database for a DIAMOND that counts its starts."""
    diamond = shutil.which("diamond")
    if not diamond:
        pytest.skip("diamond is not installed")
    queries = (data / "proteins_queries.faa").read_text().split(">")[1:121]
    subjects = (data / "proteins_db.faa").read_text().split(">")[1:1001]
    (shell.work / "q.faa").write_text("".join(f">{each}" for each in queries))
    (shell.work / "db.faa").write_text("".join(f">{each}" for each in subjects))
    subprocess.run([diamond, "makedb", "--in", "db.faa", "-d", "db", "--quiet"], cwd=shell.work, check=True)
    shell.tool("diamond", WRAPPER.format(diamond=diamond))
    monkeypatch.setenv("XDG_STATE_HOME", str(shell.root / "state"))
    return shell


def serial(shell: Shell, command: str) -> bytes:
    ended = shell.run(command)
    assert not ended.code, ended.shown
    (shell.root / "count").unlink()
    return (shell.work / "out").read_bytes()


def starts(shell: Shell) -> list[str]:
    """Arguments of the searches since the last look."""
    log = shell.root / "count"
    found = log.read_text().splitlines()
    log.unlink()
    return found


def test_small_input_is_one_start_with_all_cores(searching: Shell) -> None:
    expected = serial(searching, SEARCH)
    cores = len(os.sched_getaffinity(0))
    memory = searching.root / "state" / "millrace" / "learnt.json"
    for again in (False, True):  # as a guess, and with what was learnt
        assert memory.exists() == again
        ended = searching.run(f"millrace run --fresh -- {SEARCH}")
        assert not ended.code, ended.shown
        assert [line.split()[-2:] for line in starts(searching)] == [["-p", str(cores)]]
        assert (searching.work / "out").read_bytes() == expected
    assert stat.S_IMODE(memory.stat().st_mode) == 0o600
    assert str(searching.root) not in memory.read_text()


@pytest.mark.parametrize(("options", "threads", "of_each"), [("--slots 2", "", 0), ("--slots 2", "-p 1", 1)])
def test_slots_that_only_start_the_tool_are_not_used(
    searching: Shell, options: str, threads: str, of_each: int
) -> None:
    expected = serial(searching, f"{SEARCH} {threads}")
    ended = searching.run(f"millrace run {options} -- {SEARCH} {threads}")
    assert not ended.code, ended.shown
    of_each = of_each or max(1, len(os.sched_getaffinity(0)) // 2)
    assert [line.split()[-2:] for line in starts(searching)] == [["-p", str(of_each)]]
    assert (searching.work / "out").read_bytes() == expected


def test_plan_reports_slots_threads_and_reason(searching: Shell) -> None:
    cores = len(os.sched_getaffinity(0))

    def plan(options: str, threads: str = "") -> tuple[int, int, str]:
        ended = searching.run(f"millrace plan --json {options} -- {SEARCH} {threads}")
        assert not ended.code, ended.shown
        said = json.loads(ended.out)
        return said["slots"], said["threads"], " ".join(said["notes"])

    slots, threads, notes = plan("")
    assert (slots, threads) == (1, cores)
    assert "diamond itself spreads its work over all cores" in notes
    assert "by the size of its database" in notes
    assert plan("--slots 2")[:2] == (2, max(1, cores // 2))
    assert plan("", "-p 1")[:2] == (cores, 1)
    assert searching.run(f"millrace run -- {SEARCH}").code == 0
    assert "as earlier runs showed" in plan("")[2]


@pytest.mark.parametrize("threads", some(["", "-p 0", "-p 1"], "-p 0"))
def test_resume_with_other_slots_keeps_the_serial_header(searching: Shell, threads: str) -> None:
    """The header names the number of threads of the command."""
    command = f"{SEARCH} -f 101 {threads}"
    expected = serial(searching, command)
    (searching.root / "kill-at").write_text("3")
    ended = searching.run(f"millrace run --batch 30 --slots 1 --sync 0 -- {command}")
    assert ended.code in (137, -9), ended.shown
    (searching.root / "kill-at").unlink()
    assert len(starts(searching)) == 3
    ended = searching.run(f"millrace run --batch 30 --slots 3 -- {command}")
    assert not ended.code, ended.shown
    assert len(starts(searching)) == 2
    assert (searching.work / "out").read_bytes() == expected


@pytest.mark.parametrize("content", [None, "", "{}", '{"tools": {"x": {"sums": [0]}}}', "\0" * 100, "folder"])
def test_unusable_learnt_file_does_not_fail_a_run(searching: Shell, content: str | None) -> None:
    state = searching.root / "state"
    if content is None:
        state.touch()  # where the folder should be
    else:
        place = state / "millrace" / "learnt.json"
        place.parent.mkdir(parents=True)
        place.mkdir() if content == "folder" else place.write_text(content)
    ended = searching.run(f"millrace run -- {SEARCH}")
    assert not ended.code, ended.shown
    assert len(starts(searching)) == 1
    assert not [*state.rglob("*.json.*")], "a new file was left behind"
