"""The integrations: each run by the real engine, or as the engine would where that cannot be had."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

import harness
import pytest
import yaml
from moved_runs import TOOLS, MovedRun, make_inputs
from public_tools import install_nextflow, install_packages
from shell import Shell

import millrace

INTEGRATIONS = Path(__file__).resolve().parents[2] / "integrations"

#: Variables of Nextflow's script that the test gives it.
MODULE = INTEGRATIONS / "nextflow" / "millrace"


def fill_in_script(cpus: int, serial: str) -> str:
    """Return the script of the module as Nextflow writes it into ``.command.sh``."""
    found = re.search(r'    script:.*?"""\n(.*?)    """', (MODULE / "main.nf").read_text(), re.DOTALL)
    assert found
    values = {"task.cpus": str(cpus), "args": "--input in.fa", "serial": serial, "task.process": "TEST:MILLRACE"}
    text = re.sub(r"(?<!\\)\$\{([\w.]+)\}", lambda name: values[name[1]], found[1])
    return re.sub(r"^    ", "", text.replace(r"\$", "$"), flags=re.MULTILINE)


def run_task(shell: Shell, folder: str, serial: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a work folder as Nextflow makes them: inputs are links, and the folder is the task's alone."""
    work = shell.root / "work" / folder
    work.mkdir(parents=True)
    (work / "in.fa").symlink_to(shell.root / "staged.fa")
    (work / ".command.sh").write_text("#!/bin/bash -ue\n" + fill_in_script(2, serial))
    environ = {
        **os.environ,
        "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}",
        "NXF_TASK_WORKDIR": str(work),
        **more,
    }
    return subprocess.run(
        ["bash", "-ue", ".command.sh"], cwd=work, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


def test_nextflow_script_gives_serial_bytes_and_versions(shell: Shell) -> None:
    """Not Nextflow itself: the script of its module, in a folder of the kind that it makes."""
    shutil.copy(shell.work / "in.fa", shell.root / "staged.fa")
    done = run_task(shell, "ab/12", "grep -v MAA in.fa > out.fa")
    assert done.returncode == 0, done.stderr
    work = shell.root / "work" / "ab" / "12"
    assert (work / "out.fa").read_text() == (shell.work / "in.fa").read_text().replace("MAA\n", "")
    assert yaml.safe_load((work / "versions.yml").read_text()) == {"TEST:MILLRACE": {"millrace": millrace.__version__}}


def test_nextflow_module_describes_what_it_has() -> None:
    meta = yaml.safe_load((MODULE / "meta.yml").read_text())
    text = (MODULE / "main.nf").read_text()
    names = [next(iter(each)) for group in meta["input"] for each in group]
    assert names == re.findall(r"(?:val|path)[ (](\w+)", text.partition("input:")[2].partition("output:")[0])
    assert [next(iter(each)) for each in meta["output"]] == re.findall(r"emit: (\w+)", text)


def test_galaxy_tool_has_the_version_of_the_package() -> None:
    tool = ElementTree.parse(INTEGRATIONS / "galaxy" / "millrace_blastp.xml")
    assert [token.text for token in tool.iter("token")] == [millrace.__version__]


@pytest.mark.slow
def test_snakemake_runs_the_wrapper_to_serial_bytes(shell: Shell, data: Path, session_folder: Path) -> None:
    shell.run(
        f"head -60 {data}/proteins_queries.faa > a.faa; makeblastdb -in {data}/proteins_db.faa -dbtype prot -out db"
    )
    assert shell.run("blastp -query a.faa -db db -outfmt 6 -out serial.tsv").code == 0
    program = install_packages(session_folder, "snakemake") / "snakemake"
    wrapper = INTEGRATIONS / "snakemake" / "Snakefile"
    done = shell.run(f"{program} --cores 2 --directory . --snakefile {wrapper} a.tsv")
    assert done.code == 0, done.shown + (shell.work / "a.log").read_text()
    assert (shell.work / "a.tsv").read_bytes() == (shell.work / "serial.tsv").read_bytes()
    assert "efficiency" in (shell.work / "a.log").read_text()


#: Executions of the tool before a task is killed.
HOLD = 9


class EngineTask:
    """A task of an engine: ``blastp`` through Millrace, whose runs are in a store. One of its starts is killed in the middle.

    Args:
        folder: A folder of its own.
    """

    def __init__(self, folder: Path, data: Path) -> None:
        make_inputs(folder / "inputs", data, names=["blastp-rows"])
        millrace = folder / "inputs" / "bin" / "millrace"
        millrace.write_text(f'#!/bin/sh\nexec {sys.executable} -m millrace "$@"\n')
        millrace.chmod(0o755)
        self._run = MovedRun(TOOLS["blastp-rows"], folder / "inputs" / "blastp-rows", folder / "root")
        self.work = self._run.prepare_folder("work", "a.faa", "db")
        words = self._run.fill_words("a.faa", "db", ("serial.tsv",))
        [self.expected] = self._run.compute_serially(self.work, words, "a.faa", ("serial.tsv",))

    def run(self, command: Sequence[str | Path], number: signal.Signals) -> tuple[int, str]:
        """Run an engine; send ``number`` to the first Millrace that it starts, in the middle; return exit code and words."""
        own = self._run.root
        environ = {
            **self._run.make_environ("a.faa", hold=HOLD), "MILLRACE_STORE": str(own / "store"), "HOME": str(own),
            "XDG_CACHE_HOME": str(own / "cache"), "NXF_HOME": str(own / "nextflow"), "NXF_OFFLINE": "true",
        }  # fmt: skip
        with tempfile.TemporaryFile("w+") as said:
            engine = subprocess.Popen(
                command, cwd=self.work, env=environ, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
            assert harness.wait_until(lambda: len(self._run.executions) >= HOLD, engine), _read_all(said)
            [victim] = self._find_coordinators()
            os.kill(victim, number)
            assert harness.wait_until(lambda: victim not in self._find_coordinators(), engine), _read_all(said)
            self._run.log.with_name(f"{self._run.log.name}.go").touch()
            return engine.wait(harness.LONGEST_SECONDS), _read_all(said)

    def _find_coordinators(self) -> list[int]:
        """Return the processes of ``millrace run``, without those that it has forked."""
        parents = {}
        for number in harness.marked(str(self._run.root)):
            with suppress(OSError):
                words = (Path("/proc") / str(number) / "cmdline").read_bytes().split(b"\0")
                if words[1:4] == [b"-m", b"millrace", b"run"]:
                    parents[number] = int(
                        (Path("/proc") / str(number) / "stat").read_text().rpartition(")")[2].split()[1]
                    )
        return [number for number, parent in parents.items() if parent not in parents]

    def check(self, output: Path) -> None:
        """Check the output, that no more than one batch for each slot was computed twice, and that nothing is left."""
        assert output.read_bytes() == self.expected
        assert self._run.computed_twice <= self._run.slots, self._run.executions
        assert len(set(self._run.executions)) == 24, "12 batches, each searched for candidates and finished"
        assert not harness.left_over(str(self._run.root))


def _read_all(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_snakemake_retries_a_killed_task(
    tmp_path: Path, data: Path, session_folder: Path, number: signal.Signals
) -> None:
    """Snakemake deletes the output of the task that failed, and starts it again."""
    task = EngineTask(tmp_path, data)
    program = install_packages(session_folder, "snakemake") / "snakemake"
    rules = (INTEGRATIONS / "snakemake" / "Snakefile").read_text()
    wrapper = f'"file:{INTEGRATIONS / "snakemake"}"'
    text = rules.replace("--batch 5", "--batch 2 --grace 1").replace('f"file:{workflow.basedir}"', wrapper)
    (task.work / "Snakefile").write_text(text)
    code, said = task.run([program, "--cores", "2", "a.tsv"], number)
    assert code == 0, said + (task.work / "a.log").read_text()
    assert "Trying to restart job" in said
    task.check(task.work / "a.tsv")
    assert "of them by earlier runs" in (task.work / "a.log").read_text()


#: A pipeline of one task, which Nextflow may try twice.
PIPELINE = """
include { MILLRACE } from '%s'
workflow {
    MILLRACE([[id: 'a'], file('a.faa')], files('db.p*'), 'blastp -query INPUT -db db -outfmt 6 -out OUTPUT', 'a.tsv')
}
"""
SETTINGS = """
process { withName: MILLRACE {
    cpus = 2
    ext.args = '--batch 2 --grace 1'
    errorStrategy = { task.exitStatus == 1 || task.exitStatus > 128 ? 'retry' : 'finish' }
    maxRetries = 1
    publishDir = [path: 'results', mode: 'copy']
} }
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nextflow_retries_a_killed_task(
    tmp_path: Path, data: Path, session_folder: Path, number: signal.Signals
) -> None:
    """Nextflow starts a task that failed again in another folder."""
    task = EngineTask(tmp_path, data)
    program = install_nextflow(session_folder)
    (task.work / "main.nf").write_text(PIPELINE % MODULE)
    (task.work / "nextflow.config").write_text(SETTINGS)
    code, said = task.run([*program, "run", "-ansi-log", "false", "main.nf"], number)
    assert code == 0, said
    assert f"terminated with an error exit status ({128 + number}) -- Execution is retried (1)" in said
    task.check(task.work / "results" / "a.tsv")
    tries = [path.read_text() for path in (task.work / "work").glob("*/*/.command.err")]
    assert len(tries) == 2 and any("a run that was begun in" in each and "goes on here" in each for each in tries)
    versions = yaml.safe_load((task.work / "results" / "versions.yml").read_text())
    assert versions == {"MILLRACE": {"millrace": millrace.__version__}}


@pytest.mark.slow
def test_galaxy_tool_passes_planemo_lint(session_folder: Path, tmp_path: Path) -> None:
    program = install_packages(session_folder, "planemo") / "planemo"
    environ = {**os.environ, "HOME": str(tmp_path)}
    told = subprocess.run(
        [program, "lint", "--fail_level", "error", INTEGRATIONS / "galaxy" / "millrace_blastp.xml"],
        env=environ, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Linting tool" in told.stdout and ".. ERROR" not in told.stdout
