"""What a program finds of where it is started: the working directory's name, its own, the state of its input."""

from __future__ import annotations

import shlex
import sys

import pytest
from shell import Shell

RUN = "millrace run -q --format lines --batch 2 --independent --"
SAY = 'while read x; do echo "$x $0 $(dirname "$0") $(cat "$(dirname "$0")/beside")"; done'


@pytest.mark.parametrize("folder", ["real", "link"])
@pytest.mark.parametrize(
    "command",
    [
        """awk '{print ENVIRON["PWD"], $0}' < in.txt""",
        """python3 -c 'import os, sys; [print(os.environ["PWD"], os.getcwd(), line) for line in sys.stdin]' < in.txt""",
        """sh -c 'while read x; do echo "$x $PWD"; pwd; pwd -P; done' < in.txt""",
        """bash -c 'while read x; do echo "$x $PWD $OLDPWD"; pwd; pwd -P; done' < in.txt""",
    ],
)
def test_working_directory_keeps_its_name_in_a_task(shell: Shell, folder: str, command: str) -> None:
    """A program that prints its working directory prints what it prints alone."""
    shell.run("mkdir real; ln -s real link; seq 7 > real/in.txt")
    there = f"cd {folder}; export OLDPWD; "
    alone, through = shell.run(there + command), shell.run(f"{there}{RUN} {command}")
    assert (through.code, through.out) == (0, alone.out), through.shown


def test_pwd_of_another_folder_is_not_rewritten(shell: Shell) -> None:
    run = RUN.replace("millrace", f"{shlex.quote(sys.executable)} -m millrace", 1)  # no shell that puts it right
    done = shell.run(f"""seq 7 | PWD=/usr {run} awk '{{print ENVIRON["PWD"]}}'""")
    assert (done.code, done.out) == (0, "/usr\n" * 7), done.shown


@pytest.mark.parametrize(
    "command",
    ["./say", "sub/say", "./sub/../say", "../work/say", '"$PWD/say"', "say"],
    ids=lambda text: text.strip('"'),
)
@pytest.mark.parametrize("first", ["#!/bin/sh", ""])
def test_script_reads_its_name_as_typed(shell: Shell, command: str, first: str) -> None:
    shell.run(f"""
        mkdir sub; seq 7 > in.txt; echo beside > beside; cp beside sub/; cp beside ../bin/
        printf '%s\\n' '{first}' '{SAY}' > say; chmod +x say; cp say sub/; cp say ../bin/
    """)
    alone, through = shell.run(f"{command} < in.txt"), shell.run(f"{RUN} {command} < in.txt")
    assert "beside" in alone.out
    assert (through.code, through.out) == (0, alone.out), through.shown


@pytest.mark.parametrize("rights", ["644", "440", "755"])
def test_batch_file_has_mode_and_time_of_its_input(shell: Shell, rights: str) -> None:
    shell.run(f"seq 7 > in.txt; touch -d '2001-02-03 04:05:06.789' in.txt; chmod {rights} in.txt")
    command = """sh -c 'while read x; do echo "$x $(stat -c "%a %y" in.txt) $(date -r in.txt)"; done < in.txt'"""
    alone, through = shell.run(command), shell.run(f"{RUN.replace('--batch', '--input in.txt --batch')} {command}")
    assert "04:05:06.789" in alone.out
    assert (through.code, through.out) == (0, alone.out), through.shown


def test_resume_reports_changed_variables(shell: Shell) -> None:
    shell.tool(
        "tool", 'until [ -e "$MARK/go" ] || ! grep -qx 40 "$1"; do sleep 0.1; done; sed "s/^/$MYVAR /" "$1" > "$2"'
    )
    run = "millrace run --verify 0 --format lines --batch 5 --input in.txt --output out --keep-run-dir"
    first = shell.run(f"""
        seq 40 > in.txt; export MYVAR=one; {run} -- tool in.txt out & pid=$!
        until [ -s out ]; do sleep 0.1; done; kill $pid; wait $pid""")
    assert first.code == 143 and "MYVAR" not in first.err, first.shown
    again = shell.run(f'touch "$MARK/go"; MYVAR=two SLURM_JOB_ID=7 {run} -- tool in.txt out')
    assert again.code == 0, again.shown
    assert "MYVAR: not what the environment had when this run began; what was done then stays: --fresh" in again.err, (
        again.shown
    )
    done = shell.run(f"MYVAR=three {run} -- tool in.txt out")
    assert done.code == 0 and "already done" in done.err and "MYVAR: not what" in done.err, done.shown
    same = shell.run(f"MYVAR=one {run} -- tool in.txt out")
    assert same.code == 0 and "already done" in same.err and "MYVAR" not in same.err, same.shown
