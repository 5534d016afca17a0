"""Options of ``millrace gather`` that HSP-Wrap's ``hspgather`` has."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import Shell

from millrace import __version__
from millrace.rundir.paths import RunDir

JOB = """
phase first { exe-file "tee2"; exe-args "in.fa one.fa"; stream "in.fa"; stream "one.fa" { output; }; };
phase second { depends-on phase first; exe-file "tee2"; exe-args "one.fa two.fa"; stream "one.fa"; stream "two.fa" { output; }; };
"""


@pytest.fixture
def gathered(shell: Shell) -> Shell:
    """A finished job of two phases, and a finished run in a folder of its own."""
    (shell.work / "job.hsp").write_text(JOB)
    (shell.work / "there").mkdir()
    done = shell.run(
        "millrace run -q --keep-run-dir job.hsp && cd there && millrace run -q --keep-run-dir --input ../in.fa --output out -- tee2 ../in.fa out"
    )
    assert done.code == 0, done.shown
    return shell


def test_gather_finds_an_output_in_a_directory(gathered: Shell) -> None:
    """A folder with a run beside its output, a run directory, the folder of a job; to standard output, or to a file."""
    wanted = (gathered.work / "in.fa").read_text()
    for where in ("there/out", "-d there out", "--directory there/out.millrace out", "-d there out.millrace --stream out",
                  "-d job.millrace two.fa", "-d job.millrace one.fa", "-d job.millrace/first one.fa"):  # fmt: skip
        done = gathered.run(f"millrace gather {where}")
        assert (done.code, done.out, done.err) == (0, wanted, ""), done.shown
    done = gathered.run("millrace gather -i -f --output again -d job.millrace two.fa && cmp again in.fa")
    assert (done.code, done.out) == (0, ""), done.shown


def test_gather_unknown_output_lists_those_there(gathered: Shell) -> None:
    done = gathered.run("millrace gather -d job.millrace three.fa")
    assert (done.code, done.out) == (2, ""), done.shown
    assert "job.millrace: has no output three.fa" in done.err and "outputs are: one.fa, stdout, two.fa" in done.err
    done = gathered.run("mkdir empty; millrace gather -d empty three.fa")
    assert done.code == 2 and "empty/three.fa: no run here" in done.err, done.shown


def test_gather_force_writes_the_output_of_a_finished_run(gathered: Shell) -> None:
    line = "cd there; : > out; millrace gather out -o out"
    refused = gathered.run(line)
    assert refused.code == 2 and "is the output of the run itself" in refused.err, refused.shown
    assert "with --force" in refused.err
    done = gathered.run(f"{line} --force && cmp out ../in.fa")
    assert (done.code, done.out) == (0, ""), done.shown
    (gathered.work / "there/out.millrace" / RunDir(Path()).completion).unlink()
    stopped = gathered.run(f"{line} -f")  # of a run that is not done
    assert stopped.code == 2 and "is the output of the run itself" in stopped.err, stopped.shown


def test_gather_tells_its_version(shell: Shell) -> None:
    done = shell.run("millrace gather --version")
    assert (done.code, done.out) == (0, f"millrace, version {__version__}\n"), done.shown
