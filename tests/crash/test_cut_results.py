"""A tool that ends with status 0 and has not written all of its output: a failure like any other, found at once."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import harness
import pytest

#: The real tool; what it wrote for a batch with the record $BAD is then cut ($CUT, a command of bash on $out): always,
#: or the first time that it sees the batch.
WRAPPER = """#!/bin/bash
case "$*" in */unread0*) exec {real} "$@";; esac  # the look at what a wrapper starts
(exec -a {name} {real} "$@") || exit $?
case " $* " in *" -h "*|*" -version "*) exit 0;; esac
eval "in=$IN_ARG" "out=$OUT_ARG"
if grep -q "$BAD" "$in" && {{ [ "$ALWAYS" ] || mkdir "$SEEN/$(cksum < "$in" | tr -d ' ')" 2>/dev/null; }}; then
    [ -e "$out" ] || exit 90
    eval "$CUT"
fi
exit 0
"""

#: How a result is cut: as by a disk that was full for a moment, or a child that was killed while it wrote.
CUTS = {
    "empty": ': > "$out"',
    "half": 'truncate -s $(($(stat -c %s "$out") / 2)) "$out"',
    "end": 'truncate -s -7 "$out"',
}


@dataclass
class Cut:
    """A command of a real tool, and a tool of the same name that cuts what it writes."""

    folder: Path
    tool: tuple[str, ...]
    output: str
    in_arg: str
    out_arg: str
    volatile: tuple[bytes, ...] = ()

    def run(self, cut: str, *, always: bool = False) -> tuple[int, str]:
        """Run it with what belongs to the fourth record cut."""
        headers = [line for line in (self.folder / "q.faa").read_text().splitlines() if line[0] == ">"]
        shutil.rmtree(self.seen, ignore_errors=True)
        self.seen.mkdir()
        (self.folder / "bin").mkdir(exist_ok=True)
        wrapper = self.folder / "bin" / self.tool[0]
        wrapper.write_text(WRAPPER.format(name=self.tool[0], real=shlex.quote(shutil.which(self.tool[0]) or "")))
        wrapper.chmod(0o755)
        environ = {
            **os.environ, "PATH": f"{wrapper.parent}:{os.environ['PATH']}", "SEEN": str(self.seen),
            "CUT": CUTS[cut], "ALWAYS": "1" if always else "", "BAD": headers[3].split()[0], "IN_ARG": self.in_arg, "OUT_ARG": self.out_arg,
        }  # fmt: skip
        command = [
            sys.executable,
            "-m",
            "millrace",
            "run",
            "--as",
            self.tool[0],
            "--slots",
            "2",
            "--batch",
            "2",
            "--",
            *self.tool,
        ]
        done = subprocess.run(
            command, cwd=self.folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    @property
    def seen(self) -> Path:
        """Where the tool notes what it has cut: beside its working directory, whose files are each task's own."""
        return self.folder.with_name(f"{self.folder.name}.seen")

    @cached_property
    def case(self) -> harness.Case:
        return harness.Case("cut", self.folder, (), self.tool, (self.output,), self.volatile)


def blastp(folder: Path, data: Path, outfmt: str) -> Cut:
    harness.take(data / "proteins_db.faa", folder / "db.faa", 200)
    harness.take(data / "proteins_queries.faa", folder / "q.faa", 6)
    subprocess.run(
        ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"], cwd=folder, check=True, capture_output=True
    )
    tool = ("blastp", "-query", "q.faa", "-db", "db", "-evalue", "100", "-outfmt", outfmt, "-out", "out")
    return Cut(folder, tool, "out", "$2", "${10}")


def hmmscan(folder: Path, data: Path, option: str) -> Cut:
    shutil.copyfile(data / "profiles.hmm", folder / "profiles.hmm")
    subprocess.run(["hmmpress", "profiles.hmm"], cwd=folder, check=True, capture_output=True)
    harness.take(data / "proteins_queries.faa", folder / "q.faa", 6)
    other = "--tblout" if option == "-o" else "-o"
    tool = ("hmmscan", "--cpu", "1", option, "out", other, "other", "profiles.hmm", "q.faa")
    return Cut(folder, tool, "out", "$8", "$4", harness.volatile_of(tool, folder))


MAKERS = {"blastp": blastp, "hmmscan": hmmscan}


@pytest.fixture
def cut_of(tmp_path: Path, data: Path, request: pytest.FixtureRequest) -> Cut:
    """The command that the parameter names, with what it writes by itself."""
    program, option = request.param
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    made = MAKERS[program](tmp_path, data, option)
    made.case.serial()
    return made


COMMANDS = [
    pytest.param(("blastp", "0"), id="blastp-0", marks=pytest.mark.slow),
    pytest.param(("blastp", "5"), id="blastp-5", marks=pytest.mark.slow),
    pytest.param(("blastp", "7"), id="blastp-7", marks=pytest.mark.slow),
    pytest.param(("blastp", "11"), id="blastp-11", marks=pytest.mark.slow),
    pytest.param(("hmmscan", "-o"), id="hmmscan-o"),
    pytest.param(("hmmscan", "--tblout"), id="hmmscan-tblout"),
]


@pytest.mark.parametrize("cut_of", COMMANDS, indirect=True)
def test_truncated_result_is_computed_again(cut_of: Cut) -> None:
    for cut in CUTS:
        code, said = cut_of.run(cut)
        assert code == 0, said
        assert any(cut_of.seen.iterdir()), "nothing was cut"
        assert not cut_of.case.differing(), cut
        (cut_of.folder / cut_of.output).unlink()


@pytest.mark.parametrize("cut_of", [COMMANDS[1], COMMANDS[4]], indirect=True)
def test_record_with_always_truncated_result_is_quarantined(cut_of: Cut) -> None:
    code, said = cut_of.run("empty", always=True)
    assert code == 3, said
    assert "exit status 0, but it wrote nothing to out" in said
    assert cut_of.case.run_dir.joinpath("quarantine", "record-4").is_dir()
